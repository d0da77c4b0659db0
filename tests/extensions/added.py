"""What each diff of the recipes adds; these tests run where the diffs are applied, so pytest does not collect them."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from fraudlake import settings, tables
from fraudlake.errors import UsageError
from fraudlake_cli.app import App
from fraudlake_cli.commands import cli
from tests import plain_lake

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
"""A Saturday."""
RUNNER = CliRunner()
EXTENDED = Path(settings.__file__).parents[3]
"""The folder in which the diffs are applied."""


@pytest.mark.stream
def test_a_quality_rule_rejects_what_breaks_it(spark: Any) -> None:
    from fraudlake.silver import transactions

    accounts = [{"dt": NOON, "accountId": "1" * length, "amount": 5.0, "_ingested_at": NOON} for length in (64, 65)]
    rows = spark.createDataFrame(pa.Table.from_pylist(accounts, tables.BRONZE_TRANSACTIONS.schema))
    checked = transactions.checked(rows, settings.Settings()).orderBy("accountId").collect()
    assert [row["reasons"] for row in checked] == [[], ["account_is_short"]]


def test_an_aggregate_is_a_table_of_the_lake_and_a_step_of_aggregate() -> None:
    from fraudlake.lake import contents
    from fraudlake.operations import lag

    assert "gold_merchant_hourly" in {table.name for table in contents.TABLES}
    assert lag.command_of("merchant_hourly") == "fraudlake aggregate"


@pytest.mark.stream
def test_an_aggregate_is_computed_at_its_grain(spark: Any) -> None:
    from fraudlake.gold import gold_tables

    (aggregate,) = (one for one in gold_tables.GROUPED if one.table.name == "gold_merchant_hourly")
    times = [NOON + timedelta(minutes=minutes) for minutes in (0, 59, 60)]
    rows = {"merchant_id": ["m", "m", "n"], "timestamp": times, "date": [NOON.date()] * 3}
    transactions = spark.createDataFrame(pa.table(rows))
    computed = aggregate.compute(transactions, transactions, ()).orderBy("hour").collect()
    assert [(row["merchant_id"], row["hour"].hour, row["transactions"]) for row in computed] == [
        ("m", 12, 2),
        ("n", 13, 1),
    ]


def test_a_feature_is_computed_stored_and_explained() -> None:
    from fraudlake.feature import OWN
    from fraudlake.features import account_features
    from tests.features.test_account_features import SECOND, Row, table

    microseconds = int(NOON.timestamp()) * SECOND
    days = [Row("1", microseconds + day * 86_400 * SECOND, 5.0, position=day) for day in range(3)]
    computed, _ = account_features.compute(account_features.MEMORY.empty_table(), table(days))
    assert computed["is_weekend"].to_pylist() == [1, 1, 0]
    assert "is_weekend" in tables.GOLD_FRAUD_PREDICTIONS.columns
    assert "it is on a weekend: {:.0f}" in {feature.sentence for feature in OWN}


def test_a_declared_aggregate_is_valid_and_computed() -> None:
    from tests.features import test_entity_features as rows_of

    checked = RUNNER.invoke(cli, ["features", "check", str(EXTENDED / "features.toml")])
    assert checked.stdout == "largest_of_a_month: max of amount of its account in 30 days\n"

    declared = tomllib.loads((EXTENDED / "features.toml").read_text())["features"]
    paid = ((0, 5.0), (10, 7.0), (20, 6.0), (45, 1.0), (80, 1.0))
    rows = [rows_of.Row(1, day * 86_400, nth, amount, *[None] * 4) for nth, (day, amount) in enumerate(paid)]
    computed = rows_of.computed([rows], rows_of.plan(features=declared))
    assert [row["largest_of_a_month"] for row in computed] == [None, 5.0, 7.0, 6.0, None]


def test_a_command_answers_and_is_listed_under_its_task(tmp_path: Path) -> None:
    root = plain_lake.make(tmp_path / "lake")
    plain_lake.fill(root, tables.BRONZE_FILES, {"status": "ingested"}, {"status": "ingested"}, {"status": "rejected"})
    answer = RUNNER.invoke(cli, ["files", "--lake", str(root), "--json"])
    assert json.loads(answer.stdout) == {"ingested": 2, "rejected": 1}
    begin = RUNNER.invoke(cli, ["--help"]).stdout.partition("First steps:")[2].partition("\n\n")[0]
    assert "files" in begin


@pytest.mark.stream
def test_a_source_is_read_once_and_counted(spark: Any, tmp_path: Path) -> None:
    from fraudlake.lake import open_lake
    from fraudlake.operations.status import status
    from fraudlake.streams import ingest, refine, stream

    folder = tmp_path / "lines"
    folder.mkdir()
    lake = open_lake(settings.load(lake=tmp_path / "lake", lines_folder=str(folder), source="json_lines"))

    def land(name: str, *accounts: str) -> None:
        line = '{"dt": "2026-03-07 12:00:00.000", "accountId": "%s", "amount": 5.0, "alert": false}\n'
        (folder / name).write_text("".join(line % account for account in accounts))
        stream.run(lake, ingest.streams(lake), "available-now")

    land("a.jsonl", "1", "2")
    land("b.jsonl", "3")
    stream.run(lake, refine.streams(lake), "available-now")
    rows = lake.store.rows(tables.SILVER_TRANSACTIONS).select(["account_id", "source", "position"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        ("1", "kafka:a.jsonl/0000000000", 0),
        ("2", "kafka:a.jsonl/0000000000", 1),
        ("3", "kafka:b.jsonl/0000000000", 0),
    ]
    assert (status(lake).source.landed, status(lake).gaps) == (3, [])


def test_a_desk_page_is_linked_and_shows_its_table(tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    from fraudlake.lake.local_store import LocalStore
    from fraudlake_desk.web import server
    from fraudlake_desk.web.application import application
    from fraudlake_desk.web.role import Role

    root = plain_lake.make(tmp_path / "lake")
    plain_lake.fill(root, tables.BRONZE_FILES, {"status": "ingested"}, {"status": "ingested"}, {"status": "rejected"})
    store = LocalStore(settings.Settings(lake=root))
    site, access = server.site_of_one(store, "anna", Role.READER, ("127.0.0.1", 8642))
    browser = TestClient(application(site), base_url="http://127.0.0.1:8642")
    assert '<a href="/files">Files</a>' in browser.get(f"/?token={access.token}").text
    shown = re.findall(r'<td>(\w+)</td><td class="number">(\d+)</td>', browser.get("/files").text)
    assert shown == [("ingested", "2"), ("rejected", "1")]


def test_a_workspace_job_is_one_that_a_workspace_accepts_and_calls_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from databricks.bundles.jobs import Job

    from tests.bundle import rendering
    from tests.bundle.costs import costs
    from tests.bundle.problems import problems

    monkeypatch.setattr(rendering, "ROOT", EXTENDED)
    rendered = rendering.render("prod", **rendering.GIVEN)
    assert Job.from_dict(rendered.jobs()["audit"]).name == "fraudlake audit"
    assert problems(rendered) == []
    assert costs(rendered)["audit"].dbu[0] > 0
    ((called),) = [parameters for job, _, parameters in rendering.tasks("prod", **rendering.GIVEN) if job == "audit"]
    command = cli.make_context("fraudlake", called, obj=App())
    assert [*command._protected_args, *command.args] == ["audit", "verify"]
    assert RUNNER.invoke(cli, ["audit", "verify", "--help"]).exit_code == 0


def test_a_destination_delivers(tmp_path: Path) -> None:
    from fraudlake.delivery import event
    from fraudlake.delivery.destinations import DESTINATIONS
    from fraudlake.delivery.sink import Outcome
    from tests.delivery.alerts import alert
    from tests.delivery.receiver import listening, status

    events = [event.make_event(alert(number), "lake") for number in range(3)]
    with listening() as receiver:
        receiver.plan.extend([0.0, status(500)])
        sink = DESTINATIONS["chat"].sink(settings.load(chat_url=receiver.url), None)  # type: ignore[arg-type]
        outcomes = sink.send(events, "a-name")
    assert [json.loads(request.body) for request in receiver.taken] == [{"text": alert(0)["explanation"]}]
    reason = "it answered 500"
    assert outcomes == [Outcome(1), Outcome(1, reason), Outcome(0, f"not tried: {reason}")]


def test_a_destinations_settings_are_settings_and_its_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAUDLAKE_CHAT_URL", "https://chat.example.com/of-the-tests")
    made = settings.load(chat_timeout="3")
    assert (made.chat_url.get_secret_value(), made.chat_timeout) == ("https://chat.example.com/of-the-tests", 3)
    assert "of-the-tests" not in repr(made)
    assert "chat_url" in settings.SECRETS
    help = RUNNER.invoke(cli, ["deliver", "--help"], terminal_width=200).stdout
    assert "[chat|" in help
    assert "--chat-timeout" in help
    assert "--chat-url" not in help
    with pytest.raises(UsageError, match=r"^--chat-timeout: chat_timeout = '0': |^--chat-timeout = '0': "):
        settings.load(chat_timeout="0")


def test_a_kind_of_rule_is_read_from_the_settings_checked_and_raises_alerts(tmp_path: Path) -> None:
    from fraudlake.rules.columns import query_columns

    file = tmp_path / "rules.toml"
    file.write_text('[[rules]]\nkind = "repeat"\nname = "same_again"\ntimes = 3\n')
    checked = RUNNER.invoke(cli, ["rules", "check", "same_again", "--config", str(file)])
    assert checked.stdout == "same_again: a valid rule of kind repeat\n"

    (rule,) = settings.load(file).rules
    times = [NOON + timedelta(seconds=number) for number in range(5)]
    rows = {"account_id": ["1"] * 5, "timestamp": times, "amount": [5.0, 7.0, 7.0, 7.0, 5.0]}
    (alert,) = rule.compile(query_columns({})).evaluate(pa.table(rows)).alerts
    assert (alert.rows, alert.roles) == ([1, 2, 3], ["ONCE", "AGAIN", "AGAIN"])


def test_a_column_is_in_the_tables_of_the_lake_and_read_from_the_payload(tmp_path: Path) -> None:
    from fraudlake.bronze import contract
    from fraudlake.lake import open_lake

    lake = open_lake(settings.load(EXTENDED / "fraudlake.toml", lake=tmp_path / "lake"))
    for table in (tables.BRONZE_TRANSACTIONS, tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE):
        assert "merchant_id" in lake.store.rows(table).column_names
    assert contract.make(lake.settings.columns).fields[-1][:3] == ("merchant_id", "merchantId", "STRING")
