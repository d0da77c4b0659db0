"""A source from a collection: a list in the program becomes a DataFrame.

Translates: ``env.from_collection([...], type_info=...)``, with and without types.
Flink: a bounded stream of the list's elements; without a type they are pickled bytes.
Spark: a DataFrame of rows; without a schema, types are inferred from the values.
Differs: it is a batch; to be read as a stream, the rows must be in files (``feed.stream`` of the examples).
"""

from pathlib import Path

from pyspark.sql import SparkSession

from examples import console, feed, program

DOCUMENT = "001"
PHRASES = (
    (
        "`env.from_collection([...])`, `fromElements`, `fromCollection`",
        "`spark.createDataFrame([...], schema)`",
        "a batch; a stream from a list is a folder of files",
    ),
    (
        "`type_info=Types.ROW([...])`, `Types.TUPLE([...])`",
        'a schema such as `"id INT, text STRING"`',
        "columns have names",
    ),
    (
        "no `type_info`: `Types.PICKLED_BYTE_ARRAY()`",
        "no schema: types are inferred",
        "a Python object without a column type must be pickled by hand into `BINARY`",
    ),
    ("`Types.INT()`, `LONG()`, `DOUBLE()`, `STRING()`", "`INT`, `LONG`, `DOUBLE`, `STRING`", "nothing"),
    ("`Row(...)`", "`pyspark.sql.Row`, or a tuple", "nothing"),
)

LINES = ["hello world", "flink rocks", "hello flink"]
PAIRS: list[feed.Row] = [(1, "aaa|bb"), (2, "bb|a"), (3, "aaa|a")]


def main(spark: SparkSession, folder: Path) -> None:
    """Print lists of lines and of pairs, as a batch; then the pairs as a stream."""
    console.print_rows(spark.createDataFrame([(line,) for line in LINES], "line STRING"))
    inferred = spark.createDataFrame(PAIRS)
    print(inferred.schema.simpleString())
    console.print_stream(feed.stream(spark, folder / "in", [PAIRS], "id INT, text STRING"), folder / "checkpoint")


if __name__ == "__main__":
    program.start(main)
