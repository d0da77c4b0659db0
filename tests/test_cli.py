"""What a person at the terminal meets: help, and one clear line for each mistake."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake_cli.app import App
from fraudlake_cli.commands import cli
from fraudlake_cli.main import main
from tests import plain_lake
from tests.conftest import FLINK, SHORT_LIVED, FraudlakeHere, land_flink, run
from tests.test_arguments import COMMANDS

STEPS = (
    "simulate",
    "ingest",
    "refine",
    "quarantine",
    "detect",
    "realtime",
    "deliver",
    "aggregate",
    "train",
    "verdicts",
    "score",
    "optimize",
    "status",
    "explain",
    "run",
    "workspace",
    "example",
)


def fraudlake(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("fraudlake")), *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **SHORT_LIVED, **environment},
        timeout=300,
        check=False,
    )


def refused(ended: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line that a refused command leaves."""
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("step", STEPS)
def test_help_says_what_a_step_does(step: str, fraudlake_here: FraudlakeHere) -> None:
    ended = fraudlake_here(step, "--help")
    assert ended.returncode == 0
    assert "Needs" in ended.stdout or step == "status"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_choices_and_an_example_and_fits_the_terminal(
    path: tuple[str, ...], columns: int, fraudlake_here: FraudlakeHere
) -> None:
    printed, _, example = fraudlake_here(*path, "--help", COLUMNS=str(columns)).stdout.partition("Example:")
    assert all(len(line) <= columns for line in printed.splitlines())
    assert "VALUE" not in printed and "--trigger TEXT" not in printed
    words = shlex.split(example)
    assert words[0] == "fraudlake"
    given = words[words.index(path[0]) + len(path) :]
    COMMANDS[path].make_context(path[-1], given, parent=click.Context(cli, obj=App()))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_is_and_its_default(path: tuple[str, ...]) -> None:
    context = click.Context(COMMANDS[path], obj=App())
    options = [one for one in COMMANDS[path].params if isinstance(one, click.Option)]
    said = {one.opts[0]: (one.get_help_record(context) or ("", ""))[1] for one in options}
    assert [name for name, text in said.items() if not text] == []
    has_default = [one.opts[0] for one in options if isinstance(one.default, str | int | float) and not one.is_flag]
    assert [name for name in has_default if "default" not in said[name].lower()] == []


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("fraudlake ru", {"rules", "run"}),
        ("fraudlake ingest --source ", {"files", "kafka"}),
        ("fraudlake --ca", {"--catalog"}),
    ],
)
def test_a_shell_completes_commands_options_and_choices(
    words: str, completed: set[str], fraudlake_here: FraudlakeHere
) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_FRAUDLAKE_COMPLETE": "bash_complete"}
    assert {line.partition(",")[2] for line in fraudlake_here(**asked).stdout.splitlines()} == completed


def test_help_names_the_choices_and_the_default_of_a_setting(fraudlake_here: FraudlakeHere) -> None:
    printed = fraudlake_here("ingest", "--help", COLUMNS="120").stdout
    assert "--source [files|kafka]          Where transactions come from: files or kafka.  [default: files]" in printed
    assert "--trigger [available-now|continuous]" in printed and "[default: 1 second]" in printed
    assert "--bootstrap-servers HOST:PORT" in printed


