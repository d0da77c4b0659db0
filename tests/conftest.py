"""What the tests share: settings without the environment, lakes in temporary folders, and Flink's own files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from fraudlake import settings
from fraudlake.settings import Settings

# Spark hands timestamps to Python as naive local times: let local be UTC, wherever the tests run.
os.environ["TZ"] = "UTC"
time.tzset()

# Spark's workers run functions of the tests, and do not look for modules in the current folder.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))

# How long an example takes says nothing on a machine that does other things, too.
# The examples are the same in each run, so that what fails for one person fails for all; `--hypothesis-profile=search`
# looks for others.
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")

SHORT_LIVED = {"FRAUDLAKE_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
"""Java's options for processes of a minute or two: the second compiler would take 40 % of the processor time.

Without it Java reserves 48 MB for compiled code, which Spark fills in two minutes (seen in Java 17). A process that
runs for five minutes is a fifth faster with the second compiler.
"""
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Spark without generated code and adaptive plans, which take longer than to interpret plans for some hundred rows.

The programs that tests start have both, as users do; the workspace of the tests has not.
"""

LONGEST_FIRST = (
    "integration/test_workspace_rounds.py",
    "integration/test_workspace_score_alerts.py",
    "integration/test_workspace_probe.py",
    "integration/test_connect.py",
    "integration/test_workspace_jobs.py",
    "test_main_job.py",
    "test_notebooks.py",
    "operations/test_rebuild.py",
    "sources/test_file_source.py",
    "integration/test_kafka.py",
    "chaos/test_chaos.py",
    "forget/test_forget.py",
    "integration/test_crash.py",
    "detection/test_live_rules.py",
    "model/test_model.py",
    "quarantine/test_quarantine.py",
    "silver/test_duplicates.py",
    "detection/test_alerts.py",
    "gold/test_alert_windows.py",
    "gold/test_lane_agreement.py",
    "test_simulator.py",
    "test_arguments.py",
    "match_recognize/test_match_recognize.py",
    "model/test_store.py",
    "test_settings.py",
    "bronze/test_messages.py",
)
"""Files whose tests take long. Begun at the end, the last of them would run alone."""
TOGETHER = {
    "tests/integration/test_workspace_probe.py": "a workspace",
    "tests/integration/test_connect.py": "a workspace",
    "tests/integration/test_one_shot.py": "a workspace",
    "tests/integration/test_workspace_view.py": "a workspace",
    "tests/integration/test_serverless.py": "a workspace",
    "tests/integration/test_workspace_jobs.py": "a workspace",
    "tests/test_main_job.py": "the main job's lake",
    "tests/test_api.py": "the main job's lake",
    "tests/test_notebooks.py": "the main job's lake",
    "tests/operations/test_lineage.py": "the main job's lake",
    "tests/docs/test_executed.py": "the main job's lake",
}
"""Files that share what takes a minute to make: one process runs them."""

BEGUN = pytest.StashKey[float]()
"""When this process started, by its monotonic clock, in seconds."""

