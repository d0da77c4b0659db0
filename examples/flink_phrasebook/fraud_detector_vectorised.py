"""fraudlake's own detector on the tutorial's transactions: the same alerts, without a call per row or account.

Translates: the tutorial's ``FraudDetector``, as ``fraudlake detect`` runs it.
Flink: a call for each row; the JVM makes that cheap, PyFlink pays for each.
Spark: accounts share buckets, a bucket's rows travel as Arrow arrays, and a rule compares neighbours in sorted arrays.
Differs: the minute is between the transactions' own timestamps, so that a backfill alerts as the live stream did.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program
from fraudlake import settings
from fraudlake.detection import alerts, detector_stream

DOCUMENT = "000"
PHRASES = (
    (
        "the tutorial's fraud detection job as a whole",
        "`fraudlake detect`",
        "[here](../explanation/from-flink.md); 40 times as fast as a call per account (measured on two cores)",
    ),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Print the alerts with both transactions."""
    transactions = feed.stream(spark, folder / "input", [feed.TRANSACTIONS], feed.TRANSACTION)
    silver = transactions.select(
        F.format_string("row-%d", "timestamp").alias("transaction_id"),
        F.col("account_id").cast("string"),
        F.timestamp_millis("timestamp").alias("timestamp"),
        "amount",
        F.lit(None).cast("boolean").alias("label"),
        F.lit("tutorial").alias("source"),
        F.col("timestamp").alias("position"),
    )
    output = alerts.alerts(detector_stream.detector_output(silver, settings.load(buckets=2)))
    small = F.col("evidence")[0]
    seconds = F.col("measures")["seconds_between"]
    shown = output.select("timestamp", "account_id", small["amount"], "amount", seconds)
    console.print_stream(shown, folder / "checkpoint")


if __name__ == "__main__":
    program.start(main)