def test_every_command_is_listed_under_its_task(fraudlake_here: FraudlakeHere) -> None:
    printed = fraudlake_here("--help").stdout
    assert "Others:" not in printed
    sections = [line for line in printed.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert sections[:3] == ["Options:", "First steps:", "Steps of a run:"]


def test_a_group_without_a_command_shows_its_help(fraudlake_here: FraudlakeHere) -> None:
    ended = fraudlake_here("rules")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "\n  backtest" in ended.stderr


@pytest.mark.parametrize("group", [[], ["model"], ["workspace"]], ids=["fraudlake", "model", "workspace"])
def test_no_line_of_a_list_of_commands_is_cut_off(group: list[str], fraudlake_here: FraudlakeHere) -> None:
    ended = fraudlake_here(*group, "--help", COLUMNS="80")
    lines = ended.stdout.splitlines()
    assert ("Commands:" if group else "First steps:") in lines
    assert not [line for line in lines if line.rstrip().endswith(("...", "…")) and not line.startswith("Usage:")]


def test_an_unknown_command_is_wrong_use() -> None:
    assert "No such command 'inject'" in refused(fraudlake("inject"), 2)


def test_a_databricks_job_finds_the_line_in_the_exception_that_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fraudlake", "--catalog", "main", "--schema", "fraud", "status"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert str(end.value).startswith("fraudlake: --catalog and --schema need the Spark of a Databricks workspace")


@pytest.mark.slow
def test_no_java_is_one_line(tmp_path: Path) -> None:
    line = refused(fraudlake("refine", PATH=str(tmp_path), JAVA_HOME=""), 1)
    assert "no Java on the PATH: install Java 17 or 21" in line


def test_a_wrong_java_is_one_line(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    line = refused(fraudlake_here("refine", JAVA_HOME=str(tmp_path)), 1)
    assert f"{java} is Java 11: install Java 17 or 21" in line


def test_a_setting_out_of_range_is_wrong_use(fraudlake_here: FraudlakeHere) -> None:
    line = refused(fraudlake_here("score", "--threshold", "1.5"), 2)
    assert "--threshold = '1.5': input should be less than 1" in line


def test_a_short_retention_is_wrong_use_unless_it_is_allowed(fraudlake_here: FraudlakeHere) -> None:
    line = refused(fraudlake_here("optimize", "--retention", "1 hour"), 2)
    assert "--retention 1:00:00: shorter than 7 days" in line


def test_the_fast_lane_needs_a_topic_for_its_alerts_and_then_another_spark(fraudlake_here: FraudlakeHere) -> None:
    brokers = ("realtime", "--bootstrap-servers", "localhost:1")
    assert "realtime needs --fast-alerts-topic" in refused(fraudlake_here(*brokers), 2)
    line = refused(fraudlake_here(*brokers, "--fast-alerts-topic", "alerts"), 2)
    assert "needs Spark 4.3, and this environment has Spark 4.2" in line and "make realtime" in line


def test_mending_a_value_without_a_replay_is_wrong_use(fraudlake_here: FraudlakeHere) -> None:
    assert "give both" in refused(fraudlake_here("quarantine", "--set", "amount=abs(amount)"), 2)
    assert "must be COLUMN=SQL" in refused(fraudlake_here("quarantine", "--replay", "--set", "amount"), 2)


READ_COMMANDS = pytest.mark.parametrize(
    "command",
    [["status"], ["state"], ["model", "list"], ["model", "compare"], ["quarantine"]],
    ids=lambda command: " ".join(command),
)


def listed(folder: Path) -> list[tuple[Path, int]]:
    return sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))


@READ_COMMANDS
def test_a_read_command_refuses_a_lake_that_is_not_there_and_makes_nothing(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "lake.json").write_text('{"format": 1}')
    before = listed(tmp_path)

    line = refused_here(tmp_path / "laek", *command)

    assert line == (
        f"there is no lake in {tmp_path / 'laek'}: a command that writes makes one, such as 'fraudlake ingest'; "
        f"the nearest one is {tmp_path / 'lake'}"
    )
    assert listed(tmp_path) == before


def test_a_lake_that_lacks_a_table_says_what_makes_it(tmp_path: Path) -> None:
    (tmp_path / "lake.json").write_text('{"format": 1}')
    assert "has no table bronze_transactions yet: a command that writes makes it" in refused_here(tmp_path, "status")
    assert [path.name for path in tmp_path.iterdir()] == ["lake.json"]


