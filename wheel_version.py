"""The wheel's version, which the build asks for: the package's, with a local segment that changes with the code."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parent


def version(root: Path = ROOT) -> str:
    """Return the version of the wheel of a checkout, such as ``0.1.0+c9f86d081884c``.

    Compute keeps a wheel that it has installed, and takes another one of the same name and version for the same
    (databricks/cli issues 1621 and 2477). The segment begins with a letter: PEP 440 drops a number's leading zeros.
    """
    module = root / "src" / "fraudlake" / "process" / "version.py"
    own = re.search(r'^__version__ = "(.+)"$', module.read_text(), re.MULTILINE)
    if own is None:
        raise ValueError(f"{module} has no __version__")
    files = {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in [root / "pyproject.toml", *(root / "src").rglob("*")]
        if file.is_file() and "__pycache__" not in file.parts
    }
    content = hashlib.sha256()
    for name in sorted(files):
        content.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    return f"{own[1]}+c{content.hexdigest()[:12]}"
