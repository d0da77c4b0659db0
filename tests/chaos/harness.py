"""The harness: runs a schedule of kills on a new lake, lets the main job end, and compares with the truth."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path

from tests.chaos import entities, truth
from tests.chaos.landing import LandingFile, closing_file, departing_file, landing_files
from tests.chaos.schedule import AT_ANY_TIME, FORGET, INGEST_KAFKA, SHADOW, STANDSTILL_MOMENTS, Kill
from tests.delivery.receiver import Receiver, listening
from tests.integration.broker import Broker

DELIVER_TO_WEBHOOK = "deliver --to webhook"
FRAUDLAKE = str(Path(sys.executable).with_name("fraudlake"))
PATIENCE = 1800
"""Seconds after which a command counts as hung."""
QUIET = 60
"""Seconds after which a continuous stream is killed whose moment has not come: it does not end by itself."""
AWAY = 60
"""Seconds for which a broker that was killed is away."""
TOPIC = "fraud-events"
LIVE_RULES = f"""
[[rules]]
kind = "small_then_large"
name = "small_then_large"
small_below = 1.0
large_above = 500.0
within = "1 minute"

[[rules]]
kind = "model"
name = "likely"
threshold = {truth.LIKELY}
{entities.RULES}"""
DECLARED = {"COLUMNS": entities.COLUMNS, "ENTITIES": entities.ENTITIES, "FEATURES": entities.FEATURES}
CASE_GAP, CASE_LENGTH = timedelta(minutes=10), timedelta(minutes=15)
SETTINGS = {
    **{f"FRAUDLAKE_{name}": json.dumps(value) for name, value in DECLARED.items()},
    "FRAUDLAKE_RULES": json.dumps(tomllib.loads(LIVE_RULES)["rules"]),
    "FRAUDLAKE_MAX_FILES_PER_TRIGGER": "4",
    "FRAUDLAKE_MAX_OFFSETS_PER_TRIGGER": "800",
    "FRAUDLAKE_ALGORITHM": "logistic",
    "FRAUDLAKE_CASE_GAP": f"{CASE_GAP.total_seconds():.0f} s",
    "FRAUDLAKE_CASE_LENGTH": f"{CASE_LENGTH.total_seconds():.0f} s",
    "FRAUDLAKE_CLUSTER_GROWTH": "0",
    "FRAUDLAKE_TARGET_FILE_SIZE": "8k",
    "FRAUDLAKE_TOPIC": TOPIC,
}
SHADOW_RULE = f"""
[[rules]]
name = "wider"
status = "shadow"
small_below = {truth.WIDER.small_below}
large_above = {truth.WIDER.large_above}
within = "{truth.WIDER.within // 1_000_000} s"
"""
"""A rule that is in the shadow from some ``rules apply`` to another."""
Report = Callable[[str], None]


@dataclass
class Outcome:
    """What a schedule did: the kills that met a running command, and how the tables differ from the truth."""

    killed: Counter[str] = field(default_factory=Counter)
    ended_before: int = 0
    """Commands that ended by themselves before their moment came."""
    seconds_to_recover: float = 0
    """How long the main job took that followed the last kill."""
    differences: list[str] = field(default_factory=list)


def run(
    lake: Path,
    seed: int,
    kills: list[Kill],
    report: Report = lambda line: None,
    environment: dict[str, str] | None = None,
    command: tuple[str, ...] = (FRAUDLAKE,),
    program: type[Program] | None = None,
) -> Outcome:
    """Run a schedule.

    Args:
        lake: a folder that does not exist yet.
        seed: of the landed files.
        kills: the schedule; a broker runs if one of them ingests a topic.
        report: called with a line for each kill.
        environment: further environment variables of the commands.
        command: the program; a planted bug has a separate program.
        program: how it is run; by default, as :class:`Program` does.
    """
    (lake / "landing").mkdir(parents=True)
    (lake / "live.toml").write_text(LIVE_RULES)
    (lake / "shadow.toml").write_text(LIVE_RULES + SHADOW_RULE)
    broker = Broker(lake.with_name(f"{lake.name}-broker")) if any(kill.step == INGEST_KAFKA for kill in kills) else None
    with listening() as receiver:
        delivery = {
            "FRAUDLAKE_DELIVERY_FOLDER": str(lake.absolute() / truth.DELIVERED / "file"),
            "FRAUDLAKE_WEBHOOK_URL": receiver.url,
        }
        variables = {**os.environ, **SETTINGS, **delivery, **(environment or {})}
        try:
            if broker is not None:
                broker.start()
                broker.create_topic(TOPIC, 2)
                variables["FRAUDLAKE_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers
            return _run(
                (program or Program)(lake.absolute(), command, variables, broker), receiver, seed, kills, report
            )
        finally:
            if broker is not None:
                broker.stop()


def _run(program: Program, receiver: Receiver, seed: int, kills: list[Kill], report: Report) -> Outcome:
    outcome, broker = Outcome(), program.broker
    landing = landing_files(seed, sum(kill.files for kill in kills))
    if program.environment.get("FRAUDLAKE_ORDERING") == "event_time":
        landing.append(closing_file())
    if any(kill.step == FORGET for kill in kills):
        landing.insert(0, departing_file())
    files = iter(enumerate(landing))
    deliveries = sorted({kill.step for kill in kills if kill.step.startswith("deliver")})
    folders = {step: program.lake / truth.DELIVERED / step.split()[-1] for step in deliveries}
    for folder in folders.values():
        folder.mkdir(parents=True)
    for kill in kills:
        _land(files, program, max(kill.files - 1, 0))
        if kill.step in STANDSTILL_MOMENTS:
            _catch_up(program, deliveries)
        was_killed = program.killed(kill, partial(_land, files, program, min(kill.files, 1)))
        what = "ended before" if not was_killed else "SIGTERM" if kill.sigterm else "killed"
        more = f"{', the broker was away' * kill.broker_away}{', beside ' * bool(kill.beside)}{kill.beside}"
        report(f"{kill.step}: {what} at {kill.moment} + {kill.delay} s{more}")
        outcome.killed[kill.step] += was_killed
        outcome.ended_before += not was_killed
        if kill.step in STANDSTILL_MOMENTS and was_killed:
            program.ended(kill.step)
    _land(files, program)
    if any(kill.step == SHADOW for kill in kills):  # what is unread is read with its rule
        program.ended(SHADOW)
    begun = time.monotonic()
    _catch_up(program, deliveries)
    outcome.seconds_to_recover = time.monotonic() - begun
    if DELIVER_TO_WEBHOOK in folders:
        received = "".join(f"{json.dumps(event)}\n" for event in receiver.events)
        (folders[DELIVER_TO_WEBHOOK] / "received.jsonl").write_text(received)
    messages = broker.messages(TOPIC) if broker is not None else []
    outcome.differences = truth.differences(program.lake, messages, case_gap=CASE_GAP, case_length=CASE_LENGTH)
    return outcome


def _catch_up(program: Program, deliveries: Iterable[str]) -> None:
    """Let the main job run to its end, and deliver all alerts."""
    for step in (*([INGEST_KAFKA] if program.broker is not None else []), "run", *deliveries):
        program.ended(step)


def _land(files: Iterator[tuple[int, LandingFile]], program: Program, count: int | None = None) -> None:
    """Land the next files, and the same rows as messages if there is a broker; without a count all that are left."""
    for number, file in islice(files, count):
        file.land(program.lake / "landing", number)
        if program.broker is not None:
            program.broker.produce(TOPIC, file.messages())


@dataclass
class Program:
    """Runs commands on a lake as processes of their own."""

    lake: Path
    command: tuple[str, ...]
    environment: dict[str, str]
    broker: Broker | None = None

    @property
    def _is_continuous(self) -> bool:
        return self.environment.get("FRAUDLAKE_TRIGGER") == "continuous"

    def start(self, *step: str, output: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a command; ``output`` gets its standard output."""
        return subprocess.Popen(
            [*self.command, "--lake", str(self.lake), *step],
            cwd=self.lake,
            env=self.environment,
            start_new_session=True,
            stdout=output,
            stderr=subprocess.PIPE,
        )

    def ended(self, step: str) -> None:
        """Run a command to its end."""
        program = replace(self, environment=self.environment | {"FRAUDLAKE_TRIGGER": "available-now"})
        process = program.start(*step.split(), output=subprocess.PIPE)
        output, errors = process.communicate(timeout=PATIENCE)
        # An account that was forgotten right before the kill is not there any more.
        if process.returncode and b"it was forgotten at" not in errors:
            texts = "\n".join(text.decode()[-2000:] for text in (errors, output))
            raise AssertionError(f"{step} ended with code {process.returncode} after the kills: {texts}")

    def killed(self, kill: Kill, meanwhile: Callable[[], None]) -> bool:
        """Run a command until its moment; return False if it ended before."""
        if kill.broker_away:
            return self._killed_behind_broker(kill, meanwhile)
        beside = self.start(*kill.beside.split()) if kill.beside else None
        try:
            return self.kill(self.start(*kill.step.split()), kill, meanwhile)
        finally:
            if beside is not None:
                _, errors = beside.communicate(timeout=PATIENCE)
                _require_one_line(kill.beside, errors)

    def kill(self, process: subprocess.Popen[bytes], kill: Kill, meanwhile: Callable[[], None]) -> bool:
        """Kill a command at the moment that comes next; return False if it ended before."""
        seen = _files(self.lake, kill.moment)
        try:
            meanwhile()
            is_running = self._is_running_at(kill, seen, process, self._is_continuous)
            if kill.sigterm:
                process.terminate()
                _, errors = process.communicate(timeout=PATIENCE)
                _require_one_line(kill.step, errors)
            return is_running
        finally:
            end(process)

    def _killed_behind_broker(self, kill: Kill, meanwhile: Callable[[], None]) -> bool:
        """Kill the broker at the moment, bring it back, and then kill the stream, which must have gone on.

        Raises:
            AssertionError: the stream ended by itself, or read nothing any more.
        """
        assert self.broker is not None
        seen = _files(self.lake, kill.moment)
        process = self.start(*kill.step.split(), "--trigger", "continuous")
        try:
            self._is_running_at(kill, seen, process, is_continuous=True)
            self.broker.kill()
            time.sleep(AWAY)
            commits = replace(kill, moment="checkpoints/ingest_kafka/commits", skip=0)
            seen = _files(self.lake, commits.moment)
            self.broker.start()
            meanwhile()
            if not self._is_running_at(commits, seen, process, is_continuous=False):
                raise AssertionError(
                    f"{kill.step} ended while the broker was away: {process.communicate()[1].decode()}"
                )
            return True
        finally:
            end(process)

    def _is_running_at(self, kill: Kill, seen: set[str], process: subprocess.Popen[bytes], is_continuous: bool) -> bool:
        """Wait for a moment, for which files count that were not seen; return False if the command ended before."""
        begun = time.monotonic()
        while process.poll() is None:
            if is_continuous and time.monotonic() - begun > QUIET:
                return True
            if time.monotonic() - begun > PATIENCE:
                raise AssertionError(f"{kill.step} hung")
            if kill.moment == AT_ANY_TIME:
                if time.monotonic() - begun >= kill.delay:
                    return True
            elif len(_files(self.lake, kill.moment) - seen) > kill.skip:
                time.sleep(kill.delay)
                return process.poll() is None
            time.sleep(0.005)
        return False


def _require_one_line(command: str, errors: bytes) -> None:
    if b"Traceback" in errors:
        raise AssertionError(f"{command} ended with a stack trace: {errors.decode()}")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a command and all that it has started with SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _files(lake: Path, folder: str) -> set[str]:
    """Return the files of a folder of the lake and below, but for a table's log where its data files are meant."""
    is_table = folder.startswith("tables/") and not folder.endswith("_delta_log")
    names = set()
    for where, folders, files in os.walk(lake / folder):
        if is_table and "_delta_log" in folders:
            folders.remove("_delta_log")
        names |= {f"{where}/{file}" for file in files}
    return names
