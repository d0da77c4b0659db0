"""Dispute folder: loads the files that land in a folder as verdicts, once each.

A file is loaded again when it changes. It is also loaded again if a process is killed before it has recorded the file;
that does no harm, since each verdict is inserted only once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake.errors import UsageError, file_reason
from fraudlake.lake import json_file
from fraudlake.model import verdict_file, verdicts
from fraudlake.process import stop
from fraudlake.process.host import is_folder
from fraudlake.sources import landing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fraudlake.lake import Lake
    from fraudlake.model.verdicts import Loaded
    from fraudlake.settings.disputes import DisputeFolder


@dataclass(frozen=True)
class Outcome:
    """The outcome of a file: it was loaded, or refused with an error."""

    file: str
    loaded: Loaded | None
    error: str | None = None


def load_new(lake: Lake, of: DisputeFolder) -> Iterator[Outcome]:
    """Load the files of a folder that are new, have changed, or were refused before: the oldest first.

    These are the files directly in the folder, and folders whose name ends in ``.parquet``. Files with the name of an
    unfinished file are left out: see :func:`fraudlake.sources.landing.is_finished`.

    Raises:
        UsageError: there is no such folder, or the lake has no such column of references.
    """
    if not is_folder(str(of.folder)):
        raise UsageError(f"folder of disputes {of.folder} does not exist: make it, or change disputes in the settings")
    verdicts.require_column(lake, of.reference)
    done = _Done(lake)
    for file in sorted(_files(of.folder), key=lambda file: (_is_original(file), *_age(file))):
        stop.check()
        try:
            version = verdict_file.version(file)
            if done.has(file, version):
                continue
            loaded = verdicts.load(lake, file, of)
        except UsageError as error:
            yield Outcome(file.name, None, str(error))
        else:
            done.note(file, version)
            yield Outcome(file.name, loaded)


def _files(folder: Path) -> list[Path]:
    try:
        finished = [file for file in folder.iterdir() if landing.is_finished(file.name)]
    except OSError as error:
        raise UsageError(f"folder of disputes {folder}: {file_reason(error)}") from None
    return [file for file in finished if file.is_file() or file.suffix.lower() == ".parquet"]


def _age(file: Path) -> tuple[int, str]:
    """Return a sort key by time of modification; a file that has been deleted meanwhile comes first."""
    try:
        return file.stat().st_mtime_ns, file.name
    except OSError:
        return 0, file.name


def _is_original(file: Path) -> bool:
    """Return false for files of left-out rows, which are loaded first: loading the original would overwrite them."""
    return not file.name.endswith(verdicts.LEFT_OUT)


class _Done:
    """The versions of the loaded files, stored in a file among the lake's checkpoints."""

    def __init__(self, lake: Lake) -> None:
        self._file = lake.checkpoints / "disputes" / "loaded.json"
        self._versions: dict[str, str] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def has(self, file: Path, version: str) -> bool:
        return self._versions.get(file.name) == version

    def note(self, file: Path, version: str) -> None:
        """Record a file, and the file of its left-out rows, which is loaded once somebody has changed it."""
        self._versions[file.name] = version
        rest = verdicts.left_out_file(file)
        if rest.exists():
            self._versions[rest.name] = verdict_file.version(rest)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write(self._file, self._versions)
