"""Python path: checks that PYTHONPATH does not shadow Python's own modules, here and in Spark's workers.

The check runs before most modules are loaded, so this module imports hardly more than Python itself loads at start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Set

from fraudlake.errors import UsageError

_CUSTOMIZING = {"sitecustomize", "usercustomize"}
"""Modules that Python loads at start; if they print in a worker, they break its protocol with Java."""
_OTHERS = {"test"}
"""Modules of Python that nothing imports, whose names are common for folders of a project."""


def require_own_modules() -> None:
    """Check that no module of PYTHONPATH shadows one of Python's own.

    Raises:
        UsageError: a module does; the message names it.
    """
    for folder in _folders():
        for name, path in sorted(_modules(folder, sys.stdlib_module_names - _OTHERS).items()):
            raise UsageError(f"PYTHONPATH: {path} takes the place of Python's module {name}: rename or remove it")


def leave_current_folder() -> None:
    """Remove the current folder, which ``python -m`` puts first, from the path, unless it has this program."""
    if not sys.flags.safe_path and not _modules(sys.path[0], {"fraudlake"}):
        del sys.path[0]


def worker_path() -> str:
    """Return PYTHONPATH for Spark's workers, without folders whose modules run at Python's start."""
    folders = (folder for folder in _folders() if not _modules(folder, _CUSTOMIZING) or _has_packages(folder))
    return os.pathsep.join(folders)


def _folders() -> list[str]:
    return [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]


def _modules(folder: str, wanted: Set[str]) -> dict[str, str]:
    """Return the paths of a folder's modules with some names, by name."""
    names = [name for name in _names(folder) if name.partition(".")[0] in wanted]
    paths = {name: os.path.join(folder, name) for name in names}  # noqa: PTH118 (pathlib takes long to load)
    files = {name.partition(".")[0]: path for name, path in paths.items() if name.endswith((".py", ".so", ".pyc"))}
    packages = {name: path for name, path in paths.items() if name in wanted and "__init__.py" in _names(path)}
    return packages | files


def _has_packages(folder: str) -> bool:
    """Return whether packages are installed in a folder, such as by ``pip install --target``."""
    return any(name.endswith(".dist-info") for name in _names(folder))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 (likewise)
    except OSError:
        return []
