"""Console: rows, and the micro-batches of a stream, become lines of standard output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def print_rows(frame: DataFrame) -> None:
    """Print each row's values, in ascending order: Spark promises none."""
    for row in sorted(frame.collect()):
        print(*row)


def print_stream(stream: DataFrame, checkpoint: Path, mode: str = "append") -> None:
    """Run a stream over what is there, and print the rows of each micro-batch that has some."""

    def print_batch(batch: DataFrame, number: int) -> None:
        if not batch.isEmpty():
            print(f"micro-batch {number}")
            print_rows(batch)

    query = (
        stream.writeStream.foreachBatch(print_batch)
        .outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
