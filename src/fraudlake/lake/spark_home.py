"""Spark's home: pyspark's programs and every jar in one folder, with an archive of Java's classes (class data sharing).

pyspark's own folder would work, but every process would start more slowly. Its Python workers compile Spark's modules
from a zip file at every start (pyspark 4.2 puts it first on their path), and Java loads and verifies 20,000 classes one
by one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from filelock import FileLock

from fraudlake.lake import jars, java

LOG_STORE = Path(__file__).parent / "log_store" / "HardLinkLogStore.class"
"""Delta's store of a local table's log; ``python -m tests.log_store`` compiles it from the source next to it."""
_ARCHIVE = 0xF00BABA8
"""The number with which Java begins an archive of a program's classes (seen in 17 and 21)."""
_DRAFT_SECONDS = 600
"""The age, in seconds, from which an incomplete draft of an archive counts as abandoned."""


def folder() -> Path:
    """Return a folder that Spark can start from (``SPARK_HOME``), making it on first use.

    Raises:
        FraudlakeError: Java is missing, or the jars cannot be downloaded.
    """
    import pyspark

    pyspark_folder = Path(pyspark.__file__).parent
    added_jars = jars.folder()
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
    """Hard-link a file, so that it outlives its Python environment; copy it if that is on another disk."""
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
    """Return the options by which Java uses the archive or, if there is none, writes a draft of it as it ends.

    The process does not wait for the draft. The next start uses it as the archive if it is complete. Java ignores an
    archive of another Java.
    """
    archive = class_archive()
    quiet = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    is_ours = os.access(archive.parent, os.W_OK)
    for draft in archive.parent.glob(f"{archive.name}.*") if is_ours else ():
        if _is_complete(draft):
            draft.replace(archive)
        elif time.time() - draft.stat().st_mtime > _DRAFT_SECONDS:  # its Java was killed
            draft.unlink(missing_ok=True)
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", *quiet]
    return [f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}", *quiet] if is_ours else []


def _is_complete(draft: Path) -> bool:
    """Return whether Java has completed a draft: it writes the number at the beginning of the file last."""
    with draft.open("rb") as file:
        return int.from_bytes(file.read(4), sys.byteorder) == _ARCHIVE
