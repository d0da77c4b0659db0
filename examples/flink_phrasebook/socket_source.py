"""A source from a socket: lines that are typed into a terminal arrive as rows.

Translates: ``env.socket_text_stream("localhost", 9999)`` and ``nc -lk 9999``.
Flink: one task reads the socket; for trying things out, as nothing can be read again.
Spark: the source ``socket``, on the driver, with the same restriction.
Differs: nothing that matters; neither recovers lines after a failure, so both are for trying things out.
"""

from queue import SimpleQueue

from pyspark.sql import DataFrame, SparkSession

from examples import program
from examples.terminal import Terminal

DOCUMENT = "001"
PHRASES = (
    (
        '`env.socket_text_stream("localhost", 9999)`, `socketTextStream`',
        '`readStream.format("socket").option("host", ...).option("port", ...)`',
        "column `value`; no recovery, in both",
    ),
    ("`nc -lk 9999`", "the same; the examples open a terminal of their own on that port", "nothing"),
)


def main(spark: SparkSession, port: int) -> None:
    """Type two lines, and print each as it arrives."""
    arrived: SimpleQueue[str] = SimpleQueue()

    def take(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            arrived.put(row.value)

    with Terminal(port) as terminal:
        source = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", terminal.port).load()
        query = source.writeStream.foreachBatch(take).start()
        for line in ("hello world", "hello flink"):
            terminal.write(line)
            print(arrived.get(timeout=program.PATIENCE))
        query.stop()


if __name__ == "__main__":
    program.start(main)
