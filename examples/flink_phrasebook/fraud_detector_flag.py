"""Version 1 of the fraud detector: a flag in ``ValueState``, set by a small transaction, read by the next one.

Translates: the tutorial's ``FraudDetector``, Java and Python, and its ten sample transactions.
Flink: ``processElement`` is called for each transaction of a key, in the order of arrival.
Spark: ``handleInputRows`` is called for each key of a micro-batch, with all of its rows.
Differs: those rows come in no promised order, so the processor sorts them by time; only then is "next" well defined.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from examples import console, feed, program

DOCUMENT = "000"
PHRASES = (
    (
        "`KeyedProcessFunction<Long, Transaction, Alert>`",
        "`StatefulProcessor` with `transformWithStateInPandas`",
        "one call for the rows of a key and micro-batch, not one for each row",
    ),
    ("`keyBy(Transaction::getAccountId)`, keyed context", '`groupBy("account_id")`', "nothing"),
    (
        "`.process(new FraudDetector())`",
        '`.transformWithStateInPandas(FraudDetector(), schema, "Append", "None")`',
        "the result's columns, output mode and notion of time are named",
    ),
    (
        "`open(OpenContext)`, `open(runtime_context)`, `open(Configuration)`",
        "`init(handle)`",
        "nothing",
    ),
    (
        "`ValueStateDescriptor`, `getRuntimeContext().getState(...)`, `runtime_context.get_state`",
        '`handle.getValueState("flag", "is_small BOOLEAN")`',
        "the descriptor is a name and columns",
    ),
    (
        "`ValueState.value()`, `update()`, `clear()`; an empty state is null",
        "`get()`, `update((value,))`, `clear()`; an empty state is None, and `exists()` is false",
        "values are rows; as in Flink, only `update` changes the state",
    ),
    (
        "`Types.BOOLEAN`, `Types.LONG`",
        "column types: `BOOLEAN`, `LONG`",
        "nothing",
    ),
    (
        "a member variable is shared by all keys and lost with the process",
        "the same: an attribute of a `StatefulProcessor` is not state",
        "nothing",
    ),
    (
        "`serialVersionUID`, `transient`, `@transient`",
        "the processor is pickled; state is opened in `init`, not in `__init__`",
        "nothing to declare",
    ),
)

SMALL_AMOUNT = 1.00
LARGE_AMOUNT = 500.00


class FraudDetector(StatefulProcessor):
    """Alerts for a large transaction whose predecessor in the account was small."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Register the state."""
        self._flag = handle.getValueState("flag", "is_small BOOLEAN")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Process an account's transactions of a micro-batch."""
        for transaction in pd.concat(rows).sort_values("timestamp").itertuples():
            if self._flag.exists():
                if transaction.amount > LARGE_AMOUNT:
                    yield pd.DataFrame({"timestamp": [transaction.timestamp], "alert": [f"Alert{{id={key[0]}}}"]})
                self._flag.clear()
            if transaction.amount < SMALL_AMOUNT:
                self._flag.update((True,))


def main(spark: SparkSession, folder: Path) -> None:
    """Print the alerts of the tutorial's transactions, cut into two micro-batches between a small and a large one."""
    batches = [feed.TRANSACTIONS[:7], feed.TRANSACTIONS[7:]]
    transactions = feed.stream(spark, folder / "input", batches, feed.TRANSACTION)
    alerts = transactions.groupBy("account_id").transformWithStateInPandas(
        FraudDetector(), "timestamp LONG, alert STRING", "Append", "None"
    )
    console.print_stream(alerts, folder / "checkpoint")


if __name__ == "__main__":
    program.start(main)
