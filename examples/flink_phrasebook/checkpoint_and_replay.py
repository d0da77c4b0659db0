"""Checkpoints and replay: what a checkpoint holds, and a micro-batch that is taken once more.

Translates: checkpoints for fault tolerance: a point in each input, and the state at that point.
Flink: barriers flow with the records, and each operator's state is saved when they pass, every n seconds.
Spark: a micro-batch's offsets are written before it, its state during it, and its commit after it.
Differs: the interval between checkpoints is the micro-batch; a replay takes exactly the rows that were planned.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program
from examples.flink_phrasebook.keyed_reduce import EVENTS

DOCUMENT = "004"
PHRASES = (
    (
        "checkpoint: positions of the inputs and state of the operators",
        "`checkpointLocation`: `offsets/`, `state/`, `commits/`",
        "one checkpoint per query",
    ),
    (
        "stream replay from a checkpoint",
        "the micro-batch with offsets and without a commit is run again",
        "sources must be able to read again: files, Kafka and Delta can, sockets cannot",
    ),
    (
        "checkpoint interval: overhead against recovery time",
        '`trigger(processingTime="10 seconds")`: every micro-batch is a checkpoint',
        "shorter micro-batches cost more commits, and have less to repeat",
    ),
    (
        "exactly-once processing semantics",
        "the same for state; a sink must be idempotent or transactional",
        "Delta and file sinks are",
    ),
    (
        "savepoint",
        "none: the checkpoint stays when a query stops",
        "a changed query can continue only if its state still fits",
    ),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Print running sums; then, as if the process had died before its last commit, those of its repetition."""
    checkpoint = folder / "checkpoint"
    events = feed.stream(spark, folder / "input", EVENTS, "user_id STRING, amount INT")
    sums = events.groupBy("user_id").agg(F.sum("amount"))
    console.print_stream(sums, checkpoint, "update")
    for part in ("offsets", "commits"):
        print(part, *sorted(file.name for file in (checkpoint / part).iterdir() if file.name.isdigit()))

    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    console.print_stream(sums, checkpoint, "update")


if __name__ == "__main__":
    program.start(main)
