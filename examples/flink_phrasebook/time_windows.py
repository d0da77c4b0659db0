"""Time windows: tumbling, sliding and session windows over event time, in a stream.

Translates: windows driven by time: every 10 s, 10 s every 5 s, and until 5 s without an event.
Flink: a window assigner on a keyed stream; a window is emitted when the watermark passes its end.
Spark: ``window`` and ``session_window`` are expressions to group by; ``append`` emits as Flink does.
Differs: Flink ends a bounded stream with an infinite watermark; Spark does not, so the last windows stay open.
"""

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program

DOCUMENT = "004"
PHRASES = (
    (
        "windows scope aggregates over unbounded streams",
        "the same; without a window, an aggregate's state grows with its keys",
        "nothing",
    ),
    ("tumbling window", '`F.window("time", "10 seconds")`', "nothing"),
    ("sliding window", '`F.window("time", "10 seconds", "5 seconds")`', "nothing"),
    (
        "session window (a gap of inactivity)",
        '`F.session_window("time", "5 seconds")`',
        "no output mode `update`",
    ),
    (
        "trigger and evictor of a window",
        "output mode: `append` once it is over, `update` at each change",
        "others by a `StatefulProcessor`",
    ),
    (
        "watermark, allowed lateness",
        '`withWatermark("time", "10 seconds")`',
        "one bound for both; older rows are dropped and counted (`numRowsDroppedByWatermark`)",
    ),
)

EVENTS: list[feed.Row] = [
    ("a", 1, 1),
    ("a", 4, 2),
    ("b", 6, 10),
    ("a", 12, 4),
    ("a", 13, 8),
    ("b", 14, 20),
    ("a", 27, 16),
]
"""Key, second of event time, amount."""


def kinds() -> dict[str, Column]:
    """Return the windows by name."""
    return {
        "tumbling": F.window("time", "10 seconds"),
        "sliding": F.window("time", "10 seconds", "5 seconds"),
        "session": F.session_window("time", "5 seconds"),
    }


def sums(events: DataFrame, window: Column) -> DataFrame:
    """Return ``key, start, end, amount``: the sum of each key and window, with its bounds in seconds."""
    grouped = events.withColumn("time", F.timestamp_seconds("second")).groupBy("key", window.alias("window"))
    bounds = (F.unix_seconds(F.col(f"window.{name}")).alias(name) for name in ("start", "end"))
    return grouped.agg(F.sum("amount").alias("amount")).select("key", *bounds, "amount")


def main(spark: SparkSession, folder: Path) -> None:
    """Print the sums of all windows of a stream, also of those that are still open."""
    for name, window in kinds().items():
        print(name)
        events = feed.stream(spark, folder / name, [EVENTS], "key STRING, second LONG, amount LONG")
        console.print_stream(sums(events, window), folder / f"{name}-checkpoint", "complete")


if __name__ == "__main__":
    program.start(main)
