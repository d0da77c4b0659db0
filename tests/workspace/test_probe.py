"""The probe from outside, through its job, and what it sends to other processes."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark import cloudpickle

from fraudlake.lake import workspace as lake_workspace
from fraudlake.settings import Settings
from fraudlake_cli.main import main
from fraudlake_tools.probe import assumptions, probe, worker
from fraudlake_tools.probe.probe import Answer
from fraudlake_tools.probe.scratch import Scratch
from tests.bundle.problems import known
from tests.bundle.rendering import GIVEN, tasks
from tests.workspace.conftest import Command
from tests.workspace.server import Workspace, a_task

FINE = Answer("session", True, True, "Spark 4.0")
NOTED = Answer("persist", False, False, "[NOT_SUPPORTED] no cache", "nothing: rows are computed twice")
WRONG = Answer("Auto Loader", False, True, "0 of 2 rows [came]", "ingest cannot read files")


@pytest.fixture
def deployed(workspace: Workspace) -> Workspace:
    """A workspace in which the bundle's job is deployed."""
    settings = {"name": "[dev jane] fraudlake probe", "tags": {"project": "fraudlake", "target": "dev"}}
    workspace.jobs.append({"job_id": 13, "settings": {**settings, "tasks": [a_task("main", "fraud")]}})
    return workspace


def printed(*answers: Answer) -> str:
    return f"✓ session: Spark 4.0\n{json.dumps(probe.as_dict(answers))}\nWARN some other task's line\n"


def test_outside_the_job_is_run_and_its_answers_are_shown(fraudlake: Command, deployed: Workspace) -> None:
    deployed.prints = printed(FINE, NOTED)

    code, out, _ = fraudlake("probe")

    assert code == 0
    assert out.splitlines() == [
        "✓ session: Spark 4.0",
        "! persist: [NOT_SUPPORTED] no cache",
        "  nothing: rows are computed twice",
    ]
    assert [run["job_id"] for run in deployed.runs] == [13]


def test_an_assumption_that_does_not_hold_fails_and_says_what_to_do(fraudlake: Command, deployed: Workspace) -> None:
    deployed.prints, deployed.fails_with = printed(FINE, NOTED, WRONG), "fraudlake: probe: 1 of 3"

    code, out, err = fraudlake("probe")

    assert code == 1
    assert out.splitlines()[-2:] == ["✗ Auto Loader: 0 of 2 rows [came]", "  ingest cannot read files"]
    assert err.splitlines()[-1] == "fraudlake: probe: 1 of 3 assumptions do not hold here: Auto Loader"


def test_the_answers_as_one_object(fraudlake: Command, deployed: Workspace) -> None:
    deployed.prints = printed(FINE, WRONG)

    code, out, _ = fraudlake("probe", json=True)

    assert code == 1
    assert json.loads(out) == {
        "ok": False,
        "answers": [
            {"question": "session", "ok": True, "matters": True, "seen": "Spark 4.0", "remedy": None},
            {
                "question": "Auto Loader",
                "ok": False,
                "matters": True,
                "seen": "0 of 2 rows [came]",
                "remedy": "ingest cannot read files",
            },
        ],
    }


def test_a_run_that_failed_before_it_asked_says_why(fraudlake: Command, deployed: Workspace) -> None:
    deployed.prints, deployed.fails_with = '{"ok": is no answer\n', "ModuleNotFoundError: no fraudlake"

    code, _, err = fraudlake("probe")

    assert code == 1
    assert "run 500 failed: ingest: ModuleNotFoundError: no fraudlake" in err.splitlines()[-1]


def test_a_run_that_outputnothing_is_no_success(fraudlake: Command, deployed: Workspace) -> None:
    code, _, err = fraudlake("probe")

    assert code == 1
    assert "run 500 has ended, but its output has no answers" in err.splitlines()[-1]


def test_without_its_job_the_probe_cannot_ask(fraudlake: Command, workspace: Workspace) -> None:
    code, _, err = fraudlake("probe")

    assert code == 2
    assert "there is no deployed job 'probe'" in err


