"""Checkpoint: a stream's progress and state as Spark writes them, checked before the stream starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fraudlake.errors import FraudlakeError
from fraudlake.lake import json_file
from fraudlake.lake.stream_notes import StreamNotes

_SCHEMA_FILE = re.compile(r"(|file:|dbfs:)/.*(/[^/]+/_stateSchema/[^/]+/[^/]+)", re.DOTALL)
"""Path of a schema file in Spark's metadata of the state; the groups are its scheme, and its path in the state."""


@dataclass(frozen=True)
class Batch:
    """A micro-batch, as a checkpoint records it."""

    number: int
    began_at: datetime
    """When it began (UTC)."""
    committed_at: datetime | None
    """When it was committed (UTC); None if it was not."""
    read_to: dict[str, int]
    """The first version that it did not read, by the id of each Delta table."""

    @property
    def seconds(self) -> float | None:
        """How long it took; None if it is not committed."""
        return None if self.committed_at is None else max(0.0, (self.committed_at - self.began_at).total_seconds())


@dataclass(frozen=True)
class Checkpoint:
    """The folder of one stream's checkpoint.

    It has Spark's own files, and the stream's :class:`~fraudlake.lake.stream_notes.StreamNotes`.
    """

    step: str
    folder: Path

    @property
    def notes(self) -> StreamNotes:
        """What the stream itself notes in the folder."""
        return StreamNotes(self.step, self.folder)

    @property
    def is_new(self) -> bool:
        """Whether the stream has never begun a micro-batch."""
        return not (self._log("offsets") or self._log("commits"))

    def pending_batch(self) -> int | None:
        """Return the number of the micro-batch that was begun and not committed; None if there is none."""
        offsets = self._log("offsets")
        commits = self._log("commits")
        begun = int(offsets[-1].name) if offsets else None
        return None if commits and begun == int(commits[-1].name) else begun

    @property
    def next_batch(self) -> int:
        """The number of the next micro-batch: one that was begun and not committed, or a new one."""
        offsets = self._log("offsets")
        pending = self.pending_batch()
        return pending if pending is not None else int(offsets[-1].name) + 1 if offsets else 0

    def version_read(self, batch: int, table: str) -> int | None:
        """Return the last version of a Delta table, given by its id, that was read as a whole up to a micro-batch.

        None if no version was, or if Spark has removed the micro-batch's offsets.
        """
        file = self.folder / "offsets" / str(batch)
        lines = file.read_text().splitlines()[2:] if file.exists() else []
        for source in (json.loads(line) for line in lines if line != "-"):
            if source.get("reservoirId") == table and not (source.get("isStartingVersion") and source["index"] >= 0):
                return int(source["reservoirVersion"]) - 1
        return None

    @property
    def state(self) -> Path:
        """Folder of a stateful stream's state."""
        return self.folder / "state"

    def correct_paths(self) -> None:
        """Correct the paths in Spark's metadata of the state to this folder.

        The metadata has the full paths of the state's schemas (seen in Spark 4.2). After a lake was moved, copied or
        restored, Spark would look for schemas, and remove old ones, in the lake's former place.

        Raises:
            FraudlakeError: the metadata cannot be written.
        """
        for file in self.state.glob("*/_metadata/v2/*"):
            text = file.read_text() if file.name.isdigit() else ""
            corrected = _corrected(text, self.state)
            if corrected != text:
                try:
                    # Hadoop's checksum is that of the previous text; without the file Hadoop checks nothing.
                    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
                    json_file.write_text(file, corrected)
                except OSError as error:
                    raise FraudlakeError(
                        f"{self.step}: {file} names the place that the lake was moved or copied from, and cannot be "
                        f"written: {error.strerror}"
                    ) from None

    @property
    def state_variables(self) -> set[str]:
        """The names of the tables that the state has had since the stream last started, as Spark's metadata says."""
        files = _numbered(self.state / "0" / "_metadata" / "v2")
        if not files:
            return set()
        text = files[-1].read_text().splitlines()[1]
        properties = json.loads(json.loads(text)["operatorPropertiesJson"])
        return {variable["stateName"] for variable in properties["stateVariables"]}

    def require(self, fixed: Mapping[str, object], reads: Mapping[str, str], writes: Mapping[str, bool]) -> None:
        """Check that the stream can begin or continue with this checkpoint.

        Args:
            fixed: settings that the state depends on; they must not have changed since the stream began.
            reads: the id of each table that the stream reads, which must not have changed either.
            writes: for tables that only this stream writes, whether they have rows, which a new stream would duplicate.

        Raises:
            FraudlakeError: it cannot; the message has the reason and the remedy. Nothing was written.
        """
        if self.is_new:
            for table in (name for name, has_rows in writes.items() if has_rows):
                raise FraudlakeError(
                    f"{self.step}: {table} has rows, but the checkpoint {self.folder} of the stream that wrote them "
                    "is gone, and a new one would write them again: put it back, or start over "
                    f"({self.notes.start_over})"
                )
        self.notes.require(fixed, reads)
        self._require_whole(stateful=bool(fixed))
        self.notes.note_start(fixed, reads)

    def remove_remains(self) -> None:
        """Clean up after a process that was killed before its first micro-batch: Spark begins in empty folders only.

        The caller holds the step's lock.
        """
        if self.is_new:
            for folder in (self.folder / "offsets", self.folder / "commits", self.state):
                shutil.rmtree(folder, ignore_errors=True)

    def _require_whole(self, stateful: bool) -> None:
        """Check that Spark's own files are there and can be read."""
        offsets = self._log("offsets")
        commits = self._log("commits")
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
                f"or start over ({self.notes.start_over})"
            )

    def _state_parts(self) -> list[Path]:
        """List the folders that the state must have, one per partition, numbered from 0.

        Their number does not come from the settings: a workspace may set none, and may change it.
        """
        parts = {int(path.name) for path in (self.state / "0").glob("*") if path.name.isdigit()}
        return [self.state / "0" / str(part) for part in range(max(parts, default=0) + 1)]

    def erase_past_state(self) -> None:
        """Remove the files of all versions of the state but the present one. The stream must not run.

        A version in RocksDB is a zip file that lists its SST files (seen in Spark 4.2). The present version must be a
        zip file, not only a list of changes to an earlier one.

        Raises:
            FraudlakeError: the zip file of the present version is missing.
        """
        version = int(self._log("commits")[-1].name) + 1
        for part in {file.parent for file in self.state.rglob("*.zip")}:
            present = part / f"{version}.zip"
            if not present.exists():
                raise FraudlakeError(f"{self.step}: {present} is missing: restore {self.folder} from a copy")
            with zipfile.ZipFile(present) as archive:
                names = archive.read("metadata").decode()
            for file in [*part.glob("*.*"), *part.glob("SSTs/*.*")]:
                if file.is_file() and file != present and file.name not in names:
                    file.unlink()

    def watermark_milliseconds(self, batch: int | None = None) -> int | None:
        """Return the event-time watermark of a micro-batch, by default the latest, in milliseconds since 1970.

        None if there is no such micro-batch, or if Spark has removed its offsets.
        """
        offsets = [file for file in self._log("offsets") if batch is None or int(file.name) == batch]
        if not offsets:
            return None
        metadata = json.loads(offsets[-1].read_text().splitlines()[1])
        return int(metadata["batchWatermarkMs"])

    def latest_batches(self) -> Iterator[Batch]:
        """Yield the micro-batches that the checkpoint still has, the latest first."""
        for file in reversed(self._log("offsets")):
            try:
                lines = file.read_text().splitlines()
            except FileNotFoundError:  # Spark removes old ones
                return
            commit = self.folder / "commits" / file.name
            millis = json.loads(lines[1])["batchTimestampMs"]
            yield Batch(
                int(file.name),
                datetime.fromtimestamp(millis / 1000, UTC),
                datetime.fromtimestamp(commit.stat().st_mtime, UTC) if commit.exists() else None,
                _versions(lines),
            )

    def last_batch_at(self) -> datetime | None:
        """Return when the latest committed micro-batch began (UTC); None if none was committed.

        The time is Spark's record, since a copy of the lake changes the times of files.
        """
        begun = [self.folder / "offsets" / file.name for file in self._log("commits")[-1:]]
        if not begun or not begun[0].exists():
            return None
        metadata = json.loads(begun[0].read_text().splitlines()[1])
        return datetime.fromtimestamp(metadata["batchTimestampMs"] / 1000, UTC)

    def unread_versions(self) -> dict[str, int]:
        """Return the first version with unread rows, by the id of each Delta table.

        A micro-batch that is not committed counts as unread. Delta's offsets name the version that is being read, or
        the next one if all files of a version are read (seen in Delta 4.4).
        """
        committed = self._log("commits")
        offsets = self.folder / "offsets" / committed[-1].name if committed else next(iter(self._log("offsets")), None)
        versions = _versions(offsets.read_text().splitlines()) if offsets else {}
        # Before the first commit the stream still has to read the initial snapshot, which is the version before.
        return {table: version - (0 if committed else 1) for table, version in versions.items()}

    def _log(self, name: str) -> list[Path]:
        return _numbered(self.folder / name)