def without_java(root: Path, *arguments: str) -> dict[str, Any]:
    """What a command prints if there is no Java, on a lake that is left as it was."""
    before = listed(root)
    ended = fraudlake("--lake", str(root), "--json", *arguments, PATH=str(root), JAVA_HOME="")
    assert ended.stderr == ""
    assert listed(root) == before
    (line,) = ended.stdout.splitlines()
    result: dict[str, Any] = json.loads(line)
    return result


@pytest.mark.stream
def test_a_lake_without_rows_and_models_is_read_without_java(lake: Callable[..., Any]) -> None:
    root = lake().root
    assert without_java(root, "status")["gaps"] == []
    assert without_java(root, "state")["open_flags"] == 0
    assert without_java(root, "model", "list") == {"versions": []}
    assert without_java(root, "quarantine") == {"rows": 0, "reasons": {}, "samples": {}}
    assert "there is no model to compare" in refused_here(root, "model", "compare")


def test_a_lake_of_another_format_is_left_alone(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    mark = tmp_path / "lake.json"
    mark.write_text('{"format": 99, "fraudlake": "9.0.0"}')
    line = refused(fraudlake_here("--lake", str(tmp_path), "status"), 1)
    assert "was made by fraudlake 9.0.0 (lake format 99)" in line
    assert not (tmp_path / "tables").exists()


def test_a_file_in_place_of_the_lake_is_wrong_use(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    (tmp_path / "lake").write_text("")
    assert "there is a file of that name" in refused(fraudlake_here("--lake", str(tmp_path / "lake"), "status"), 2)


def test_simulate_lands_what_was_asked_for(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    ended = fraudlake_here("--lake", str(tmp_path), "--json", "simulate", "--rows", "2500", "--file-rows", "1000")
    assert json.loads(ended.stdout) == {"landing": str(tmp_path / "landing"), "rows": 2500}
    files = sorted((tmp_path / "landing").iterdir())
    assert sorted(pq.read_metadata(file).num_rows for file in files) == [500, 1000, 1000]


def test_simulate_refuses_what_makes_no_stream(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    line = refused(fraudlake_here("--lake", str(tmp_path), "simulate", "--rows", "10", "--fraud", "0.9"), 2)
    assert "--fraud 0.9: must be from 0 to 0.2" in line
    line = refused(fraudlake_here("--lake", str(tmp_path), "simulate", "--rows", "10", "--start", "soon"), 2)
    assert "--start soon: must be a time such as 2026-03-07" in line
    line = refused(fraudlake_here("--lake", str(tmp_path), "simulate", "--start", "2026-13-01"), 2)
    assert "--start 2026-13-01: must be a time such as 2026-03-07" in line


@pytest.mark.parametrize("command", ["ingest", "run"])
def test_a_missing_landing_folder_is_wrong_use_and_makes_no_lake(
    tmp_path: Path, fraudlake_here: FraudlakeHere, command: str
) -> None:
    flags = ("--lake", str(tmp_path / "new"), "--landing", str(tmp_path / "none"))
    line = refused(fraudlake_here(command, *flags), 2)
    assert f"landing folder {tmp_path / 'none'} does not exist" in line
    assert list(tmp_path.iterdir()) == []


def test_a_lake_in_which_nothing_has_landed_does_not_add_up(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    plain_lake.make(tmp_path / "lake")
    printed = fraudlake_here("status").stdout
    assert f"nothing has landed yet in {tmp_path / 'lake' / 'landing'}" in printed and "add up" not in printed


def test_the_options_of_every_command_may_stand_after_it(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    plain_lake.make(tmp_path / "here")
    after = fraudlake_here("rules", "list", "--lake", str(tmp_path / "here"), "--json")
    assert after.stdout == fraudlake_here("--json", "--lake", str(tmp_path / "here"), "rules", "list").stdout
    assert [rule["name"] for rule in json.loads(after.stdout)["rules"]] == ["small_then_large"]
    line = refused(fraudlake_here("workspace", "check", "--catalog", "main"), 2)
    assert "give both, or --lake DIR" in line


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("explain", "4"), "4: silver_alerts has no such alert_id, and no alert yet: run 'fraudlake detect'"),
        (("--landing", "/in", "ingest"), "--landing goes after its command: 'fraudlake ingest --landing …'"),
        (("restore", "nosuch"), "there is no table nosuch; the nearest one is"),
        (("restore", "silver_alerts"), "no version of silver_alerts is named: give either --version N or"),
        (("rules", "diff", "small_then_large"), "version 1 of small_then_large is the first"),
        (("replay", "--from", "2026-13-01", "--to", "2026-01-01"), "'2026-13-01' is not a day: give one such as"),
    ],
    ids=["explain", "option of a command", "restore", "restore-version", "diff", "replay"],
)
def test_a_mistake_gets_a_line_that_says_what_to_do(
    tmp_path: Path, fraudlake_here: FraudlakeHere, arguments: tuple[str, ...], hint: str
) -> None:
    plain_lake.make(tmp_path / "lake")
    assert hint in refused(fraudlake_here(*arguments), 2)


def refused_here(lake: Path, *arguments: str) -> str:
    """The line that a command is refused with in this process, whose Spark is warm."""
    with pytest.raises(FraudlakeError) as refusal:
        run(lake, *arguments)
    assert refusal.value.exit_code == 1
    return str(refusal.value)


@pytest.mark.stream
def test_an_empty_landing_folder_says_that_nothing_has_landed(lake: Callable[..., Any], landing: Path) -> None:
    (landing / ".part-1-0.inprogress.7").write_bytes(b"PAR1")
    assert "nothing has landed in" in refused_here(lake().root, "ingest")


NO_MODEL = "there is no model 'fraudlake' to score with: run 'fraudlake train' first"


@pytest.mark.stream
def test_scoring_before_the_first_model_is_skipped_and_says_so(
    lake: Callable[..., Any], fraudlake_here: FraudlakeHere
) -> None:
    root = lake().root

    told = fraudlake_here("--lake", str(root), "score")
    data = fraudlake_here("--lake", str(root), "--json", "score")

    assert (told.returncode, told.stdout) == (0, f"nothing is scored: {NO_MODEL}\n")
    assert (data.returncode, json.loads(data.stdout)) == (0, {"streams": [], "skipped": NO_MODEL})


@pytest.mark.stream
@pytest.mark.parametrize("wanted", [("--trigger", "continuous"), ("--from", "2026-03-07")])
def test_scoring_that_somebody_waits_for_needs_a_model(lake: Callable[..., Any], wanted: tuple[str, str]) -> None:
    assert NO_MODEL in refused_here(lake().root, "score", *wanted)


@pytest.mark.stream
def test_training_without_transactions_says_so(lake: Callable[..., Any]) -> None:
    assert "cannot train: no transaction has a label" in refused_here(lake().root, "train")


@pytest.mark.stream
def test_a_second_copy_of_a_stream_is_refused(lake: Callable[..., Any], landing: Path) -> None:
    land_flink(landing, "tutorial/int96")
    root = lake().root
    (root / "locks").mkdir()
    with FileLock(root / "locks" / "ingest"):
        line = refused_here(root, "ingest")
    assert "another process already runs 'ingest'" in line
    run(root, "ingest")


@pytest.mark.long
@pytest.mark.stream
def test_two_processes_use_a_lake_at_once(
    lake: Callable[..., Any], landing: Path, fraudlake_here: FraudlakeHere, tmp_path: Path
) -> None:
    land_flink(landing, "tutorial/int96")
    root = str(lake().root)
    command = [str(Path(sys.executable).with_name("fraudlake")), "--lake", root, "ingest"]
    # Should it abort as it ends, it says in which line of which thread.
    environment = {**os.environ, **SHORT_LIVED, "PYTHONFAULTHANDLER": "1"}
    with (
        (tmp_path / "stderr").open("w+") as errors,
        subprocess.Popen(command, env=environment, stderr=errors) as other,
    ):
        seen = fraudlake_here("--lake", root, "--json", "status")
        assert other.wait() == 0, (tmp_path / "stderr").read_text()
    assert json.loads(seen.stdout)["bronze"] in (0, 10)
    assert json.loads(fraudlake_here("--lake", root, "--json", "status").stdout)["bronze"] == 10


def test_the_fixtures_are_those_that_flink_wrote() -> None:
    rows = sum(pq.read_metadata(file).num_rows for file in (FLINK / "twodays").glob("part-*"))
    assert rows == 50_000


class UnforeseenError(Exception):
    """Nothing in the package raises it."""


WHEEL = UnforeseenError("a wheel came off\nand rolled away")


def unforeseen(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    home: Path,
    *flags: str,
    error: Exception = WHEEL,
) -> str:
    """What an unforeseen error leaves on standard error."""

    def status(lake: object) -> None:
        raise error

    monkeypatch.setattr("fraudlake.lake.open_lake", lambda settings, must_exist: None)
    monkeypatch.setattr("fraudlake.operations.status.status", status)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("sys.argv", ["fraudlake", *flags, "status"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    output = capfd.readouterr()
    assert output.out == ""
    return output.err


def test_an_unforeseen_error_is_one_line_and_a_file_on_a_laptop(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    err = unforeseen(monkeypatch, capfd, tmp_path)

    file = tmp_path / ".cache" / "fraudlake" / "error.log"
    assert err == f"fraudlake: a wheel came off (the details are in {file})\n"
    assert "in status" in file.read_text() and "UnforeseenError" in file.read_text()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError(
            "Failed to parse parquet: External: Generic LocalFileSystem error: Unable to copy data to file: "
            "No space left on device (os error 28)"
        ),
    ],
    ids=["Python", "delta-rs"],
)
def test_a_full_disk_is_one_line_that_says_what_to_do(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    err = unforeseen(monkeypatch, capfd, tmp_path, error=error)
    assert err == (
        "fraudlake: a disk is full: free space for the lake and for temporary files, and repeat the command\n"
    )


def test_a_file_of_somebody_else_is_one_line_that_names_it_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied", "/lake/locks/detect")

    assert unforeseen(monkeypatch, capfd, tmp_path, error=refused) == (
        "fraudlake: /lake/locks/detect: Permission denied: run as its owner, or have the owner grant you the right\n"
    )


@pytest.mark.parametrize("place", ["runtime", "flag", "environment"])
def test_an_unforeseen_error_in_a_job_is_told_whole_since_its_machine_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, place: str
) -> None:
    flags = ("--catalog", "main", "--schema", "fraud") if place == "flag" else ()
    if place == "runtime":
        monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.9")
    if place == "environment":
        monkeypatch.setenv("FRAUDLAKE_CATALOG", "main")
        monkeypatch.setenv("FRAUDLAKE_SCHEMA", "fraud")

    err = unforeseen(monkeypatch, capfd, tmp_path, *flags)

    assert "Traceback (most recent call last)" in err and "in status" in err
    assert "UnforeseenError: a wheel came off\nand rolled away\n" in err
    assert err.splitlines()[-1] == "fraudlake: a wheel came off"
    assert list(tmp_path.iterdir()) == []


def test_a_lake_of_which_no_row_is_valid_says_so(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    lake = plain_lake.make(tmp_path / "lake")
    plain_lake.fill(lake, tables.SILVER_QUARANTINE, {"reasons": ["account_is_named"]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fraudlake_cli.commands.ingestion.run_step", lambda *given: None)
        refined = fraudlake_here("--lake", str(lake), "refine")
    assert "no row is valid, and the quarantine has 1 row: " in refined.stderr
    plain_lake.fill(lake, tables.SILVER_TRANSACTIONS, {"transaction_id": "1"})
    assert "no row is valid" not in fraudlake_here("--lake", str(lake), "status").stdout
