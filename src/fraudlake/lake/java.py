"""Java: the program that Spark would start, checked for its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from fraudlake.errors import FraudlakeError
from fraudlake.process import host

SUPPORTED = (17, 21)
_HINT = "install Java 17 or 21 and put it on the PATH or name it in JAVA_HOME"


def require() -> Path:
    """Return the ``java`` program that Spark will start.

    Raises:
        FraudlakeError: Java is missing, or Spark 4.2 does not run on its version.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if program is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise FraudlakeError(f"no Java {where}: {_HINT}")
    major = version(Path(program)).removeprefix("1.").partition(".")[0]
    if int(major) not in SUPPORTED:
        raise FraudlakeError(f"{program} is Java {major}: {_HINT}")
    return Path(program)


@cache
def version(program: Path) -> str:
    """Return the version of a ``java`` program, such as ``17.0.15``.

    Raises:
        FraudlakeError: it does not report a version.
    """
    # Both outputs are captured: a Java that cannot start may print the reason on either.
    environment = {name: value for name, value in os.environ.items() if name not in host.JAVA_OPTIONS}
    answer = subprocess.run(  # noqa: S603
        [program, "-version"], env=environment, capture_output=True, text=True, check=False
    )
    match = re.search(r'version "([\d.]*\d)', answer.stderr + answer.stdout)
    if match is None:
        raise FraudlakeError(f"{program} does not report its version: {_HINT}")
    return match[1]
