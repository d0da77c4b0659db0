"""Version 2 of the fraud detector: a timer on the machine's clock clears the flag after a while.

Translates: the tutorial's next step and the Delta Lake post's ``FraudDetector`` with ``onTimer`` and ``cleanUp``.
Flink: ``registerProcessingTimeTimer`` calls ``onTimer`` once the clock has passed, between two transactions.
Spark: ``registerTimer`` calls ``handleExpiredTimer`` in the next micro-batch after that, after its rows.
Differs: rows of that micro-batch still see the flag, so the flag carries its deadline.
"""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from examples import feed, program
from examples.flink_phrasebook.fraud_detector_flag import LARGE_AMOUNT, SMALL_AMOUNT

DOCUMENT = "000"
PHRASES = (
    (
        "`context.timerService().currentProcessingTime()`",
        "`timerValues.getCurrentProcessingTimeInMs()`",
        "one value for the whole micro-batch",
    ),
    (
        "`registerProcessingTimeTimer`, `deleteProcessingTimeTimer`",
        '`handle.registerTimer(ms)`, `handle.deleteTimer(ms)`, with `timeMode="ProcessingTime"`',
        "the flag's own state holds the time, which Flink's program keeps in a second one (`timer-state`)",
    ),
    (
        "`onTimer(timestamp, ctx, out)`, `OnTimerContext`",
        "`handleExpiredTimer(key, timerValues, expiredTimerInfo)`",
        "runs after the rows of a micro-batch, not between two rows",
    ),
    (
        "`cleanUp`: delete timer and state; `ONE_MINUTE`",
        "the same; or a state that expires by itself: `getValueState(name, schema, ttlDurationMs=60_000)`",
        "with the time-to-live no timer is needed",
    ),
    (
        "event-time timers and callbacks",
        '`timeMode="EventTime"` and `withWatermark`',
        "fraudlake's own detector measures the minute between the transactions: [here](../explanation/from-flink.md)",
    ),
)

WITHIN_MS = 2_000
"""A minute in the document; short here, so that the example does not wait long."""


FIRST: list[feed.Row] = [(1, 1, 0.10), (1, 2, 600.00), (2, 3, 0.20), (3, 4, 0.30)]
TOO_LATE: list[feed.Row] = [(2, 5, 700.00), (4, 6, 0.40), (4, 7, 800.00)]
"""Of account 4, which shows that the stream continues, both are in time."""


class FraudDetector(StatefulProcessor):
    """Alerts for a large transaction shortly after a small one; also reports each flag that its timer cleared."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Register the state."""
        self._handle = handle
        self._deadline = handle.getValueState("flag", "deadline LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Process an account's transactions of a micro-batch."""
        now = timerValues.getCurrentProcessingTimeInMs()
        for transaction in pd.concat(rows).sort_values("timestamp").itertuples():
            state = self._deadline.get()
            if state is not None:
                (deadline,) = state
                if transaction.amount > LARGE_AMOUNT and now < deadline:
                    yield pd.DataFrame({"event": [f"Alert{{id={key[0]}}}"]})
                self._deadline.clear()
                self._handle.deleteTimer(deadline)
            if transaction.amount < SMALL_AMOUNT:
                self._deadline.update((now + WITHIN_MS,))
                self._handle.registerTimer(now + WITHIN_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Clear the flag."""
        self._deadline.clear()
        yield pd.DataFrame({"event": [f"timer: the flag of account {key[0]} is cleared"]})


def main(spark: SparkSession, folder: Path) -> None:
    """Print what comes of small transactions that are followed at once, too late, or never."""
    events: SimpleQueue[str] = SimpleQueue()
    transactions = feed.stream(spark, folder / "input", [FIRST], feed.TRANSACTION)
    detected = transactions.groupBy("account_id").transformWithStateInPandas(
        FraudDetector(), "event STRING", "Append", "ProcessingTime"
    )

    def take(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            events.put(row.event)

    query = detected.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "checkpoint")).start()
    print(events.get(timeout=program.PATIENCE))
    print(*sorted(events.get(timeout=program.PATIENCE) for _ in range(2)), sep="\n")
    feed.land(folder / "input", 1, TOO_LATE, feed.TRANSACTION)
    print(events.get(timeout=program.PATIENCE))
    query.stop()


if __name__ == "__main__":
    program.start(main)
