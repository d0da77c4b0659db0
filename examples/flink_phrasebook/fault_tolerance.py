"""Fault tolerance: the process is killed between a write and its commit, and another one continues from there.

Translates: what the tutorial promises of ``ValueState``: a flag survives a failure, and no alert is lost.
Flink: the job manager restarts the job from the last checkpoint: state and positions of the sources.
Spark: a query that is started on the same checkpoint repeats the micro-batch that was not committed, with its rows.
Differs: starting again is left to a supervisor (a job's retries); the micro-batch takes the place of the barrier.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from examples import catalogue, console, feed, program
from examples.flink_phrasebook.fraud_detector_flag import FraudDetector
from fraudlake import settings
from fraudlake.errors import FraudlakeError
from fraudlake.lake import session

DOCUMENT = "000"
PHRASES = (
    (
        "managed state survives a failure",
        "the state store is part of the checkpoint",
        "nothing",
    ),
    (
        "restart strategy, restart from the last checkpoint",
        "start the query again on its `checkpointLocation`; retries of the job",
        "Spark repeats a failed task by itself, but a failed query only by a new start",
    ),
    (
        "exactly-once sink",
        "`foreachBatch` that replaces what it wrote under the same number; Delta with `txnAppId`, `txnVersion`",
        "if the target skips a repetition, read its rows anyway (`persist`, `count`): a stateful query whose "
        "rows nobody reads fails with `STATE_STORE_COMMIT_VALIDATION_FAILED` (seen in Spark 4.2)",
    ),
)

MODULE = "examples.flink_phrasebook.fault_tolerance"


def start(spark: SparkSession, folder: Path, is_stuck: bool) -> None:
    """Run the detector from ``input`` to a folder per micro-batch; a stuck one never ends its second micro-batch."""

    def write(batch: DataFrame, number: int) -> None:
        print(f"micro-batch {number}")
        batch.write.mode("overwrite").json(str(folder / f"alerts/{number}"))
        if is_stuck and number == 1:
            (folder / "written").touch()
            time.sleep(program.PATIENCE)

    alerts = (
        feed.stream(spark, folder / "input", [], feed.TRANSACTION)
        .groupBy("account_id")
        .transformWithStateInPandas(FraudDetector(), "timestamp LONG, alert STRING", "Append", "None")
    )
    query = alerts.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def run_stuck(folder: Path) -> None:
    """Run the detector until somebody kills this process."""
    start(session.start(settings.load(lake=folder, shuffle_partitions=2), folder / "stuck.log"), folder, is_stuck=True)


def main(spark: SparkSession, folder: Path) -> None:
    """Kill the detector after a write; then print what the next one repeats, and the alerts."""
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    feed.stream(spark, folder / "input", [feed.TRANSACTIONS[:7], feed.TRANSACTIONS[7:]], feed.TRANSACTION)
    code = f"from pathlib import Path; from {MODULE} import run_stuck; run_stuck(Path({str(folder)!r}))"
    child = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", code], cwd=catalogue.ROOT, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + program.PATIENCE
        while not (folder / "written").exists():
            if child.poll() is not None or time.monotonic() > deadline:
                raise FraudlakeError("the second Spark process wrote nothing: is there memory for it?")
            time.sleep(0.1)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    print("killed in micro-batch 1, behind its write")
    start(spark, folder, is_stuck=False)
    console.print_rows(spark.read.json(str(folder / "alerts/*")).select("timestamp", "alert"))


if __name__ == "__main__":
    program.start(main)
