"""Hostile names: quotes, semicolons, paths, look-alikes and 10 kB of text are values, wherever they occur."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake import settings, tables
from fraudlake.errors import UsageError
from fraudlake.operations import lineage
from fraudlake.streams import deliver, detect, ingest, refine, stream
from fraudlake.text.sql_text import literal, spark_literal
from tests import plain_lake
from tests.conftest import FraudlakeHere, run

NAMES = (
    "it's", 'say "x"', "`x`", "\\", "\\'", "';--", "x' OR '1'='1", "'; DROP TABLE silver_alerts; --", "../../x", "a|b",
    "${x}", "%s", "alert", "\u0430lert", "\u202etrela", "a\nb\tc", "x" * 10_240,
)  # fmt: skip
"""The second "alert" begins with a letter of the Cyrillic alphabet."""
NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


@pytest.fixture
def alerted(tmp_path: Path) -> Path:
    """A lake with an alert for each name, whose account and id it is, and a quarantined row for each as its reason."""
    root = plain_lake.make(tmp_path / "it's; a lake")
    alerts = (
        {"alert_id": name, "account_id": name, "rule": name, "rule_version": 1, "transaction_id": name}
        | {"timestamp": NOON, "explanation": name, "entity": "account", "entity_key": name, "measures": []}
        | {"evidence": [{"variable": name, "transaction_id": name, "timestamp": NOON}]}
        for name in NAMES
    )
    plain_lake.fill(root, tables.SILVER_ALERTS, *alerts)
    rows = ({"accountId": name, "reasons": [name], "_source_file": name, "quarantined_at": NOON} for name in NAMES)
    plain_lake.fill(root, tables.SILVER_QUARANTINE, *rows)
    return root


def answered(root: Path, fraudlake_here: FraudlakeHere, *arguments: str) -> Any:
    ended = fraudlake_here("--lake", str(root), "--json", *arguments)
    assert ended.stderr == ""
    return json.loads(ended.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_command_finds_what_is_called_so_and_nothing_else(
    alerted: Path, fraudlake_here: FraudlakeHere, name: str
) -> None:
    explained = answered(alerted, fraudlake_here, "explain", name)
    assert (explained["alert"]["alert_id"], explained["alert"]["account_id"]) == (name, name)

    quarantined = answered(alerted, fraudlake_here, "quarantine", "--rule", name)
    assert quarantined["reasons"] == {name: 1}
    assert [row["accountId"] for row in quarantined["samples"][name]] == [name]


def test_a_name_that_is_nowhere_is_refused_in_one_line_and_no_table_changes(
    alerted: Path, fraudlake_here: FraudlakeHere
) -> None:
    for name in ("x' OR '1'='1' --", "' UNION SELECT * FROM silver_alerts --"):
        for command in (["explain", name], ["quarantine", "--rule", name]):
            ended = fraudlake_here("--lake", str(alerted), *command)
            assert (ended.returncode, ended.stdout) == (2, "")
            assert f"{name}: " in ended.stderr and ended.stderr.count("\n") == 1
    counts = answered(alerted, fraudlake_here, "status")
    assert (counts["quarantine"], counts["alerts"]) == (len(NAMES), len(NAMES))


@pytest.mark.parametrize("name", [*NAMES[:12], "a b", "a.b", ""])
def test_no_catalog_or_schema_has_a_name_that_ends_its_quotes(name: str) -> None:
    for names in ({"catalog": name, "schema_name": "fraud"}, {"catalog": "main", "schema_name": name}):
        with pytest.raises(UsageError, match="should match pattern"):
            settings.load(**names)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("alert", "\u0430lert")] + [".", "..", "é"])
@pytest.mark.parametrize("setting", ["topic", "delivery_topic", "fast_alerts_topic"])
def test_no_topic_has_a_name_that_kafka_does_not_know(setting: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"{setting.replace('_', '-')}"):
        settings.load(bootstrap_servers="broker:9092", **{setting: name})


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("alert", "x" * 10_240)] + ["a b", "a-b", ""])
def test_no_column_can_be_declared_under_such_a_name(name: str) -> None:
    with pytest.raises(UsageError):
        settings.load(columns={name: "string"})


@pytest.mark.parametrize("name", ["it's", "a;b", "a.b.c", "`a`", 'a"b', "a b", ""])
def test_no_database_table_can_have_such_a_name(name: str) -> None:
    with pytest.raises(UsageError):
        settings.load(jdbc_table=name)


@pytest.mark.stream
def test_a_path_is_one_value_to_spark(spark: Any) -> None:
    for name in (*NAMES, "${user.dir}"):
        for text in (spark_literal(name), literal(name)):
            assert spark.sql(f"SELECT {text} AS name").collect() == [(name,)]


@pytest.mark.long
@pytest.mark.stream
def test_hostile_names_go_all_the_way_from_a_file_to_a_delivered_alert(
    lake: Callable[..., Any], tmp_path: Path
) -> None:
    opened = lake("it's; a $lake", delivery_folder=str(tmp_path / "delivered"))
    landing = opened.root / "landing" / "';-- `x` $(y)"
    landing.mkdir(parents=True)
    rows = [
        {"dt": NOON + timedelta(seconds=at), "accountId": name, "amount": amount, "alert": False, "transaction_id": id_}
        for name in NAMES
        for at, amount, id_ in ((0, 0.5, f"small {name}"), (1, 600.0, f"large {name}"))
    ]
    pq.write_table(
        pa.Table.from_pylist(rows).cast(
            pa.schema(
                [
                    ("dt", pa.timestamp("us")),
                    ("accountId", pa.string()),
                    ("amount", pa.float64()),
                    ("alert", pa.bool_()),
                    ("transaction_id", pa.string()),
                ]
            )
        ),
        landing / "part-'; DROP TABLE x; --",
    )
    for step in (ingest.streams, refine.streams, detect.streams):
        stream.run(opened, step(opened), "available-now")
    stream.run(opened, deliver.streams(opened, "file"), "available-now")

    alerts = opened.store.query(
        f"SELECT alert_id, account_id FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS
    ).to_pylist()
    assert sorted(alert["account_id"] for alert in alerts) == sorted(NAMES)
    assert len({alert["alert_id"] for alert in alerts}) == len(NAMES)
    for alert in alerts:
        shown = lineage.explain(opened, alert["alert_id"])
        assert shown.transactions[-1].landed["file"] == "';-- `x` $(y)/part-'; DROP TABLE x; --"
        assert shown.transactions[0].values["transaction_id"] == f"small {alert['account_id']}"
    files = (tmp_path / "delivered").glob("*.jsonl")
    events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(event["data"]["account_id"] for event in events) == sorted(NAMES)
    run(opened.root, "optimize")
    assert opened.store.count(tables.SILVER_ALERTS) == len(NAMES)
