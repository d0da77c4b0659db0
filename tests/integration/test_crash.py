"""Whatever is killed, and whenever: the next run continues, and the tables hold what an undisturbed run leaves."""

from __future__ import annotations

import contextlib
import csv
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake import open_lake
from fraudlake.lake.delta_rs_writer import DeltaRsWriter
from fraudlake.lake.spark_writer import SparkWriter
from fraudlake.operations.status import status
from fraudlake.settings import Settings
from tests.conftest import FLINK, PROGRAM, SHORT_LIVED, run
from tests.integration import cluster
from tests.integration.cluster import children

pytestmark = [pytest.mark.stream, pytest.mark.timeout(1200)]

PATIENCE = 400
"""Seconds after which a process counts as hung."""

# A logistic regression is learned faster than trees: what is learned is not what is tested.
CHOSEN = {"FRAUDLAKE_MAX_FILES_PER_TRIGGER": "8", "FRAUDLAKE_ALGORITHM": "logistic"}

FRAUDLAKE = str(Path(sys.executable).with_name("fraudlake"))


def in_time_order() -> list[Path]:
    """Flink's finished files of two days by the time of their first row."""
    files = (FLINK / "twodays").glob("part-*")
    return sorted(files, key=lambda file: pc.min(pq.read_table(file, columns=["dt"])["dt"]).as_py())


def land(lake: Path, files: list[Path], begin: int, end: int) -> None:
    """Land some of the files; the file source takes them by modification time, so that is the order of event time."""
    (lake / "landing").mkdir(parents=True, exist_ok=True)
    for at, file in enumerate(files[begin:end], begin):
        shutil.copy(file, lake / "landing" / f".{file.name}")
        os.utime(lake / "landing" / f".{file.name}", (1_700_000_000 + at, 1_700_000_000 + at))
        (lake / "landing" / f".{file.name}").rename(lake / "landing" / file.name)


