"""The alert sink: each alert becomes a line of the log, at level INFO.

Translates: ``alerts.addSink(new AlertSink()).name("send-alerts")``.
Flink: a ``SinkFunction`` is called for each record, in parallel, on the workers.
Spark: ``foreachBatch`` hands each micro-batch to the driver; ``foreach`` calls a function for each row on the workers.
Differs: a micro-batch that failed half-way is handed over again under the same number, so lines may come twice.
"""

import logging
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from examples import feed, program
from examples.flink_phrasebook.alert_on_everything import alerts

DOCUMENT = "000"
PHRASES = (
    (
        "`alerts.addSink(new AlertSink())`, `SinkFunction`",
        "`writeStream.foreachBatch(function)`, or `foreach` for each row",
        "at least once; the number of the micro-batch tells a repetition",
    ),
    ('`.name("send-alerts")`', '`.queryName("send_alerts")`', "names the query, not the operator"),
    ("log level INFO of the task manager", "`logging` in `foreachBatch`", "logs on the driver"),
    (
        "sinks for Kafka, Cassandra, Kinesis",
        "Kafka and Delta sinks; others in `foreachBatch`, by their batch connectors",
        "at least once, unless the target can tell a repetition",
    ),
)

log = logging.getLogger("AlertSink")


def send(batch: DataFrame, number: int) -> None:
    """Log a micro-batch's alerts in the order of time."""
    for row in batch.orderBy("timestamp").collect():
        log.info("%s", row[1])


def main(spark: SparkSession, folder: Path) -> None:
    """Log the alerts of three transactions."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(levelname)s  %(name)s - %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    transactions = feed.stream(spark, folder / "input", [feed.TRANSACTIONS[:3]], feed.TRANSACTION)
    sink = alerts(transactions).writeStream.queryName("send_alerts").foreachBatch(send)
    sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    log.removeHandler(handler)


if __name__ == "__main__":
    program.start(main)
