"""File: writes events as JSON lines; a file gets its final name once it is complete."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake.delivery import event
from fraudlake.delivery.destination import Destination, required
from fraudlake.delivery.event import Event
from fraudlake.delivery.sink import Outcome, Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fraudlake.lake import Lake
    from fraudlake.settings import Settings

MOST_LINES = 10_000
"""Most lines of a file; a larger micro-batch has several files."""


class FileSink:
    """Writes ``alerts-NAME-PART.jsonl`` into a folder of this machine; a repetition writes the same files again.

    Args:
        folder: the folder; it is created if necessary.
    """

    def __init__(self, folder: Path) -> None:
        """Write to the folder."""
        self._folder = folder

    def send(self, events: Sequence[Event], name: str) -> list[Outcome]:
        """Write files; each gets its final name once it is on the disk."""
        for part, start in enumerate(range(0, len(events), MOST_LINES)):
            lines = [event.as_json(one) for one in events[start : start + MOST_LINES]]
            self._write(f"alerts-{name}-{part:04}.jsonl", lines)
        return [Outcome(1)] * len(events)

    def _write(self, name: str, lines: list[str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".{name}.tmp"
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._folder / name)


class VolumeSink:
    """Writes a folder ``alerts-NAME`` of text files into a volume; a repetition writes the same folder again.

    Spark writes it, and renames its files once all are written: the micro-batch's own process needs no access to the
    volume.

    Args:
        folder: the folder, ``/Volumes/…``.
        spark: the session of the micro-batch.
    """

    def __init__(self, folder: str, spark: SparkSession) -> None:
        """Write to the folder."""
        self._folder = folder
        self._spark = spark

    def send(self, events: Sequence[Event], name: str) -> list[Outcome]:
        """Write a folder."""
        import pyarrow as pa

        lines = self._spark.createDataFrame(pa.table({"value": [event.as_json(one) for one in events]}))
        lines.coalesce(1).write.mode("overwrite").text(f"{self._folder}/alerts-{name}")
        return [Outcome(1)] * len(events)


def sink(settings: Settings, lake: Lake) -> Sink:
    """Return the sink of a folder."""
    folder = required(settings.delivery_folder, "delivery_folder")
    return VolumeSink(folder, lake.session) if lake.is_in_workspace else FileSink(Path(folder).absolute())


# The folder is a shared setting, since `forget` searches it, too.
DESTINATION = Destination("file", sink, shared=("delivery_folder",))
