"""Jars that pyspark does not ship (Delta, the Kafka source, a test broker), resolved once with pyspark's own Ivy."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from filelock import FileLock

from fraudlake import host
from fraudlake.errors import FraudlakeError
from fraudlake.lake import java


def folder(configuration: str = "spark") -> Path:
    """Return the folder that holds the jars of an ``ivy.xml`` configuration, resolving them on first use.

    The folder is named for the content of ``ivy.xml``, so that a new version never uses old jars.

    Raises:
        FraudlakeError: Java is missing, or the jars cannot be downloaded.
    """
    pinned = resources.files("fraudlake").joinpath("ivy.xml").read_bytes()
    cache = host.cache_folder()
    target = cache / f"{configuration}-{hashlib.sha256(pinned).hexdigest()[:12]}"
    if target.is_dir():
        return target
    try:
        with FileLock(cache / f"{configuration}.lock"):
            if not target.is_dir():
                _resolve(configuration, pinned, cache, target)
    except OSError as error:
        raise FraudlakeError(
            f"cannot create {target} ({error.strerror}): run 'fraudlake setup' once as a user who may, or name another "
            "folder with XDG_CACHE_HOME"
        ) from None
    return target


def _resolve(configuration: str, pinned: bytes, cache: Path, target: Path) -> None:
    program = java.require()
    with tempfile.TemporaryDirectory(dir=cache) as work:
        description = Path(work) / "ivy.xml"
        description.write_bytes(pinned)
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
        shutil.move(jars, target)


def _ivy() -> Path:
    import pyspark

    return next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
