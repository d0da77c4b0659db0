"""Levels of abstraction: the same sums by SQL, by a DataFrame, by functions over rows, and by a stateful processor.

Translates: the four levels: SQL, Table API, DataStream and DataSet API, process function.
Flink: the upper two are optimized; the lower two are programs over objects, with state and time in one's own hands.
Spark: SQL and DataFrames give the same plan; functions over Arrow batches and stateful processors are steps within it.
Differs: the levels are one API, so a plan mixes them without conversion.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from examples import feed, plan, program

DOCUMENT = "004"
PHRASES = (
    ("SQL", "`spark.sql(...)`", "nothing"),
    ("Table API: select, project, join, group-by, aggregate", "DataFrame: the same plans as SQL", "nothing"),
    (
        "DataStream API and DataSet API: user-defined transformations",
        "DataFrame with `mapInPandas`, `mapInArrow`, `applyInPandas`",
        "one type for bounded and unbounded data; RDDs are not offered by Spark Connect",
    ),
    (
        "Process Function: events, state, timers",
        "`StatefulProcessor` with `transformWithStateInPandas`",
        "two streams are joined or united before it; it takes one",
    ),
    ("user-defined functions of the Table API", "`F.udf`, `F.pandas_udf`, `F.udtf`", "nothing"),
    ("schema of a table, data types as classes", "schema of a DataFrame", "no classes"),
)


class Sums(StatefulProcessor):
    """Adds up the amounts of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Register the state."""
        self._sum = handle.getValueState("sum", "amount DOUBLE")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Add a micro-batch's rows."""
        (before,) = self._sum.get() or (0.0,)
        total = before + float(sum(frame["amount"].sum() for frame in rows))
        self._sum.update((total,))
        yield pd.DataFrame({"account_id": [key[0]], "amount": [total]})


def added(key: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
    """Add up the rows of a key."""
    return pd.DataFrame({"account_id": [key[0]], "amount": [rows["amount"].sum()]})


def main(spark: SparkSession, folder: Path) -> None:
    """Print the sums of each level; then whether the first two have the same plan."""
    spark.conf.set("spark.sql.adaptive.enabled", False)
    transactions = spark.createDataFrame(feed.TRANSACTIONS, feed.TRANSACTION)
    transactions.createOrReplaceTempView("transactions")
    stream = feed.stream(spark, folder / "input", [feed.TRANSACTIONS], feed.TRANSACTION).groupBy("account_id")
    result = "account_id LONG, amount DOUBLE"
    processed = stream.transformWithStateInPandas(Sums(), result, "Update", "None")
    query = processed.writeStream.format("memory").queryName("sums").outputMode("update")
    query.trigger(availableNow=True).start().awaitTermination()

    levels: dict[str, DataFrame] = {
        "SQL": spark.sql("SELECT account_id, sum(amount) AS amount FROM transactions GROUP BY account_id"),
        "DataFrame": transactions.groupBy("account_id").agg(F.sum("amount").alias("amount")),
        "function": transactions.groupBy("account_id").applyInPandas(added, result),
        "processor": spark.table("sums"),
    }
    for name, frame in levels.items():
        print(f"{name:<10}", *(f"{account}: {amount:.2f}" for account, amount in sorted(frame.collect())))
    print("same plan:", plan.operators(levels["SQL"]) == plan.operators(levels["DataFrame"]))


if __name__ == "__main__":
    program.start(main)
