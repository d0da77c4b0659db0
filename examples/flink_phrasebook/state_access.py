"""State access: a running count per key, which changes what becomes of a key's first two rows.

Translates: ``state_access_demo`` with ``MyMapFunction``: the numbers 1 to 10,000 in four keys.
Flink: ``map`` is called for each number, and counts in ``ValueState`` up to two.
Spark: ``handleInputRows`` has all rows of a key, and reads and writes the state once for them.
Differs: a count is read and written once per key and micro-batch, not once per row.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from examples import console, feed, program

DOCUMENT = "002"
PHRASES = (
    (
        "`MyMapFunction(MapFunction)` with `open` and state, after `key_by`",
        "`StatefulProcessor` with `init` and `handleInputRows`",
        "what is simple arithmetic per row becomes arithmetic over the rows of a key",
    ),
    ("`ds.map(lambda a: Row(a % 4, 1))`", '`select((F.col("value") % 4).alias("key"), F.lit(1))`', "nothing"),
    ("`RuntimeContext`", "`StatefulProcessorHandle`", "nothing"),
)


class CountToTwo(StatefulProcessor):
    """Adds 1 to ``number`` in the first two rows of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Register the state."""
        self._count = handle.getValueState("cnt", "cnt LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Process a key's rows of a micro-batch."""
        (count,) = self._count.get() or (0,)
        for frame in rows:
            left = max(2 - count, 0)
            frame.loc[frame.index[:left], "number"] += 1
            count += min(left, len(frame))
            yield frame
        self._count.update((count,))


def main(spark: SparkSession, folder: Path) -> None:
    """Print how many rows of each key have which number, in each of two micro-batches."""
    halves = ([(number,) for number in numbers] for numbers in (range(1, 5001), range(5001, 10001)))
    numbers = feed.stream(spark, folder / "input", list(halves), "value LONG")
    pairs = numbers.select((F.col("value") % 4).alias("key"), F.lit(1).cast("long").alias("number"))
    mapped = pairs.groupBy("key").transformWithStateInPandas(CountToTwo(), "key LONG, number LONG", "Append", "None")
    query = mapped.writeStream.foreachBatch(lambda batch, _: console.print_rows(batch.groupBy("key", "number").count()))
    query.option("checkpointLocation", str(folder / "c")).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    program.start(main)