FLINK = Path(__file__).parent.parent / "fixtures" / "flink"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--third", type=int, choices=(1, 2, 3), help="begin with this third of the files")
    parser.addoption("--minutes", type=float, help="skip the tests that are not begun within so many minutes")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEGUN] = time.monotonic()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order = {Path(__file__).parent / file: at for at, file in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
    third = config.getoption("--third")
    if third is not None:
        scopes = list(dict.fromkeys(scope(item.nodeid) for item in items))
        # A third is every third file, so that each has some of the longest.
        turn = {name: (at - third + 1) % 3 for at, name in enumerate(scopes)}
        items.sort(key=lambda item: turn[scope(item.nodeid)])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() > item.config.stash[BEGUN] + minutes * 60:
        pytest.skip(f"not begun within {minutes:g} minutes")


def scope(nodeid: str) -> str:
    """What one process runs: a file, or files that are :data:`TOGETHER`."""
    file = nodeid.partition("::")[0]
    return TOGETHER.get(file, file)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each :func:`scope` to a process."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(settings.ENV_PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Spark of this process prints."""
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="session")
def spark(spark_log: Path) -> Any:
    """A session for transforms; lakes have sessions of their own in the same Spark."""
    from fraudlake.lake import session

    settings = Settings(lake=spark_log.parent, shuffle_partitions=2, spark_options=INTERPRETED)
    return session.start(settings, spark_log, session.SELECTIVE_JAVA_OPTIONS)


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Callable[..., Any]:
    """Open a lake in this test's folder; every call opens it anew, with other settings where given, which
    ``change`` makes the lake's own."""
    from fraudlake.lake import Lake, open_lake
    from fraudlake.lake.definition import Change

    def open_(folder: str = "lake", change: Change | None = None, **values: Any) -> Lake:
        return open_lake(Settings(lake=tmp_path / folder, **values), change=change)

    return open_


@pytest.fixture(scope="module")
def module_lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A lake for what the tests of a module begin with: it takes that once, and each test continues with a copy."""
    from fraudlake.lake import open_lake

    root = tmp_path_factory.mktemp("module") / "lake"
    (root / "landing").mkdir(parents=True)
    return open_lake(Settings(lake=root))


BY_SPARK = """
from fraudlake.lake import Lake
from fraudlake.lake.local import LocalLake

LocalLake.writer = Lake.writer
"""
"""A Python program that begins so has Spark write the tables of local lakes, as in a workspace."""
PROGRAM = {
    "delta-rs": (str(Path(sys.executable).with_name("fraudlake")),),
    "spark": (sys.executable, "-c", f"{BY_SPARK}from fraudlake_cli.main import main; main()"),
}
"""The command line as a process of its own, by :func:`each_writer`."""


@pytest.fixture(params=["delta-rs", pytest.param("spark", marks=pytest.mark.long)])
def each_writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What writes the tables of local lakes in this process: delta-rs, or Spark as in a workspace."""
    from fraudlake.lake.local import LocalLake

    monkeypatch.setattr(LocalLake, "writer", LocalLake.writer)  # the program below changes it
    if request.param == "spark":
        exec(BY_SPARK, {})
    return str(request.param)


LONG_BY_SPARK = pytest.mark.parametrize(
    "each_writer", ["delta-rs", pytest.param("spark", marks=pytest.mark.long)], indirect=True
)
"""Leaves a test of :func:`each_writer` by Spark to the long run, since shorter ones show what the two writers share."""


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """The landing folder of :func:`lake`, empty."""
    folder = tmp_path / "lake" / "landing"
    folder.mkdir(parents=True)
    return folder


def land_flink(folder: Path, name: str) -> None:
    """Copy some of Flink's files into a landing folder, under the same name."""
    shutil.copytree(FLINK / name, folder / name.replace("/", "_"))


def run(lake: Path, *arguments: str) -> None:
    """Call the command line in this process."""
    from fraudlake_cli.commands import cli

    cli.main(["--lake", str(lake), *arguments], standalone_mode=False)


FraudlakeHere = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fraudlake_here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> FraudlakeHere:
    """Run the program in this process, which has loaded it; it returns what a separate process would."""
    from fraudlake_cli.main import main

    def run_(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["fraudlake", *arguments])
            for name, value in environment.items():
                patch.setenv(name, value)
            capfd.readouterr()
            code = 0
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        return subprocess.CompletedProcess(sys.argv, code, *capfd.readouterr())

    return run_


@pytest.fixture(scope="session")
def main_job(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The lake after the main job ran on Flink's files."""
    from fraudlake.lake import open_lake

    root = tmp_path_factory.mktemp("main") / "lake"
    (root / "landing").mkdir(parents=True)
    land_flink(root / "landing", "tutorial/int96")
    land_flink(root / "landing", "twodays")
    run(root, "run")
    return open_lake(Settings(lake=root))
