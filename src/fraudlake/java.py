"""Java: finds the one that Spark would start, and says in one line when it will not do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from fraudlake.errors import FraudlakeError

SUPPORTED = (17, 21)
_HINT = "install Java 17 or 21 and put it on the PATH or name it in JAVA_HOME"


def require() -> Path:
    """Return the ``java`` program that Spark will start.

    Raises:
        FraudlakeError: there is none, or its version is not one that Spark 4.2 runs on.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise FraudlakeError(f"no Java {where}: {_HINT}")
    # Both standard streams are pipes here: a Java that cannot even start says why on one of them.
    told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if match is None:
        raise FraudlakeError(f"{found} does not tell its version: {_HINT}")
    if int(match[1]) not in SUPPORTED:
        raise FraudlakeError(f"{found} is Java {match[1]}: {_HINT}")
    return Path(found)
