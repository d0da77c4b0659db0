"""Streams and tables: a DataFrame is both; SQL sees it by a view's name, and gives a DataFrame back.

Translates: ``from_data_stream``, ``to_append_stream``, ``to_retract_stream``, ``execute_sql`` and ``from_path``.
Flink: two APIs with two environments; each conversion names types, and says how changes are encoded.
Spark: one type for both; ``createOrReplaceTempView`` names it, ``spark.sql`` and ``spark.table`` read it.
Differs: there is no retraction: in mode ``update`` a newer row replaces an older one by its key, in the reader's hands.
"""

from pathlib import Path

from pyspark.sql import SparkSession

from examples import console, feed, program
from examples.flink_phrasebook.keyed_reduce import EVENTS

DOCUMENT = "002"
PHRASES = (
    ("`StreamTableEnvironment.create(env)`", "the same `SparkSession`", "one session for DataFrames and SQL"),
    (
        "`t_env.from_data_stream(ds, 'a, b, c')`, `create_temporary_view`",
        '`frame.toDF("a", "b", "c").createOrReplaceTempView("name")`',
        "a view of a stream is a stream",
    ),
    ("`t_env.from_path('my_source')`", '`spark.table("my_source")`', "nothing"),
    ('`t_env.execute_sql("SELECT ...")`', '`spark.sql("SELECT ...")`', "gives a DataFrame; lazy"),
    (
        "`to_append_stream(table, types)`",
        'the DataFrame, with `outputMode("append")`',
        "refused if rows may change later, as in Flink",
    ),
    (
        "`to_retract_stream(table, types)`",
        'the DataFrame, with `outputMode("update")`; `MERGE` in `foreachBatch` replaces the old row by its key',
        "no rows with a minus sign: a group that vanishes leaves no row",
    ),
    ("a changelog of a table", "Delta's change data feed: `readChangeFeed`", "written by the table, not by the query"),
    ("`t_env.execute()`", "none: each query is started by itself", "nothing to submit"),
    (
        "a DataStream is immutable, and may hold duplicates; one cannot look inside",
        "the same for a DataFrame; a batch can be looked at with `show` and `collect`",
        "nothing",
    ),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Print a stream that went through SQL: once as rows that stay, once as sums that change."""
    events = feed.stream(spark, folder / "input", EVENTS, "user_id STRING, amount INT")
    events.toDF("a", "b").createOrReplaceTempView("events")
    console.print_stream(spark.sql("SELECT a, b * 10 FROM events WHERE b > 4"), folder / "append")
    console.print_stream(spark.sql("SELECT a, sum(b) FROM events GROUP BY a"), folder / "update", "update")
    console.print_rows(spark.createDataFrame([(spark.table("events").isStreaming,)], "is_streaming BOOLEAN"))


if __name__ == "__main__":
    program.start(main)
