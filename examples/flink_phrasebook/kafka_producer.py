"""JSON to Kafka: rows become messages.

Translates: ``FlinkKafkaProducer`` with ``JsonRowSerializationSchema``, by ``ds.add_sink``.
Flink: the schema turns a row into bytes; ``producer_config`` goes to Kafka's client.
Spark: ``to_json(struct(...))`` makes the column ``value``; options with ``kafka.`` go to Kafka's client.
Differs: null fields are left out of the JSON unless ``ignoreNullFields`` is false.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program
from examples.flink_phrasebook.collection_source import PAIRS

DOCUMENT = "002"
PHRASES = (
    (
        "`FlinkKafkaProducer(topic, schema, producer_config)`, `ds.add_sink(...)`",
        '`writeStream.format("kafka").option("topic", ...)`',
        "at least once",
    ),
    (
        "`JsonRowSerializationSchema.builder().with_type_info(...)`",
        "`F.to_json(F.struct(...))`",
        "field names are the columns'",
    ),
    ("`add_sink` runs in streaming mode only", "`frame.write` writes a batch with the same options", "nothing"),
)

TOPIC = "test_sink_topic"


def main(spark: SparkSession, folder: Path, bootstrap_servers: str) -> None:
    """Write three rows, and print the topic's messages."""
    server = {"kafka.bootstrap.servers": bootstrap_servers}
    pairs = feed.stream(spark, folder / "input", [PAIRS], "id INT, text STRING")
    messages = pairs.select(F.to_json(F.struct("id", "text")).alias("value"))
    sink = messages.writeStream.format("kafka").options(**server).option("topic", TOPIC)
    sink = sink.option("kafka.max.block.ms", 5_000).option("checkpointLocation", str(folder / "checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()

    written = spark.read.format("kafka").options(**server).option("subscribe", TOPIC).load()
    console.print_rows(written.select(F.col("value").cast("string")))


if __name__ == "__main__":
    program.start(main)
