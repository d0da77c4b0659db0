"""Spark's home: pyspark's programs with every jar in one folder, and an archive of Java's classes beside them.

pyspark's own folder would do, at a price that each process pays: its workers compile Spark's Python modules from a zip
file at every start (pyspark 4.2 puts it first on their path), and Java loads and checks 20,000 classes one by one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

from fraudlake.errors import FraudlakeError
from fraudlake.lake import jars, java


def folder() -> Path:
    """Return a folder that Spark can start from (``SPARK_HOME``), making it on first use.

    Raises:
        FraudlakeError: Java is missing, or the jars cannot be had.
    """
    import pyspark

    own, added = Path(pyspark.__file__).parent, jars.folder()
    home = added.parent / f"home-{pyspark.__version__}-{added.name.rpartition('-')[2]}"
    if not home.is_dir():
        with FileLock(f"{home}.lock"):
            if not home.is_dir():
                _make(home, own, added)
    return home


def _make(home: Path, own: Path, added: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        made = Path(work) / "home"
        shutil.copytree(own / "bin", made / "bin")
        (made / "jars").mkdir()
        for jar in (*own.glob("jars/*.jar"), *added.glob("*.jar")):
            _link(jar, made / "jars" / jar.name)
        made.rename(home)


def _link(file: Path, name: Path) -> None:
    """Give a file a second name, so that it outlives the environment that it came with; copy it to another disk."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copy2(file, name)


def class_archive() -> Path:
    """Return where the archive of classes is, or would be: each Java needs its own."""
    program = java.require()
    key = hashlib.sha256(f"{program.resolve()} {java.version(program)}".encode()).hexdigest()[:12]
    return folder() / f"classes-{key}.jsa"


def java_options() -> list[str]:
    """Return the options by which Java uses the archive, if there is one; one that does not fit it passes over."""
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if archive.exists() else []


def archive_classes() -> bool:
    """Make the archive of classes from what a small main job loads; tell whether there was none yet.

    Raises:
        FraudlakeError: the job or Java failed.
    """
    archive = class_archive()
    with FileLock(f"{archive}.lock"):
        if archive.exists():
            return False
        with tempfile.TemporaryDirectory(dir=archive.parent) as work:
            made = Path(work) / archive.name
            command = [sys.executable, "-m", "fraudlake.lake.workout", f"{work}/lake"]
            environment = {**os.environ, "JDK_JAVA_OPTIONS": f"-XX:ArchiveClassesAtExit={made}"}
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
            if ended.returncode != 0 or not made.exists():
                lines = (ended.stderr.strip() or "Java wrote none").splitlines()
                raise FraudlakeError(f"cannot archive Java's classes: {lines[-1]}")
            made.rename(archive)
    return True
