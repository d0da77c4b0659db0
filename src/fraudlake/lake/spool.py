"""Spool: rows from Spark's tasks, kept as Arrow files of this machine until one commit of this process takes them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake.lake import Compute


@contextmanager
def spooled(rows: DataFrame, read: Compute, schema: pa.Schema, folder: Path) -> Iterator[pa.RecordBatchReader]:
    """Read rows in Spark's tasks, and give for the length of the block what became of them.

    Handed to this process through Spark they would all have to fit into memory at once, and be turned into Spark's rows
    and back.

    Args:
        rows: what the tasks are given.
        read: turns what a task is given into rows of ``schema``.
        schema: that of the rows that are given out.
        folder: where they are kept; nobody else may use it. What a crash has left there is removed.
    """

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in read(batches):
            path = str(folder / f"{uuid.uuid4()}.arrow")
            with pa.ipc.new_file(path, schema) as file:
                file.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"path": [path]})

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Of a task that Spark has repeated, only the files of the attempt that it goes by.
    paths = [row["path"] for row in rows.mapInArrow(keep, "path STRING").collect()]
    try:
        yield pa.RecordBatchReader.from_batches(schema, (batch for path in paths for batch in _batches(path)))
    finally:
        shutil.rmtree(folder)


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as stored, pa.ipc.open_file(stored) as file:
        for number in range(file.num_record_batches):
            yield file.get_batch(number)
