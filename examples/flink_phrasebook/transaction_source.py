"""The unbounded source: transactions without an end, a few in each micro-batch, until the query is stopped.

Translates: ``env.fromSource(TransactionSource.unbounded(), WatermarkStrategy.noWatermarks(), "transactions")``.
Flink: a ``DataGeneratorSource`` maps a counter to a transaction, at a rate.
Spark: the sources ``rate`` (rows a second) and ``rate-micro-batch`` (rows a micro-batch) count; columns make the rest.
Differs: nothing ends the query but ``stop()``; ``rate-micro-batch`` counts on from its checkpoint.
"""

import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program

DOCUMENT = "000"
PHRASES = (
    (
        "`TransactionSource.unbounded()`, `DataGeneratorSource`",
        '`readStream.format("rate-micro-batch")`, then `select`',
        "rows come by micro-batch; `fraudlake simulate` writes realistic ones as files",
    ),
    (
        "`env.fromSource(source, watermarks, name)`",
        "`spark.readStream.format(...).load()`",
        "the watermark is a call of its own, and the name is the query's",
    ),
    (
        "`WatermarkStrategy.noWatermarks()`, `no_watermarks()`",
        "no `withWatermark`",
        "without it, state of event-time windows stays for ever",
    ),
    ("`Transaction` (`getAccountId`, `getAmount`, `timestamp`)", "columns of a DataFrame", "no class is needed"),
    (
        "sources for Kafka, RabbitMQ, Pulsar, Kinesis, Event Hubs",
        "Kafka is part of Spark, and Event Hubs speaks its protocol; Kinesis, Pulsar and Pub/Sub come with Databricks",
        "RabbitMQ has none: relay it to Kafka, or write a `pyspark.sql.datasource.DataSource`",
    ),
)


def transactions(spark: SparkSession, per_batch: int) -> DataFrame:
    """Return the tutorial's ten transactions over and over, a millisecond apart."""
    counter = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch).option("numPartitions", 1)
    samples = F.array(*(F.struct(F.lit(account), F.lit(amount)) for account, _, amount in feed.TRANSACTIONS))
    sample = F.get(samples, F.col("value") % len(feed.TRANSACTIONS))
    return counter.load().select(
        sample["col1"].alias("account_id"), (F.col("value") + 1000).alias("timestamp"), sample["col2"].alias("amount")
    )


def main(spark: SparkSession) -> None:
    """Print the first two micro-batches of a stream that has no last one, and stop it."""
    seen = threading.Semaphore(0)

    def print_batch(batch: DataFrame, number: int) -> None:
        if number < 2:
            print(f"micro-batch {number}")
            console.print_rows(batch.select("timestamp", "account_id", "amount"))
        seen.release()

    query = transactions(spark, per_batch=6).writeStream.foreachBatch(print_batch).start()
    for _ in range(2):
        seen.acquire(timeout=program.PATIENCE)
    query.stop()
    print("stopped")


if __name__ == "__main__":
    program.start(main)
