"""Rebuild note: a file that names the days of a rebuild until it is finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from fraudlake.lake import json_file

if TYPE_CHECKING:
    from pathlib import Path

    from fraudlake.lake import Lake


@dataclass(frozen=True)
class RebuildNote:
    """The days of a rebuild that is not finished, and the versions of the tables before it."""

    first: date
    last: date
    versions: dict[str, int]

    @classmethod
    def of(cls, lake: Lake) -> RebuildNote | None:
        """Read the note; None if no rebuild is unfinished."""
        try:
            note = json.loads(_file(lake).read_text())
        except FileNotFoundError:
            return None
        return cls(date.fromisoformat(note["from"]), date.fromisoformat(note["to"]), note["versions"])

    @property
    def command(self) -> str:
        """The command that finishes the rebuild."""
        return f"fraudlake replay --from {self.first} --to {self.last} --apply"

    def write(self, lake: Lake) -> None:
        """Write the note, before the first table changes."""
        lake.replays.mkdir(parents=True, exist_ok=True)
        json_file.write(_file(lake), {"from": str(self.first), "to": str(self.last), "versions": self.versions})

    @staticmethod
    def remove(lake: Lake) -> None:
        """Remove the note: every table is as it should be."""
        _file(lake).unlink()


def _file(lake: Lake) -> Path:
    return lake.replays / "rebuild.json"
