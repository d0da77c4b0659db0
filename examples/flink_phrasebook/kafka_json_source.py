"""JSON from Kafka: a message becomes a row with types; one that cannot be read is null, and the stream continues.

Translates: ``FlinkKafkaConsumer`` with ``JsonRowDeserializationSchema``, by ``add_source``.
Flink: a message that is no JSON ends the job, unless errors are ignored.
Spark: ``from_json`` gives null for it; the text is still there, to be set aside.
Differs: nothing is lost by default; fraudlake keeps such messages in quarantine with the reason.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, program

DOCUMENT = "002"
PHRASES = (
    (
        "`FlinkKafkaConsumer(topics, schema, properties)`, `env.add_source(...)`, `addSource`",
        '`readStream.format("kafka")`',
        "Flink's is the old interface, `KafkaSource` the new one; Spark has this one",
    ),
    (
        "`JsonRowDeserializationSchema.builder().type_info(...)`",
        '`F.from_json(F.col("value").cast("string"), schema)`',
        "null instead of an error; `mode` `FAILFAST` raises",
    ),
    (
        "`properties={'bootstrap.servers': ..., 'group.id': ...}`",
        "options with the prefix `kafka.`",
        "nothing",
    ),
    ("`add_source` runs in streaming mode only", "`spark.read` reads the same topic as a batch", "nothing"),
)

TOPIC = "test_source_topic"


def main(spark: SparkSession, folder: Path, bootstrap_servers: str) -> None:
    """Write two messages and a broken one, and print the rows."""
    server = {"kafka.bootstrap.servers": bootstrap_servers}
    messages = [('{"id": 1, "text": "hi"}',), ('{"id": 2, "text": "hello"}',), ("no JSON",)]
    written = spark.createDataFrame(messages, "value STRING").write.format("kafka").options(**server)
    written.option("topic", TOPIC).option("kafka.max.block.ms", 5_000).save()

    values = spark.readStream.format("kafka").options(**server).option("subscribe", TOPIC)
    text = values.option("startingOffsets", "earliest").load().select(F.col("value").cast("string"))
    rows = text.select(F.from_json("value", "id INT, text STRING").alias("row"), "value")
    shown = rows.select(
        F.coalesce("row.id", F.lit(-1)), F.coalesce("row.text", F.concat(F.lit("unreadable: "), "value"))
    )
    console.print_stream(shown, folder / "checkpoint")


if __name__ == "__main__":
    program.start(main)
