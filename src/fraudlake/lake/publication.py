"""Publication: moves files that were written outside a table into it, and commits them there in one version.

delta-rs commits only files that it writes at once in this process. Files of Spark's tasks, and rewritten files, are
written in scratch tables, whose actions become those of the commit here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from deltalake.exceptions import CommitFailedError

from fraudlake.text import json_text

Action = dict[str, Any]
"""An action of Delta's log: one key, such as ``add``, with its fields (Delta protocol, "Actions")."""


def actions(folder: Path, version: int) -> list[Action]:
    """Return the actions of a version of the table in a folder."""
    return [json.loads(line) for line in json_text.lines(_log_file(folder, version).read_text())]


def publish(
    folder: Path,
    version: int,
    committed: Iterable[Action],
    files: Mapping[Path, Path],
    conflicts: Callable[[Action], bool],
    draft: Path,
) -> None:
    """Move files into a table, and commit actions as its next version.

    Args:
        folder: the table's folder, on the disk of the files.
        version: the version of the table that the actions depend on.
        committed: the actions.
        files: the place of each file in the table.
        conflicts: whether the actions cannot follow an action of another process after ``version``. Another definition
            of the table always excludes them.
        draft: a file to write the actions to first, on the same disk.

    Raises:
        CommitFailedError: another process has committed such an action.
    """
    draft.write_text("".join(json.dumps(action) + "\n" for action in committed))
    for file, place in files.items():
        place.parent.mkdir(exist_ok=True)
        file.rename(place)
    try:
        _commit(draft, folder, version + 1, conflicts)
    except CommitFailedError:
        for place in files.values():
            place.unlink()
        raise


def _commit(draft: Path, folder: Path, version: int, conflicts: Callable[[Action], bool]) -> None:
    """Commit as the next free version, by a hard link, which fails if another process has used the version."""
    while True:
        with suppress(FileExistsError):
            os.link(draft, _log_file(folder, version))
            break
        for action in actions(folder, version):
            if conflicts(action) or "metaData" in action or "protocol" in action:
                raise CommitFailedError(f"version {version} has changed what the commit depends on")
        version += 1


def _log_file(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020}.json"
