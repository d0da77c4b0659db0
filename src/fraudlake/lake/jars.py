"""Jars that pyspark does not ship (Delta, the Kafka source, a test broker), resolved once with pyspark's own Ivy."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from filelock import FileLock

from fraudlake.errors import FraudlakeError
from fraudlake.lake import java
from fraudlake.process import host


def target(configuration: str = "spark") -> Path:
    """Return the path of the folder for the jars of an ``ivy.xml`` configuration; it may not exist yet.

    Its name depends on the content of ``ivy.xml``, so that a new version never uses old jars.

    Raises:
        FraudlakeError: there is no folder for a cache.
    """
    return host.cache_folder() / f"{configuration}-{hashlib.sha256(_pinned()).hexdigest()[:12]}"


def folder(configuration: str = "spark") -> Path:
    """Return the folder that holds the jars of an ``ivy.xml`` configuration, resolving them on first use.

    Raises:
        FraudlakeError: Java is missing, or the jars cannot be downloaded.
    """
    wanted = target(configuration)
    if wanted.is_dir():
        return wanted
    try:
        with FileLock(wanted.parent / f"{configuration}.lock"):
            if not wanted.is_dir():
                _resolve(configuration, wanted)
    except OSError as error:
        raise FraudlakeError(
            f"cannot create {wanted} ({error.strerror}): run 'fraudlake setup' once as a user who may, or name another "
            "folder with XDG_CACHE_HOME"
        ) from None
    return wanted


def _pinned() -> bytes:
    return resources.files("fraudlake").joinpath("ivy.xml").read_bytes()


def _resolve(configuration: str, wanted: Path) -> None:
    program = java.require()
    cache = wanted.parent
    with tempfile.TemporaryDirectory(dir=cache) as work:
        description = Path(work) / "ivy.xml"
        description.write_bytes(_pinned())
        jars = Path(work) / "jars"
        command = [str(program), "-jar", str(_ivy()), "-ivy", str(description), "-confs", configuration]
        command += [
            "-cache",
            str(cache / "ivy"),
            "-types",
            "jar",
            "bundle",
            "-retrieve",
            f"{jars}/[artifact]-[revision].[ext]",
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if result.returncode != 0 or "UNRESOLVED" in result.stdout or not jars.is_dir():
            lines = [line.strip() for line in result.stdout.splitlines() + result.stderr.splitlines()]
            reason = next((line for line in lines if "not found" in line or "Exception" in line), "no answer")
            raise FraudlakeError(
                f"cannot resolve the jars for {configuration} ({reason}): check the network, then try again"
            )
        shutil.move(jars, wanted)


def _ivy() -> Path:
    import pyspark

    return next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
