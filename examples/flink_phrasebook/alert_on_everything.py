"""The detector's first step: an alert for every transaction, from an operator that keeps no state.

Translates: the first ``FraudDetector``, whose ``processElement`` collects an alert and does nothing else.
Flink: ``keyBy(...).process(new FraudDetector())`` calls ``processElement`` for each transaction.
Spark: without state there is nothing to key: a ``select`` makes an alert of each row.
Differs: Spark's optimizer sees the columns, so it reads no others; a Flink function is a black box.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program

DOCUMENT = "000"
PHRASES = (
    (
        "`processElement(transaction, context, collector)`, `process_element` without state",
        "`select` of columns",
        "no call per row; the key is not needed",
    ),
    ("`new Alert()`, `alert.setId(...)`", '`F.format_string("Alert{id=%d}", ...)`', "an alert is a row"),
    ("`Collector.collect(alert)`, `yield`", "a row of the result", "nothing"),
)


def alerts(transactions: DataFrame) -> DataFrame:
    """Return an alert for each transaction."""
    return transactions.select("timestamp", F.format_string("Alert{id=%d}", "account_id"))


def main(spark: SparkSession, folder: Path) -> None:
    """Print an alert for each of the tutorial's ten transactions."""
    transactions = feed.stream(spark, folder / "input", [feed.TRANSACTIONS], feed.TRANSACTION)
    console.print_stream(alerts(transactions), folder / "checkpoint")


if __name__ == "__main__":
    program.start(main)
