"""Lake format: a file marks a folder as a lake, and names the version of its layout."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from fraudlake.errors import FraudlakeError, MissingLakeError, UsageError
from fraudlake.lake import json_file, nearest_lake
from fraudlake.process.version import __version__

FORMAT = 1
"""Version of the lake's own layout; another one is refused."""
_UNOPENABLE = re.compile(r"[\[\]\\^|%\x00-\x1f\x7f\ud800-\udfff]")
"""Characters of a path with which delta-rs does not open a table (seen in 1.6); the last ones are no UTF-8."""


def mark(root: Path) -> None:
    """Mark a folder as a lake of this format, or refuse it: see :func:`require`."""
    with _refusals(root):
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock"):
            if not _file(root).exists():
                # Atomically, since readers take no lock.
                json_file.write(_file(root), {"format": FORMAT, "fraudlake": __version__})
    require(root)


def require(root: Path) -> None:
    """Refuse a folder that is not a lake of this format.

    Raises:
        UsageError: it is not a folder, cannot be used, or has a character in its path that Delta refuses.
        FraudlakeError: another version of fraudlake made the lake.
        MissingLakeError: there is no lake.
    """
    with _refusals(root):
        try:
            made = json.loads(_file(root).read_text())
        except FileNotFoundError:
            raise MissingLakeError(nearest_lake.missing(root)) from None
    if made.get("format") != FORMAT:
        raise FraudlakeError(
            f"{root} was made by fraudlake {made.get('fraudlake', '?')} (lake format {made.get('format')}), "
            f"this is {__version__} (format {FORMAT}): use that version, or another --lake"
        )


def _file(root: Path) -> Path:
    return root / nearest_lake.FORMAT_FILE


@contextmanager
def _refusals(root: Path) -> Iterator[None]:
    """Turn the errors of a folder that cannot be a lake into messages of one line."""
    if _UNOPENABLE.search(str(root.resolve())):
        raise UsageError(
            f"--lake {root}: name a folder whose path is UTF-8 without [ ] \\ ^ | % and control characters"
        )
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"--lake {root}: there is a file of that name; name a folder") from None
    except OSError as error:
        raise UsageError(f"--lake {root}: {error.strerror}") from None
    except ValueError:
        raise FraudlakeError(f"{_file(root)} is not readable as JSON: restore it, or use another lake") from None
