"""Spark's home: pyspark's programs and every jar in one folder, with an archive of Java's classes (class data sharing).

pyspark's own folder would work, but every process would start more slowly. Its Python workers compile Spark's modules
from a zip file at every start (pyspark 4.2 puts it first on their path), and Java loads and verifies 20,000 classes one
by one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from filelock import FileLock

from fraudlake.errors import FraudlakeError
from fraudlake.lake import jars, java
from fraudlake.settings import ENV_PREFIX

LOG_STORE = Path(__file__).parent / "log_store" / "HardLinkLogStore.class"
"""Delta's store of a local table's log; ``python -m tests.log_store`` compiles it from the source beside it."""


def folder() -> Path:
    """Return a folder that Spark can start from (``SPARK_HOME``), making it on first use.

    Raises:
        FraudlakeError: Java is missing, or the jars cannot be downloaded.
    """
    import pyspark

    pyspark_folder, added_jars = Path(pyspark.__file__).parent, jars.folder()
    log_store = hashlib.sha256(LOG_STORE.read_bytes()).hexdigest()[:8]
    home = added_jars.parent / f"home-{pyspark.__version__}-{added_jars.name.rpartition('-')[2]}-{log_store}"
    if not home.is_dir():
        with FileLock(f"{home}.lock"):
            if not home.is_dir():
                _make(home, pyspark_folder, added_jars)
    return home


def _make(home: Path, pyspark_folder: Path, added_jars: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        draft = Path(work) / "home"
        shutil.copytree(pyspark_folder / "bin", draft / "bin")
        (draft / "jars").mkdir()
        for jar in (*pyspark_folder.glob("jars/*.jar"), *added_jars.glob("*.jar")):
            _link(jar, draft / "jars" / jar.name)
        with zipfile.ZipFile(draft / "jars" / "fraudlake-log-store.jar", "w") as log_store:
            log_store.write(LOG_STORE, f"fraudlake/{LOG_STORE.name}")
        draft.rename(home)


def _link(file: Path, name: Path) -> None:
    """Hard-link a file, so that it outlives its Python environment; copy it where that is on another disk."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copy2(file, name)


def class_archive() -> Path:
    """Return the path of the archive of classes, which may not exist yet; each Java needs its own."""
    program = java.require()
    key = hashlib.sha256(f"{program.resolve()} {java.version(program)}".encode()).hexdigest()[:12]
    return folder() / f"classes-{key}.jsa"


def java_options() -> list[str]:
    """Return the options by which Java uses the archive, if it exists; Java ignores an archive that does not fit it."""
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if archive.exists() else []


def archive_classes() -> bool:
    """Make the archive from the classes that a small main job loads; return False where it exists already.

    Raises:
        FraudlakeError: the job or Java failed.
    """
    archive = class_archive()
    with FileLock(f"{archive}.lock"):
        if archive.exists():
            return False
        with tempfile.TemporaryDirectory(dir=archive.parent) as work:
            draft = Path(work) / archive.name
            command = [sys.executable, "-m", "fraudlake.lake.workout", f"{work}/lake"]
            # The lake of the job is not the one that the environment or a file in this folder sets up.
            environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
            # Which compiler runs changes no class; the second one would take a third of the time.
            options = f'"-XX:ArchiveClassesAtExit={draft}" -XX:TieredStopAtLevel=1'
            environment[f"{ENV_PREFIX}JAVA_OPTIONS"] = options
            result = subprocess.run(  # noqa: S603
                command, env=environment, cwd=work, capture_output=True, text=True, check=False
            )
            if result.returncode != 0 or not draft.exists():
                lines = (result.stderr.strip() or "Java wrote none").splitlines()
                raise FraudlakeError(f"cannot archive Java's classes: {lines[-1]}")
            draft.rename(archive)
    return True
