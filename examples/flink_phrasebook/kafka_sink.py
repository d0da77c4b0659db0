"""The Kafka sink: text to a topic, at least once, and how a reader takes each message once.

Translates: ``KafkaSink.builder()`` with a record serializer and ``DeliveryGuarantee.AT_LEAST_ONCE``.
Flink: none, at least once, or exactly once by Kafka's transactions, which end with a checkpoint.
Spark: at least once only: a micro-batch that failed half-way is written again as a whole.
Differs: for exactly once the message needs a key that is derived from the row, by which readers drop repetitions.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program
from examples.flink_phrasebook.collection_source import LINES

DOCUMENT = "001"
PHRASES = (
    (
        "`KafkaSink.builder()...build()`, `stream.sink_to(sink)`",
        '`writeStream.format("kafka")` with a column `value`, perhaps `key` and `headers`',
        "nothing",
    ),
    (
        "`KafkaRecordSerializationSchema`, `set_record_serializer`, `set_value_serialization_schema`",
        "columns `key` and `value`, as text or bytes",
        "`F.to_json` makes JSON of columns",
    ),
    ('`set_topic("output-topic")`', '`option("topic", ...)`, or a column `topic`', "nothing"),
    ("`set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)`", "the only one of Spark's Kafka sink", "nothing"),
    (
        "`DeliveryGuarantee.EXACTLY_ONCE`",
        "none: derive a key from the row, and have readers drop repetitions by it",
        "in Spark a reader can: `dropDuplicatesWithinWatermark`; a Delta sink is exactly once",
    ),
    ("`DeliveryGuarantee.NONE`", '`option("kafka.acks", "0")`', "a repeated micro-batch still writes twice"),
)

TOPIC = "output-topic"


def main(spark: SparkSession, folder: Path, bootstrap_servers: str) -> None:
    """Write three lines under a key of their own, twice, and print each once."""
    server = {"kafka.bootstrap.servers": bootstrap_servers}
    lines = feed.stream(spark, folder / "input", [[(line,) for line in LINES]], "value STRING")
    keyed = lines.select(F.md5("value").alias("key"), "value")
    for attempt in ("first", "again"):  # a lost checkpoint makes a stream write all of it again
        sink = keyed.writeStream.format("kafka").options(**server).option("topic", TOPIC)
        sink = sink.option("kafka.max.block.ms", 5_000).option("checkpointLocation", str(folder / attempt))
        sink.trigger(availableNow=True).start().awaitTermination()

    written = spark.read.format("kafka").options(**server).option("subscribe", TOPIC).load()
    once = written.dropDuplicates(["key"])
    print(f"{written.count() // once.count()} times written, taken once")
    console.print_rows(once.select(F.col("value").cast("string")))


if __name__ == "__main__":
    program.start(main)