@pytest.mark.parametrize("target", ["dev", "staging", "prod"])
def test_the_job_asks_in_the_lake_that_the_bundle_deploys(
    target: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[Settings] = []
    receivers: list[str | None] = []

    def ask(spark: Any, settings: Settings, receiver: str | None) -> list[Answer]:
        asked.append(settings)
        receivers.append(receiver)
        return [FINE]

    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.9")
    monkeypatch.setattr(probe, "ask", ask)
    monkeypatch.setattr(lake_workspace, "compute_session", object)
    to = {"prod": {"receiver": "alerts.example.com:443"}}.get(target, {})
    [(_, _, parameters)] = [task for task in tasks(target, **GIVEN, **to) if task[0] == "probe"]
    monkeypatch.setattr("sys.argv", ["fraudlake", *parameters])

    main()

    output = capfd.readouterr()
    assert probe.as_dict([FINE]) == json.loads(output.out)
    assert output.err == "✓ session: Spark 4.0\n"
    assert receivers == [to.get("receiver")]
    [settings] = asked
    schema = {"dev": "dev_someone_fraudlake", "staging": "staging_fraudlake", "prod": "fraudlake"}[target]
    assert (settings.catalog, settings.schema_name) == ("main", schema)
    assert settings.model_name.startswith(f"main.{schema}.") and settings.model_name.endswith("fraud_model")


def test_every_question_is_asked_once_and_has_a_remedy() -> None:
    questions = list(assumptions.assumptions("alerts.example.com:443"))

    assert len({assumption.question for assumption in questions}) == len(questions)
    assert all(assumption.remedy for assumption in questions)


def test_the_package_needs_no_setting_that_serverless_compute_refuses() -> None:
    settings = [item for item in assumptions.assumptions() if item.question.startswith("setting ")]
    vital = [setting.question for setting in settings if setting.matters]

    assert vital
    assert {question.removeprefix("setting ") for question in vital} <= set(known("serverless_settings"))


def test_what_a_process_cannot_answer_is_asked_once_and_fails_its_questions_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = []

    def broken(scratch: Scratch) -> worker.Report:
        calls.append(scratch)
        raise RuntimeError("no worker\n  at Frame")

    monkeypatch.setitem(assumptions._PROCESSES, "micro_batch", broken)
    settings = Settings(catalog="main", schema_name="fraud", checkpoints=str(tmp_path))
    answers = list(probe.ask(cast(Any, None), settings))  # a session that can do nothing

    of_micro_batch = [answer for answer in answers if answer.question.startswith("foreachBatch")]
    assert {answer.seen for answer in of_micro_batch} == {"RuntimeError: no worker"}
    assert len(calls) == 1
    assert [answer.question for answer in answers] == [
        *(assumption.question for assumption in assumptions.assumptions()),
        "clean up",
    ]
    assert answers[-1].seen.startswith("left behind: `main`.`fraud`.`fraudlake_probe_")
    assert {answer.question for answer in answers if answer.ok} == {"volume of the checkpoints"}
    assert list(tmp_path.iterdir()) == []


class Sent(Exception):  # noqa: N818 - no error
    """Holds the function that would have been sent to a worker."""


class Sending(Scratch):
    """A scratch without a session: what is to run elsewhere comes back as an exception."""

    def __init__(self, folder: Path) -> None:
        super().__init__(cast(Any, self), Settings(catalog="main", schema_name="fraud", checkpoints=str(folder)))

    def range(self, rows: int) -> Any:
        return self

    def mapInArrow(self, function: Any, schema: str) -> Any:  # noqa: N802 - Spark's name
        raise Sent(function)

    def filled(self, name: str, rows: int = 10) -> str:
        return name

    def stream(self, table: str) -> Any:
        return self

    @property
    def writeStream(self) -> Any:  # noqa: N802 - Spark's name
        return self

    def foreachBatch(self, function: Any) -> Any:  # noqa: N802 - Spark's name
        return function

    def run(self, name: str, writer: Any, into: str | None = None) -> None:
        raise Sent(writer)


WITHOUT_THE_WHEEL = """
import sys
sys.modules["fraudlake"] = None
import pyarrow
from pyspark import cloudpickle
function = cloudpickle.loads(open(sys.argv[1], "rb").read())
if sys.argv[2] == "task":
    print(next(function(iter([pyarrow.record_batch({"id": [0]})])))["report"][0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("process", ["task", "micro_batch"])
def test_what_travels_to_a_worker_needs_no_wheel_there(process: str, tmp_path: Path) -> None:
    with pytest.raises(Sent) as sent:
        assumptions._PROCESSES[process](Sending(tmp_path))
    (tmp_path / "function").write_bytes(cloudpickle.dumps(sent.value.args[0]))
    scratch = next(iter(re.findall(rb"fraudlake_probe_[0-9a-f]{8}", (tmp_path / "function").read_bytes()))).decode()
    (tmp_path / scratch).mkdir()

    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_WHEEL, str(tmp_path / "function"), process],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    if process == "task":
        report = json.loads(ended.stdout)
        assert report["imports"][0] is False and "fraudlake" in report["imports"][1]
        assert report["volume"][0] is True


def test_a_report_that_no_table_takes_comes_in_the_error(tmp_path: Path) -> None:
    class Stuck(Sending):
        def run(self, name: str, writer: Any, into: str | None = None) -> None:
            raise RuntimeError(
                f'STREAM_FAILED {worker._REPORT_MARKER}{{"names": [false, "no table"]}}{worker._REPORT_MARKER} at Frame'
            )

    assert worker.in_a_micro_batch(Stuck(tmp_path)) == {"names": (False, "no table")}


def test_a_micro_batch_reaches_a_receiver_that_takes_connections_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        taken = worker._ask()(worker._network(address))
    refused = worker._ask()(worker._network(address))

    assert taken == {"network": (True, f"{address} takes connections")}
    assert refused["network"][0] is False
    assert refused["network"][1].startswith("ConnectionRefusedError")


def test_the_network_is_asked_about_only_if_there_is_a_receiver() -> None:
    questions = [assumption.question for assumption in assumptions.assumptions()]
    with_receiver = [assumption.question for assumption in assumptions.assumptions("alerts.example.com:443")]

    assert set(with_receiver) - set(questions) == {"foreachBatch: the network to alerts.example.com:443"}


def test_a_receiver_is_a_host_with_a_port(fraudlake: Command, workspace: Workspace) -> None:
    code, _, err = fraudlake("probe", "--receiver", "https://alerts.example.com/fraud")

    assert (code, err.count("\n")) == (2, 1)
    assert "must be HOST:PORT, such as alerts.example.com:443" in err
