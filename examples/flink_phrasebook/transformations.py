"""The core transformations: map, filter and flatMap, as columns and as Python functions.

Translates: ``stream.map``, ``stream.filter`` and ``stream.flat_map`` with their lambdas.
Flink: a function for each element, in Java or in a Python process.
Spark: expressions over columns, which the optimizer understands; or a Python function over batches of rows.
Differs: an expression runs in the JVM; a Python function costs the way to Python and back, for whole batches at once.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, program
from examples.flink_phrasebook.collection_source import LINES

DOCUMENT = "001"
PHRASES = (
    ("`stream.map(lambda s: len(s))`, `MapFunction`", '`select(F.length("line"))`', "nothing"),
    ("`stream.filter(lambda s: len(s) > 5)`", '`where(F.length("line") > 5)`', "nothing"),
    (
        "`stream.flat_map(...)`, `FlatMapFunction`, `out.collect`",
        '`select(F.explode(F.split("line", " ")))`',
        "a row for each element of an array",
    ),
    (
        "any Python function in `map`, `filter`, `flat_map`",
        "`mapInArrow` or `mapInPandas`: batches of rows in, batches of rows out",
        "the optimizer cannot look into it, in either system",
    ),
    ("`output_type=Types...`", "the schema given to `mapInArrow`", "not needed for expressions"),
    ("`ds.map(lambda a: a + 1)`", '`select(F.col("a") + 1)`', "nothing"),
)


def words(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split each line into its words, in Python."""
    for batch in batches:
        words = [word for line in batch.column("line").to_pylist() for word in line.split()]
        yield pa.RecordBatch.from_pydict({"word": words})


def main(spark: SparkSession) -> None:
    """Print lengths, longer words, all words, and all words once more by a Python function."""
    lines = spark.createDataFrame([(line,) for line in LINES], "line STRING")
    console.print_rows(lines.select("line", F.length("line")))
    split = lines.select(F.explode(F.split("line", " ")).alias("word"))
    console.print_rows(split.where(F.length("word") >= 5).distinct())
    same = lines.mapInArrow(words, "word STRING")
    print("the same words in Python:", sorted(split.collect()) == sorted(same.collect()))


if __name__ == "__main__":
    program.start(main)