def start(*command: str) -> subprocess.Popen[str]:
    """Start a command in a separate process group."""
    environment = {**os.environ, **SHORT_LIVED, **CHOSEN}
    return subprocess.Popen(
        command, env=environment, start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for(seen: Callable[[], Any], process: subprocess.Popen[str]) -> None:
    begun = time.monotonic()
    while not seen():
        assert process.poll() is None, f"it ended before it could be killed: {process.communicate()[1][-2000:]}"
        assert time.monotonic() - begun < PATIENCE, "it hung"
        time.sleep(0.005)


def group_ends(process: subprocess.Popen[str]) -> bool:
    """Return whether all processes of the group that a command began end by themselves; workers take a moment."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.2)
    return False


def kill_all(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed_when(lake: Path, file: str, writer: str, *steps: str) -> None:
    """Run some steps in a process, and kill it in the moment in which a file of the lake appears."""
    assert not (lake / file).exists()
    process = start(*PROGRAM[writer], "--lake", str(lake), "run", "--steps", ",".join(steps))
    try:
        wait_for((lake / file).exists, process)
    finally:
        kill_all(process)


class KilledError(Exception):
    """Represents the end of the process."""


@contextlib.contextmanager
def dying_when(lake: Path, file: str) -> Iterator[None]:
    """End a command in this process as a kill ends it: nothing more is written once a file of the lake is there.

    What has been written is what a kill leaves; only the process continues, and with it a Spark that is warm.
    """
    assert not (lake / file).exists()

    def dying(write: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any, **options: Any) -> None:
            die()
            write(*arguments, **options)
            die()

        return call

    def die() -> None:
        if (lake / file).exists():
            raise KilledError("killed")

    with pytest.MonkeyPatch.context() as patch, pytest.raises((FraudlakeError, KilledError), match="killed"):
        for writer, name in itertools.product((DeltaRsWriter, SparkWriter), ("append", "write")):
            patch.setattr(writer, name, dying(getattr(writer, name)))
        yield
    assert (lake / file).exists()


def commit(table: tables.Table, version: int) -> str:
    return f"tables/{table.name}/_delta_log/{version:020d}.json"


def java(process: subprocess.Popen[str]) -> int:
    return next(pid for pid, command in children(process.pid) if "org.apache.spark" in command)


def python_workers(parent: int) -> list[int]:
    """The workers below a process; they are children of a daemon, which is left alone."""
    daemons = [pid for pid, command in children(parent) if "pyspark.daemon" in command]
    return [pid for daemon in daemons for pid, _ in children(daemon)]


def kill_workers_when(seen: Callable[[], bool]) -> None:
    """Kill the workers of this process's Spark as soon as something is seen."""
    deadline = time.monotonic() + PATIENCE
    while not (seen() and python_workers(os.getpid())) and time.monotonic() < deadline:
        time.sleep(0.005)
    for worker in python_workers(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.long
def test_runs_that_are_killed_at_any_point_leave_what_an_undisturbed_run_leaves(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, each_writer: str
) -> None:
    for name, value in CHOSEN.items():
        monkeypatch.setenv(name, value)
    root, files = tmp_path / "lake", in_time_order()

    land(root, files, 0, 17)
    with dying_when(root, commit(tables.BRONZE_TRANSACTIONS, 2)):
        run(root, "ingest")
    run(root, "ingest")
    with dying_when(root, commit(tables.SILVER_TRANSACTIONS, 1)):
        run(root, "refine")
    land(root, files, 17, 33)
    killed_when(root, commit(tables.SILVER_ALERTS, 1), each_writer, "ingest", "refine", "detect")
    land(root, files, 33, len(files))
    # What was cut continues in this process, which is warm.
    run(root, "ingest")
    run(root, "refine")
    with dying_when(root, "checkpoints/detect/offsets/1"):
        run(root, "detect")
    for step in ("detect", "aggregate", "train"):
        run(root, step)
    with dying_when(root, commit(tables.GOLD_FRAUD_PREDICTIONS, 1)):
        run(root, "score")
    run(root, "run")

    lake = open_lake(Settings(lake=root))
    found = status(lake)
    rows = found.rows
    assert (found.source.landed, rows.bronze, rows.silver, rows.quarantine) == (50_000, 50_000, 50_000, 0)
    assert (found.model.predictions, found.gaps) == (50_000, [])
    places = lake.read(tables.BRONZE_TRANSACTIONS).select("_source_file", "_source_row").distinct()
    ids = lake.read(tables.SILVER_TRANSACTIONS).select("transaction_id").distinct()
    scored = lake.read(tables.GOLD_FRAUD_PREDICTIONS).select("transaction_id").distinct()
    assert (places.count(), ids.count(), scored.count()) == (50_000, 50_000, 50_000)

    with (FLINK / "json" / "twodays_alerts.csv").open() as file:
        flink = {(row["accountId"], int(row["ts_ms"]), float(row["amount"])) for row in csv.DictReader(file)}
    alerts = lake.spark.sql("SELECT account_id, unix_millis(timestamp), amount FROM silver_alerts").collect()
    assert len(alerts) == 2773
    assert {tuple(row) for row in alerts} == flink


def test_a_command_whose_jvm_is_killed_ends_with_one_line_and_the_next_one_goes_on(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    land(root, in_time_order(), 0, 41)
    process = start(FRAUDLAKE, "--lake", str(root), "ingest")
    wait_for((root / commit(tables.BRONZE_TRANSACTIONS, 2)).exists, process)
    os.kill(java(process), signal.SIGKILL)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert printed == ""
    assert errors.count("\n") == 1, errors
    assert "the Spark process ended" in errors

    run(root, "ingest")
    assert_bronze_is_whole(root)


@pytest.mark.long
def test_a_run_that_a_signal_stops_never_succeeds_and_the_next_one_goes_on(spark: Any, tmp_path: Path) -> None:
    root, files = tmp_path / "lake", in_time_order()[:12]
    land(root, files, 0, len(files))
    program = (sys.executable, "-m", "fraudlake_cli", "--lake", str(root))

    process = start(*program, "--json", "run")
    wait_for(lambda: any("org.apache.spark" in command for _, command in children(process.pid)), process)
    process.send_signal(signal.SIGTERM)  # as a scheduler does
    printed, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (143, "")
    assert errors.startswith("fraudlake: stopped by SIGTERM (starting Spark); done: nothing; left: ingest, refine,")
    assert errors.count("\n") == 1
    assert group_ends(process)

    process = start(*program, "run")
    wait_for((root / "checkpoints" / "refine" / "offsets" / "0").exists, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    printed, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (130, "")
    ingested, line = errors.splitlines()
    assert group_ends(process)
    assert ingested.startswith("✓ ingest")
    assert line.startswith("fraudlake: stopped by SIGINT (refine")
    assert "; done: ingest; left: refine, disputes, detect, aggregate, train, score, optimize; " in line

    run(root, "refine")
    process = start(*program, "detect")
    wait_for((root / "checkpoints" / "detect" / "offsets" / "0").exists, process)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    printed, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (143, "")
    assert errors.endswith("fraudlake: ended at once by SIGTERM; the next run goes on\n")

    run(root, "detect")
    assert_alerts_are_flinks(root, files)
    assert status(open_lake(Settings(lake=root))).gaps == []


@pytest.mark.long
def test_a_python_worker_that_is_killed_doubles_nothing(spark: Any, tmp_path: Path) -> None:
    root, files = tmp_path / "lake", in_time_order()[:12]
    land(root, files, 0, len(files))
    run(root, "ingest")
    run(root, "refine")
    begun = root / "checkpoints" / "detect" / "offsets" / "0"
    killing = threading.Thread(target=kill_workers_when, args=(begun.exists,))
    killing.start()
    # Spark starts another worker, or the task fails and with it the command.
    try:
        run(root, "detect")
    except FraudlakeError as error:
        assert "\n" not in str(error)
    killing.join()

    run(root, "detect")
    assert_alerts_are_flinks(root, files)


@pytest.mark.long
def test_an_executor_that_is_killed_doubles_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state continues in another executor."""
    root, files = tmp_path / "lake", in_time_order()[:12]
    land(root, files, 0, len(files))
    killed = []
    with cluster.running(tmp_path) as started:
        with monkeypatch.context() as patch:
            patch.setenv("FRAUDLAKE_SPARK_MASTER", started.master)
            patch.setenv("FRAUDLAKE_SPARK_OPTIONS", '{"spark.executor.cores": "1", "spark.executor.memory": "600m"}')
            process = start(FRAUDLAKE, "--lake", str(root), "run", "--steps", "ingest,refine,detect")
        for step in ("refine", "detect"):
            checkpoint = root / "checkpoints" / step
            wait_for((checkpoint / "offsets" / "0").exists, process)
            time.sleep(0.5)
            os.kill(started.executors()[0], signal.SIGKILL)
            if not (checkpoint / "commits" / "0").exists():
                killed.append(step)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors[-3000:]
    assert killed == ["refine", "detect"]
    assert_alerts_are_flinks(root, files)


def assert_alerts_are_flinks(root: Path, files: list[Path]) -> None:
    alerts = open_lake(Settings(lake=root)).read(tables.SILVER_ALERTS)
    of_flink = sum(pc.sum(pq.read_table(file, columns=["alert"])["alert"]).as_py() for file in files)
    assert alerts.count() == alerts.select("alert_id").distinct().count() == of_flink


def assert_bronze_is_whole(root: Path) -> None:
    bronze = open_lake(Settings(lake=root)).read(tables.BRONZE_TRANSACTIONS)
    assert bronze.count() == bronze.select("_source_file", "_source_row").distinct().count() == 50_000
