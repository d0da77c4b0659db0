"""Checkpoints: where a stream keeps how far it is, checked before the stream starts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fraudlake.errors import FraudlakeError


@dataclass(frozen=True)
class Checkpoint:
    """The folder of one stream's checkpoint. Beside Spark's own files it holds ``fraudlake.json``: its identity, the
    settings that its state depends on, and the identity of the tables that it reads."""

    step: str
    folder: Path

    @property
    def is_new(self) -> bool:
        """Tell whether the stream has never taken a micro-batch."""
        return not (self._log("offsets") or self._log("commits"))

    def pending_batch(self) -> int | None:
        """Return the number of the micro-batch that was begun and has no commit yet; None where there is none."""
        offsets, commits = self._log("offsets"), self._log("commits")
        begun = int(offsets[-1].name) if offsets else None
        return None if commits and begun == int(commits[-1].name) else begun

    @property
    def id(self) -> str:
        """The checkpoint's identity, made on first use: a checkpoint begun anew has another one."""
        if not self._notes_file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write({"id": str(uuid.uuid4())})
        return str(self._notes()["id"])

    @property
    def state(self) -> Path:
        """Where a stateful stream keeps its state."""
        return self.folder / "state"

    @property
    def fixed(self) -> dict[str, object]:
        """The settings that the stream was begun with and cannot leave; empty before it was begun."""
        return dict(self._notes().get("fixed", {})) if self._notes_file.exists() else {}

    def require(self, fixed: Mapping[str, object], reads: Mapping[str, str], writes: Mapping[str, bool]) -> None:
        """Check that the stream can go on from here, or begin.

        Args:
            fixed: settings that the state depends on: they must be those that the stream was begun with.
            reads: identity of each table that the stream reads: likewise.
            writes: for tables that the stream alone writes, whether they have rows: a new stream would double them.

        Raises:
            FraudlakeError: it cannot; the message says why and what to do. Nothing is written.
        """
        if self.is_new:
            for table in (name for name, has_rows in writes.items() if has_rows):
                raise FraudlakeError(
                    f"{self.step}: {table} holds rows, but the checkpoint {self.folder} of the stream that wrote them "
                    f"is gone, and a new one would write them again: put it back, or start over ({self._start_over})"
                )
        notes = {"fixed": dict(fixed), "reads": dict(reads), "id": self.id, **self._notes()}
        for name, value in fixed.items():
            before = notes["fixed"].get(name, value)
            if before != value:
                raise FraudlakeError(
                    f"{self.step}: its state was begun with {name} = {before} and cannot follow to {value}: "
                    f"set {name} = {before}, or start over ({self._start_over})"
                )
        for table, identity in reads.items():
            if notes["reads"].get(table, identity) != identity:
                raise FraudlakeError(
                    f"{self.step}: {table} is not the table that this stream has read so far: put that one back, "
                    f"or start over ({self._start_over})"
                )
        self._require_whole(stateful=bool(fixed))
        if notes != self._notes():
            self._write(notes)

    def _require_whole(self, stateful: bool) -> None:
        """Check that Spark's own files are there and can be read."""
        offsets, commits = self._log("offsets"), self._log("commits")
        broken = [file for file in (offsets[-1:] + commits[-1:]) if not _is_readable(file)]
        if not self.is_new and not _is_readable(self.folder / "metadata"):
            broken.append(self.folder / "metadata")
        if commits and not offsets:
            broken.append(self.folder / "offsets")
        if commits and stateful and not broken:
            broken += [part for part in self._state_parts() if not any(part.glob("*.*"))]
        if broken:
            raise FraudlakeError(
                f"{self.step}: {broken[0]} is damaged or missing: restore {self.folder} from a copy, "
                f"or start over ({self._start_over})"
            )

    def _state_parts(self) -> list[Path]:
        """List the folders that the state must have, one a partition from 0 on.

        How many there are is not asked of the settings: a workspace may name no number, and may change it.
        """
        parts = {int(path.name) for path in (self.state / "0").glob("*") if path.name.isdigit()}
        return [self.state / "0" / str(part) for part in range(max(parts, default=0) + 1)]

    def watermark_milliseconds(self) -> int | None:
        """Return the event-time watermark of the newest micro-batch, milliseconds since 1970; None before the first."""
        offsets = self._log("offsets")
        if not offsets:
            return None
        metadata = json.loads(offsets[-1].read_text().splitlines()[1])
        return int(metadata["batchWatermarkMs"])

    def unread_versions(self) -> dict[str, int]:
        """Return the version from which on rows are still to be read, by the identity of each Delta table.

        A micro-batch that has no commit yet is still to be read. Delta's offsets name the version, and the next one
        where all files of a version are read (seen in Delta 4.4).
        """
        committed = self._log("commits")
        offsets = self.folder / "offsets" / committed[-1].name if committed else next(iter(self._log("offsets")), None)
        lines = offsets.read_text().splitlines()[2:] if offsets else []
        sources = [json.loads(line) for line in lines if line != "-"]
        # Before the first commit the table as the stream found it is to be read: the version before.
        back = 0 if committed else 1
        return {one["reservoirId"]: one["reservoirVersion"] - back for one in sources if "reservoirId" in one}

    @property
    def _start_over(self) -> str:
        return f"remove {self.folder} and the tables that '{self.step}' writes"

    @property
    def _notes_file(self) -> Path:
        return self.folder / "fraudlake.json"

    def _log(self, name: str) -> list[Path]:
        return sorted(
            (path for path in (self.folder / name).glob("*") if path.name.isdigit()), key=lambda p: int(p.name)
        )

    def _notes(self) -> dict[str, Any]:
        try:
            notes: dict[str, Any] = json.loads(self._notes_file.read_text())
        except ValueError:
            raise FraudlakeError(
                f"{self.step}: {self._notes_file} is damaged: restore {self.folder} from a copy, "
                f"or start over ({self._start_over})"
            ) from None
        return notes

    def _write(self, notes: Mapping[str, object]) -> None:
        draft = self._notes_file.with_suffix(".tmp")
        draft.write_text(json.dumps(notes) + "\n")
        draft.replace(self._notes_file)


def _is_readable(file: Path) -> bool:
    """Tell whether a file of Spark's offset or commit log, or its metadata, holds what it should."""
    try:
        lines = file.read_text().splitlines()
        if file.name != "metadata":
            version, *lines = lines
            if not version.startswith("v"):
                return False
        for line in lines:
            if line != "-":  # a source without an offset
                json.loads(line)
    except (OSError, ValueError):
        return False
    return bool(lines)
