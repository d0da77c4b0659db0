"""The host: prepares this machine's folders, user name and environment for a local Spark."""

from __future__ import annotations

import getpass
import os
import pwd
import re
import site
import sys
import tempfile
from contextlib import suppress
from importlib import metadata, util
from pathlib import Path

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.process import python_path

JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables with options for any Java of a user; the local Spark takes only the setting java_options."""

_FOREIGN = re.compile(
    rf"(SPARK|PYSPARK|HADOOP|YARN|HIVE)_\w+|MASTER|ARROW_PRE_0_15_IPC_FORMAT|{'|'.join(JAVA_OPTIONS)}"
    # Settings for Python at a terminal make workers print, inspect or warn, which breaks their protocol with Java.
    r"|PYTHON(?!(PATH|HOME|HASHSEED|DONTWRITEBYTECODE|FAULTHANDLER|PYCACHEPREFIX)$)\w+"
)
"""Variables for another Spark, a cluster, or any Java or Python: each would change or break the local Spark."""

OF_WORKERS = ("PYTHONSAFEPATH", "PYTHONPATH", "PYTHONNOUSERSITE")
"""Variables for the module paths of Spark's workers, which other programs started by this one must not inherit."""
_OWN_MODULES = ("fraudlake", "pyspark", "py4j", "pandas", "pyarrow", "numpy")
"""The modules that workers import."""

_NO_PROGRAMS = getattr(os, "ST_NOEXEC", 0)
"""The flag of disks that forbid running programs and loading native libraries; 0 if Python lacks it (macOS)."""

_SECOND_TEMPORARY = Path("/var/tmp")  # noqa: S108


def isolate() -> None:
    """Remove the variables of another Spark or another Java of this machine from the environment."""
    for name in [name for name in os.environ if _FOREIGN.fullmatch(name)]:
        del os.environ[name]


def environment() -> dict[str, str]:
    """Return the environment variables that make a local Spark behave the same on every machine."""
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Python workers start `python3` from the PATH otherwise, which may lack this environment's packages.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Java takes the encoding of file names from the locale, and skips names that it cannot decode. In a Turkish
        # locale it also turns the names of Spark's settings into others.
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
        # Spark starts its workers with `python -m`, which looks for modules in the current folder first.
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": python_path.worker_path(),
        **({} if _is_installed_by_user() else {"PYTHONNOUSERSITE": "1"}),
    }


def _is_installed_by_user() -> bool:
    """Return whether workers need the user's own folder of packages (`pip install --user`)."""
    return any(_is_in(name, site.getusersitepackages()) for name in _OWN_MODULES)


def _is_in(module: str, folder: str) -> bool:
    spec = util.find_spec(module)
    return bool(spec and spec.origin and Path(spec.origin).is_relative_to(folder))


def require_utf8() -> None:
    """Check that Python reads file names as UTF-8, as Java, Arrow and Delta do.

    Raises:
        UsageError: Python reads them in another encoding, and would miss some files.
    """
    encoding = sys.getfilesystemencoding()
    if encoding != "utf-8":
        raise UsageError(f"Python reads file names as {encoding}: start it with PYTHONUTF8=1")


def complete_environment() -> None:
    """Complete this process's environment for MLflow, which needs a home, and would continue a run that it names."""
    os.environ.pop("MLFLOW_RUN_ID", None)
    # MLflow reports each call to its makers by default, and the machine may have no network.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    if not Path(_home()).is_absolute():
        os.environ["HOME"] = str(_first(_own_temporary(), "HOME", os.W_OK, refused=0))
    os.environ.setdefault("USER", user_name())


def require_own_modules() -> None:
    """Check that PYTHONPATH does not shadow the installed PySpark with that of another Spark.

    Raises:
        UsageError: it does.
    """
    for name in ("pyspark", "py4j") if os.environ.get("PYTHONPATH") else ():
        with suppress(metadata.PackageNotFoundError):
            spec = util.find_spec(name)
            installed = metadata.distribution(name).locate_file(name)
            if spec and spec.origin and Path(spec.origin).parent != Path(str(installed)):
                raise UsageError(f"PYTHONPATH: {spec.origin} belongs to another Spark: remove it")


def has_name() -> bool:
    """Return whether the user id has a name on this machine; in containers it often has none."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def user_name() -> str:
    """Return the user's name, or the user id if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def system_user() -> str:
    """Return the user under whose id the process runs, whatever its environment says."""
    return pwd.getpwuid(os.getuid()).pw_name if has_name() else str(os.getuid())


def cache_folder() -> Path:
    """Return the folder of the cache: in XDG_CACHE_HOME, in ``~/.cache``, or else in a temporary folder.

    Raises:
        FraudlakeError: none of them can be used.
    """
    return _first(_caches(), "XDG_CACHE_HOME", os.R_OK | os.X_OK)


def temporary() -> Path:
    """Return the folder for temporary files: that of TMPDIR, or ``/tmp``.

    Raises:
        FraudlakeError: no folder is writable.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise FraudlakeError(f"{error.strerror}: name one with TMPDIR") from None


def temporary_programs() -> Path:
    """Return a temporary folder for the native libraries that Java unpacks and loads.

    Raises:
        FraudlakeError: libraries cannot be loaded from any folder.
    """
    return _first([temporary(), _SECOND_TEMPORARY, *_caches()], "TMPDIR", os.W_OK | os.X_OK)


def traces() -> Path:
    """Return the folder for the stack traces of unforeseen errors.

    Raises:
        FraudlakeError: no folder is writable.
    """
    return _first([*_caches(), temporary()], "TMPDIR", os.W_OK, refused=0)


def keep_native_output() -> None:
    """Redirect what native libraries print on standard error to a file; Python's own output stays.

    On a full disk, for example, delta-rs prints a Rust panic before it raises the error that is reported.
    """
    if sys.stderr is not sys.__stderr__:  # another program has replaced it
        return
    with suppress(FraudlakeError, OSError):
        file = os.open(traces() / "native.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
        os.dup2(file, 2)
        os.close(file)


def _caches() -> list[Path]:
    folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = Path(_home())
    if folder.is_absolute():  # relative paths must be ignored (XDG Base Directory Specification)
        return [folder / "fraudlake"]
    return [*([home / ".cache" / "fraudlake"] if home.is_absolute() else []), *_own_temporary()]


def _home() -> str:
    """Return the user's home, or ``~`` if there is none."""
    return os.path.expanduser("~")  # noqa: PTH111 - Path raises an error if there is none


def _own_temporary() -> list[Path]:
    """Return this user's own temporary folders, without any that belong to other users."""
    folders = [parent / f"fraudlake-{os.getuid()}" for parent in (temporary(), _SECOND_TEMPORARY)]
    return [folder for folder in folders if not folder.exists() or folder.lstat().st_uid == os.getuid()]


def _first(folders: list[Path], variable: str, access: int, refused: int = _NO_PROGRAMS) -> Path:
    """Return the first usable folder, created if missing; by default it must also allow programs to run."""
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, access) and not os.statvfs(folder).f_flag & refused:
                return folder
    tried = ", ".join(map(str, folders))
    raise FraudlakeError(
        f"no folder for programs (missing rights, or a noexec disk): {tried}; name one with {variable}"
    )


def is_utf8(text: str) -> bool:
    """Return whether a text from the system is UTF-8; Python represents other bytes as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_folder(path: str | Path) -> bool:
    """Return whether a path is a folder; false if it is too long, or access is denied."""
    with suppress(OSError):
        return Path(path).is_dir()
    return False
