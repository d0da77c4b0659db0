"""The streaming word count: lines typed into a terminal, and the count of each word so far.

Translates: the complete example with ``Tokenizer``, ``Counter`` and ``counts.print()``.
Flink: each word emits its new count at once: ``(hello,1)``, ``(hello,2)``.
Spark: each micro-batch emits the new counts of the words in it.
Differs: a word that comes twice in a micro-batch is emitted once, with the later count.
"""

from queue import SimpleQueue

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import program
from examples.terminal import Terminal

DOCUMENT = "001"
PHRASES = (
    (
        "`Tokenizer(FlatMapFunction)`: `value.lower().split()`, `(word, 1)`",
        '`F.explode(F.split(F.lower("value"), " "))`',
        "no pair with 1 is needed",
    ),
    ("`Counter(ReduceFunction)`", '`groupBy("word").count()`', "the state is the running count, in both"),
    ('`env.execute("Streaming Word Count")`', '`.outputMode("update").start()`', "`complete` would print all words"),
)

LINES = ("hello world", "Flink rocks", "hello Flink", "to be or not to be")


def main(spark: SparkSession, port: int) -> None:
    """Type four lines, and print the counts after each."""
    changed: SimpleQueue[list[str]] = SimpleQueue()
    with Terminal(port) as terminal:
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", terminal.port).load()
        words = lines.select(F.explode(F.split(F.lower("value"), " ")).alias("word"))
        counts = words.groupBy("word").count().writeStream.outputMode("update")
        query = counts.foreachBatch(
            lambda batch, _: changed.put([f"({row.word},{row['count']})" for row in sorted(batch.collect())])
        ).start()
        for line in LINES:
            terminal.write(line)
            while not (counted := changed.get(timeout=program.PATIENCE)):  # the first micro-batch may have no line yet
                pass
            print(*counted)
        query.stop()


if __name__ == "__main__":
    program.start(main)
