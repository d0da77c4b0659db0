"""The harness: runs a schedule of kills on a new lake, lets the main job end, and compares with the truth."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from tests.chaos import truth
from tests.chaos.landing import LandingFile, closing_file, landing_files
from tests.chaos.schedule import AT_ANY_TIME, MOMENTS, Kill

FRAUDLAKE = str(Path(sys.executable).with_name("fraudlake"))
PATIENCE = 1800
"""Seconds after which a command counts as hung."""
QUIET = 60
"""Seconds after which a continuous stream is killed whose moment has not come: it does not end by itself."""
SETTINGS = {"FRAUDLAKE_MAX_FILES_PER_TRIGGER": "4", "FRAUDLAKE_ALGORITHM": "logistic"}
Report = Callable[[str], None]


@dataclass
class Outcome:
    """What a schedule did: the kills that met a running command, and how the tables differ from the truth."""

    killed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MOMENTS, 0))
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
) -> Outcome:
    """Run a schedule.

    Args:
        lake: a folder that does not exist yet.
        seed: of the landed files.
        kills: the schedule.
        report: called with a line for each kill.
        environment: further environment variables of the commands.
        command: the program; a planted bug has a program of its own.
    """
    (lake / "landing").mkdir(parents=True)
    outcome, program = Outcome(), Program(lake, command, {**os.environ, **SETTINGS, **(environment or {})})
    landing = landing_files(seed, sum(kill.files for kill in kills))
    if program.environment.get("FRAUDLAKE_ORDERING") == "event_time":
        landing.append(closing_file())
    files = iter(enumerate(landing))
    for kill in kills:
        _land(files, lake, max(kill.files - 1, 0))
        was_killed = program.killed(kill, partial(_land, files, lake, min(kill.files, 1)))
        report(f"{kill.step}: {'killed' if was_killed else 'ended before'} at {kill.moment} + {kill.delay} s")
        outcome.killed[kill.step] += was_killed
        outcome.ended_before += not was_killed
    _land(files, lake)
    begun = time.monotonic()
    program.ended("run")
    outcome.seconds_to_recover = time.monotonic() - begun
    outcome.differences = truth.differences(lake)
    return outcome


def _land(files: Iterator[tuple[int, LandingFile]], lake: Path, count: int | None = None) -> None:
    """Land the next files; without a count all that are left."""
    for number, file in islice(files, count):
        file.land(lake / "landing", number)


@dataclass
class Program:
    """Runs commands on a lake as processes of their own."""

    lake: Path
    command: tuple[str, ...]
    environment: dict[str, str]

    @property
    def _is_continuous(self) -> bool:
        return self.environment.get("FRAUDLAKE_TRIGGER") == "continuous"

    def start(self, *step: str) -> subprocess.Popen[bytes]:
        """Start a command."""
        return subprocess.Popen(
            [*self.command, "--lake", str(self.lake), *step],
            env=self.environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def ended(self, step: str) -> None:
        """Run a command to its end."""
        # A continuous job would not end.
        process = self.start(step, *(["--trigger", "available-now"] if self._is_continuous else []))
        _, errors = process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise AssertionError(f"{step} failed after the kills: {errors.decode()[-2000:]}")

    def killed(self, kill: Kill, meanwhile: Callable[[], None]) -> bool:
        """Run a command until its moment; return False where it ended before."""
        process = self.start(kill.step)
        return self.kill(process, kill, meanwhile)

    def kill(self, process: subprocess.Popen[bytes], kill: Kill, meanwhile: Callable[[], None]) -> bool:
        """Kill a command at the moment that comes next; return False where it ended before."""
        begun, seen = time.monotonic(), _files(self.lake, kill.moment)
        try:
            meanwhile()
            while process.poll() is None:
                if self._is_continuous and time.monotonic() - begun > QUIET:
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
        finally:
            end(process)


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
