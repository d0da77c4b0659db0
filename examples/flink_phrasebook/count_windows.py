"""Count windows: a sum for every three events of a key.

Translates: windows driven by data: every 100 elements.
Flink: ``countWindow(n)`` on a keyed stream; the rest of a key, fewer than n, is never emitted.
Spark: no such window in a stream; a ``StatefulProcessor`` keeps count and sum, and emits at n.
Differs: the order decides which events share a window, so the processor sorts a micro-batch's rows by time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from examples import console, feed, program
from examples.flink_phrasebook.time_windows import EVENTS

DOCUMENT = "004"
PHRASES = (
    (
        "count window (every 100 elements), `countWindow(n)`",
        "none: a `StatefulProcessor`; in a batch `F.row_number` over a window, divided by n",
        "`gold_alert_windows` of fraudlake has count windows, too",
    ),
)

SIZE = 3


class CountWindow(StatefulProcessor):
    """Adds up every three amounts of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Register the state."""
        self._open = handle.getValueState("open", "count LONG, amount LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Process a key's rows of a micro-batch."""
        count, total = self._open.get() or (0, 0)
        for event in pd.concat(rows).sort_values("second").itertuples():
            count, total = count + 1, total + int(event.amount)
            if count == SIZE:
                yield pd.DataFrame({"key": [key[0]], "amount": [total]})
                count, total = 0, 0
        self._open.update((count, total))


def main(spark: SparkSession, folder: Path) -> None:
    """Print the sum that is complete; the second micro-batch continues where the first one ended."""
    columns = "key STRING, second LONG, amount LONG"
    keyed = feed.stream(spark, folder / "input", [EVENTS[:3], EVENTS[3:]], columns).groupBy("key")
    windows = keyed.transformWithStateInPandas(CountWindow(), "key STRING, amount LONG", "Append", "None")
    console.print_stream(windows, folder / "checkpoint")


if __name__ == "__main__":
    program.start(main)
