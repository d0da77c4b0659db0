"""Spool: Spark's tasks write rows to local Arrow files, which this process reads for one commit."""

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

    from fraudlake.lake.writer import Compute


@contextmanager
def spooled(
    rows: DataFrame, compute: Compute | None, schema: pa.Schema, folder: Path
) -> Iterator[pa.RecordBatchReader | None]:
    """Compute rows in Spark's tasks, and return them for the length of the block; None if there are none.

    Through ``collect``, all results would have to fit into memory together, and be converted to Spark's rows and back.

    Args:
        rows: the input.
        compute: turns the batches of a task into batches of ``schema``; None if they have its columns.
        schema: the results' schema.
        folder: the folder of the Arrow files, for this use only. Files that a crash has left there are removed.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in compute(batches) if compute else batches:
            path = str(folder / f"{uuid.uuid4()}.arrow")
            with pa.ipc.new_file(path, schema) as file:
                file.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            yield pa.RecordBatch.from_pydict({"path": [path]})

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # If Spark has repeated a task, these are only the files of the successful attempt.
    paths = [row["path"] for row in rows.mapInArrow(write, "path STRING").collect()]
    try:
        batches = (batch for path in paths for batch in _batches(path))
        yield pa.RecordBatchReader.from_batches(schema, batches) if paths else None
    finally:
        shutil.rmtree(folder)


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as memory, pa.ipc.open_file(memory) as file:
        for number in range(file.num_record_batches):
            yield file.get_batch(number)