def _numbered(folder: Path) -> list[Path]:
    """List the files of a folder whose names are numbers, by number."""
    return sorted((path for path in folder.glob("*") if path.name.isdigit()), key=lambda path: int(path.name))


def _versions(lines: list[str]) -> dict[str, int]:
    """Return the versions of Delta tables that a file of offsets names, by the id of each table."""
    sources = [json.loads(line) for line in lines[2:] if line != "-"]
    return {source["reservoirId"]: source["reservoirVersion"] for source in sources if "reservoirId" in source}


def _corrected(text: str, state: Path) -> str:
    """Return the text of a stateful operator's metadata, with the paths of its schemas moved to a folder of state."""
    version, _, content = text.partition("\n")
    try:
        metadata = json.loads(content)
    except ValueError:
        return text  # Spark will report the error
    here = os.path.normpath(state)  # as Hadoop writes paths: without "..", and without escapes
    for store in metadata.get("stateStoreInfo", ()):
        paths = store.get("stateSchemaFilePaths", ())
        store["stateSchemaFilePaths"] = [_SCHEMA_FILE.sub(lambda parts: parts[1] + here + parts[2], p) for p in paths]
    return text if metadata == json.loads(content) else f"{version}\n{json.dumps(metadata, ensure_ascii=False)}"


def _is_readable(file: Path) -> bool:
    """Return whether a file of Spark's offset or commit log, or its ``metadata``, has the expected format."""
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
