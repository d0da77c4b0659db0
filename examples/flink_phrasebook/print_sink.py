"""The print sink: rows on the console, for looking at a stream.

Translates: ``stream.print()``, ``ds.print()`` and ``alerts.print()``.
Flink: each record is a line on the standard output of the task manager that has it.
Spark: the sink ``console`` prints each micro-batch as a table, on the driver's JVM; ``show`` prints in Python.
Differs: fraudlake sends the JVM's output to Spark's log, so ``foreachBatch`` with ``show`` is what one sees.
"""

from pathlib import Path

from pyspark.sql import SparkSession

from examples import feed, program
from examples.flink_phrasebook.collection_source import PAIRS

DOCUMENT = "001"
PHRASES = (
    (
        "`stream.print()`, `ds.print()`, `alerts.print()`",
        "`foreachBatch(lambda batch, number: batch.show())`, or the sink `console`",
        "prints on the driver, not on the workers; `show` prints 20 rows by default",
    ),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Print a micro-batch."""
    pairs = feed.stream(spark, folder / "input", [PAIRS], "id INT, text STRING").coalesce(1)
    printed = pairs.writeStream.foreachBatch(lambda batch, _: batch.show(truncate=False))
    printed.option("checkpointLocation", str(folder / "c")).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    program.start(main)
