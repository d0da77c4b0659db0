"""Signals: a command stops at its next safe point, and at once at a second signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from fraudlake.bronze import parquet
from fraudlake.lake import conflict
from fraudlake.process import stop
from fraudlake_cli.output.progress import console, planned, timed
from tests.conftest import FraudlakeHere


def kill(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)


@pytest.mark.parametrize(("number", "name", "code"), [(signal.SIGINT, "SIGINT", 130), (signal.SIGTERM, "SIGTERM", 143)])
def test_a_signal_stops_what_runs(number: int, name: str, code: int) -> None:
    before = signal.getsignal(number)
    with (
        pytest.raises(stop.StoppedError, match=f"stopped by {name}; what is committed stays") as stopped,
        stop.handled(),
    ):
        kill(number)
    assert stopped.value.exit_code == code
    assert signal.getsignal(number) == before
    assert not stop.is_requested()


def test_what_handles_failures_does_not_handle_a_stop() -> None:
    with pytest.raises(stop.StoppedError), stop.handled():
        try:
            kill()
        except Exception:
            pytest.fail("it was taken for a failure")


def test_a_deferred_block_comes_to_its_own_end() -> None:
    with stop.handled():
        with stop.deferred():
            assert not stop.is_requested()
            kill()
            assert stop.is_requested()
        with pytest.raises(stop.StoppedError):
            stop.check()


def test_what_fails_after_a_signal_fails_because_of_it() -> None:
    with pytest.raises(ZeroDivisionError), stop.handled(), stop.failing():
        raise ZeroDivisionError
    with pytest.raises(stop.StoppedError), stop.handled(), stop.failing(), stop.deferred():
        kill()
        raise ZeroDivisionError


def test_the_same_signal_that_comes_twice_at_once_is_one() -> None:
    """As ``timeout`` sends it: to the process, and to the process's group."""
    with stop.handled(), pytest.raises(stop.StoppedError):
        try:
            kill()
        finally:
            kill()
            is_cleaned_up = True
    assert is_cleaned_up


def test_a_second_signal_does_not_wait_for_a_deferred_block() -> None:
    with pytest.raises(stop.StoppedError), stop.handled(), stop.deferred():
        kill()
        time.sleep(0.3)
        kill()
        pytest.fail("it waited")


def test_a_write_that_met_a_conflict_is_not_tried_again_after_a_signal() -> None:
    tries = []

    def write() -> None:
        tries.append(1)
        raise RuntimeError("DELTA_CONCURRENT_APPEND")

    with pytest.raises(stop.StoppedError), stop.handled():
        with stop.deferred():
            kill()
        conflict.retried(write)
    assert len(tries) == 1


def test_only_the_main_thread_handles_signals() -> None:
    """A notebook's job may run in another one."""
    before, handlers = signal.getsignal(signal.SIGTERM), []

    def run() -> None:
        with stop.handled(is_program=True), stop.deferred(), stop.restore_handlers(lambda: None):
            handlers.append(signal.getsignal(signal.SIGTERM))
        stop.check()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [before]


def test_spark_does_not_take_sigint_for_itself() -> None:
    interrupted: list[int] = []
    with pytest.raises(stop.StoppedError), stop.handled():
        with stop.restore_handlers(lambda: interrupted.append(1)):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        kill(signal.SIGINT)
    assert interrupted == [1]
    with (
        pytest.raises(stop.StoppedError, match=r"SIGINT \(starting Spark\)"),
        stop.handled(),
        stop.restore_handlers(lambda: None),
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        kill(signal.SIGINT)


def test_the_line_says_what_is_done_and_what_is_left() -> None:
    with pytest.raises(stop.StoppedError) as stopped, stop.handled(), planned("ingest", "refine", "detect") as is_done:
        is_done()
        with timed("refine") as report:
            report.update("refine", 1000, 2)
            kill()
    assert str(stopped.value) == (
        "stopped by SIGTERM (refine: 1,000 rows, 2 micro-batches); done: ingest; left: refine, detect; "
        "what is committed stays, and the same command does the rest"
    )


def test_what_fails_since_java_got_the_signal_too_is_a_stop() -> None:
    with pytest.raises(stop.StoppedError, match=r"SIGTERM \(optimize\)"), stop.handled(), console.status("optimize"):
        with stop.deferred():
            kill()
        raise ConnectionError


def test_nothing_begins_after_a_signal() -> None:
    with pytest.raises(stop.StoppedError), stop.handled():
        with stop.deferred():
            kill()
        with console.status("train"):
            pytest.fail("it began")


def test_a_simulation_that_is_stopped_says_what_has_landed(
    fraudlake_here: FraudlakeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_own = parquet.write_own

    def write(rows: pa.Table, path: Path) -> None:
        write_own(rows, path)
        if "-2.parquet" in path.name:
            kill(signal.SIGINT)

    monkeypatch.setattr(parquet, "write_own", write)
    ended = fraudlake_here("--json", "simulate", "--file-rows", "100", "--fast")
    assert ended.returncode == 130
    assert json.loads(ended.stdout) == {"landing": "lake/landing", "rows": 200}
    assert ended.stderr.count("\n") == 1
    assert "stopped by SIGINT (simulate: 200 rows); all landed files are complete" in ended.stderr
    assert len(list(Path("lake/landing").iterdir())) == 2


BUSY = """
import hashlib, os, threading
from fraudlake.process import stop
with stop.handled(is_program=True):
    threading.Timer(0.5, os.close, [1]).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000_000)  # Python's main thread sees no signal for an hour
"""


def test_a_second_signal_ends_the_process_whatever_it_does() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as busy:
        assert busy.stdout is not None
        busy.stdout.read()
        busy.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            busy.wait(0.5)
        busy.send_signal(signal.SIGINT)
        assert busy.wait(60) == 130
        assert busy.stderr is not None
        assert busy.stderr.read() == "fraudlake: ended at once by SIGINT; the next run goes on\n"


def test_a_signal_while_the_program_is_loaded_ends_it_with_one_line() -> None:
    """Also where SIGINT was ignored, as in a background job of a shell."""
    code = (
        "import os, signal, sys, threading; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "sys.addaudithook(lambda event, args: event == 'import' and args[0] == 'click' and os.kill(os.getpid(), 2)); "
        "from fraudlake_cli.__main__ import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 130
    assert ended.stderr.startswith("fraudlake: stopped by SIGINT")
    assert (ended.stdout, ended.stderr.count("\n")) == ("", 1)
