"""A source from Kafka: a topic from its beginning, the value as text.

Translates: ``KafkaSource.builder()`` with servers, topic, group, starting offsets and ``SimpleStringSchema``.
Flink: the builder names a deserializer; offsets are in Flink's checkpoint, and committed to Kafka for information.
Spark: options name the same things, and ``cast("string")`` deserializes; offsets are in Spark's checkpoint.
Differs: ``kafka.group.id`` is for rights and quotas only: nothing is committed to the group.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, program

DOCUMENT = "001"
PHRASES = (
    ("`KafkaSource.builder()...build()`", '`readStream.format("kafka")`', "nothing"),
    ("`set_bootstrap_servers`", '`option("kafka.bootstrap.servers", ...)`', "nothing"),
    ('`set_topics("events")`', '`option("subscribe", "events")`, or `subscribePattern`', "nothing"),
    (
        '`set_group_id("flink-consumer")`',
        '`option("kafka.group.id", ...)`',
        "offsets are never committed to the group",
    ),
    (
        "`set_starting_offsets(KafkaOffsetsInitializer.earliest())`",
        '`option("startingOffsets", "earliest")`',
        "counts only for a new checkpoint; Spark's default is `latest` for streams",
    ),
    (
        "`set_value_only_deserializer(SimpleStringSchema())`",
        '`F.col("value").cast("string")`',
        "key, topic, partition, offset and timestamp are further columns",
    ),
)

TOPIC = "events"


def main(spark: SparkSession, folder: Path, bootstrap_servers: str) -> None:
    """Write three messages, and print what the topic holds."""
    server = {"kafka.bootstrap.servers": bootstrap_servers}
    messages = spark.createDataFrame([("hello world",), ("flink rocks",), ("hello flink",)], "value STRING")
    messages.write.format("kafka").options(**server).option("topic", TOPIC).option("kafka.max.block.ms", 5_000).save()

    events = (
        spark.readStream.format("kafka")
        .options(**server)
        .option("subscribe", TOPIC)
        .option("kafka.group.id", "fraudlake-example")
        .option("startingOffsets", "earliest")
        .load()
        .select(F.col("value").cast("string"))
    )
    console.print_stream(events, folder / "checkpoint")


if __name__ == "__main__":
    program.start(main)
