"""Scores raise alerts: rules of the kind model, against the predictions themselves and a hand-written id."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fraudlake import tables
from fraudlake.detection import comparison, coverage, rule_table
from fraudlake.detection.list_entries import Entry
from fraudlake.errors import FraudlakeError
from fraudlake.lake import open_lake
from fraudlake.lake.local_store import LocalStore
from fraudlake.model import alerts, budget, published, training
from fraudlake.operations import lineage
from fraudlake.operations.backfill import backfill
from fraudlake.operations.rebuild import rebuild
from fraudlake.review.window import Window
from fraudlake.rules.kinds import RULE
from fraudlake.settings import Settings
from fraudlake.streams import detect, ingest, refine, score, stream
from fraudlake_desk import rules as rules_of_desk
from fraudlake_desk.lookup import history
from tests.cut_appends import killed_after
from tests.traffic import traffic

pytestmark = pytest.mark.stream

LIKELY = {"kind": "model", "name": "likely", "threshold": 0.2}
DAY = date(2026, 1, 5)
FEW = {"kind": "model", "name": "few", "threshold": "2 accounts a day"}


def land(lake: Any, first: int, last: int) -> None:
    """Land some of the days of the traffic, the first of which is 1, as a file; it gets to silver."""
    rows, number = traffic(), pc.day_of_year(traffic()["dt"])
    chosen = rows.filter(pc.and_(pc.greater_equal(number, first), pc.less_equal(number, last)))
    (lake.folder / "landing").mkdir(exist_ok=True)
    pq.write_table(chosen.drop_columns(["kind", "n"]), lake.folder / "landing" / f"part-{first}.parquet")
    for step in (ingest, refine):
        stream.run(lake, step.streams(lake), "available-now")


def score_new(lake: Any) -> None:
    stream.run(lake, score.streams(lake)[:1], "available-now")


def evaluate(lake: Any, **status: str) -> None:
    """Have these rules of the kind evaluated, and no other."""
    others = [(version.rule, "live") for version in rule_table.read(lake).select_source("transactions").live]
    known = {"likely": LIKELY, "few": FEW}
    wanted = [(RULE.validate_python(known[name]), one) for name, one in status.items()]
    rule_table.apply(lake, [*others, *wanted], "ann", None)


def raised(lake: Any, table: tables.Table = tables.SILVER_ALERTS) -> dict[tuple[str, str], dict[str, Any]]:
    """The alerts of the kind by rule and transaction, of which no two are of the same."""
    rows = lake.store.query(f"SELECT * FROM {table.name} WHERE kind = 'model'", table).to_pylist()
    by_transaction = {(row["rule"], row["transaction_id"]): row for row in rows}
    assert len(by_transaction) == len(rows)
    return by_transaction


def scored(lake: Any, day: int | None = None) -> dict[str, dict[str, Any]]:
    clauses = "" if day is None else f"WHERE date = DATE '2026-01-{day:02}'"
    rows = lake.store.query(
        f"SELECT * FROM {tables.GOLD_FRAUD_PREDICTIONS.name} {clauses}", tables.GOLD_FRAUD_PREDICTIONS
    ).to_pylist()
    return {row["transaction_id"]: row for row in rows}


def predictions(lake: Any, version: str) -> dict[str, dict[str, Any]]:
    rows = lake.store.query(
        f"SELECT * FROM {tables.GOLD_FRAUD_PREDICTIONS.name} WHERE model_version = '{version}'",
        tables.GOLD_FRAUD_PREDICTIONS,
    ).to_pylist()
    return {row["transaction_id"]: row for row in rows}


def likely(rows: dict[str, dict[str, Any]]) -> set[tuple[str, str]]:
    return {("likely", name) for name, row in rows.items() if row["probability"] >= 0.2}


@pytest.fixture(scope="module")
def begun(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A lake whose model has scored the days that it learned from, before there was a rule of the kind."""
    root = tmp_path_factory.mktemp("model-rules") / "lake"
    lake = open_lake(Settings(lake=root, shuffle_partitions=2, buckets=2, algorithm="logistic", threshold=0.99999999))
    land(lake, 1, 4)
    stream.run(lake, detect.streams(lake), "available-now")
    training.train(lake)
    score_new(lake)
    return lake


@pytest.fixture
def lake(begun: Any, tmp_path: Path) -> Any:
    shutil.copytree(begun.folder, tmp_path / "lake")
    return open_lake(begun.settings.model_copy(update={"lake": tmp_path / "lake"}))


@pytest.mark.long
def test_a_live_rule_and_a_shadow_raise_the_alerts_of_what_is_scored_from_then_on(lake: Any) -> None:
    evaluate(lake, likely="live", few="shadow")
    land(lake, 5, 5)
    score_new(lake)
    new = scored(lake, 5)
    assert likely(new) == {*raised(lake)}
    (profile,) = published.all_profiles(lake).values()
    level = budget.threshold("2 accounts a day", profile["budgets"])
    few = {("few", name) for name, row in new.items() if row["probability"] >= level}
    assert few == {*raised(lake, tables.SILVER_SHADOW_ALERTS)} != set()

    name = min(name for name, row in new.items() if 0.2 <= row["probability"] < 0.99999999)
    alert, row = raised(lake)["likely", name], new[name]
    measures = dict(alert["measures"])
    assert alert["alert_id"] == hashlib.sha256(f"likely|{name}|{name}".encode()).hexdigest()[:32]
    assert (alert["kind"], alert["rule_version"], alert["entity"]) == ("model", 1, "account")
    assert alert["entity_key"] == alert["account_id"] == row["account_id"]
    assert [(part["transaction_id"], part["amount"]) for part in alert["evidence"]] == [(name, row["amount"])]
    assert float(measures["probability"]) == pytest.approx(row["probability"])
    assert (measures["threshold"], measures["model_version"]) == ("0.2", "1")
    assert json.loads(measures["reasons"]) == row["reasons"] != []
    assert alert["explanation"].startswith(f"Account {row['account_id']} paid {row['amount']:.2f} at ")
    assert alert["explanation"].endswith(f"(limit 0.200): {'; '.join(row['reasons'])}.")

    # It is judged over what was scored under it, a backtest over all that was scored; a replay changes nothing.
    rules = rule_table.read(lake)
    version = rules.version_of("likely")
    compared = comparison.compare(lake, rules, version, None, None).report
    assert (compared.transactions, compared.alerts) == (len(new), len(likely(new)))
    assert coverage.evaluated_rows(lake, version, by_time=True).count() == len(new)
    of_day, matches = alerts.backtest(lake, version.rule, date(2026, 1, 5), date(2026, 1, 5))
    assert of_day.as_dict() == compared.as_dict()
    assert {("likely", name) for name in matches.toArrow()["transaction_id"].to_pylist()} == likely(new)
    of_all, _ = alerts.backtest(lake, version.rule, None, None)
    assert (of_all.transactions, of_all.alerts) == (len(scored(lake)), len(likely(scored(lake))))
    on_desk = rules_of_desk.backtest(LocalStore(lake.settings), version.rule).report
    same = replace(of_all, amount_at_risk=pytest.approx(of_all.amount_at_risk))
    assert replace(on_desk, samples=of_all.samples) == same
    stream.run(lake, detect.streams(lake), "available-now")
    replayed = rebuild(lake, date(2026, 1, 4), date(2026, 1, 5)).changes["silver_alerts"]
    assert (replayed.added, replayed.gone) == (len(likely(scored(lake, 4))), 0)
    assert {row["rule"] for row in replayed.samples_added} == {"likely"}


@pytest.mark.long
def test_no_later_model_changes_what_an_analyst_has_seen(lake: Any) -> None:
    evaluate(lake, likely="live")
    land(lake, 5, 5)
    score_new(lake)
    stream.run(lake, detect.streams(lake), "available-now")
    alert = next(row for row in raised(lake).values() if json.loads(dict(row["measures"])["reasons"]))

    def seen() -> Any:
        """What the desk's page says of the account's scores, and what explain says of the alert."""
        store = LocalStore(lake.settings)
        account = history.find_account(store, alert["account_id"])
        shown = history.read_history(store, account, Window(DAY, DAY), 30, ())
        scores = [(row["transaction_id"], row["probability"], row["reasons"]) for row in shown.transactions]
        return scores, [row["explanation"] for row in shown.alerts], lineage.explain(lake, alert["alert_id"]).alert

    before = seen()
    assert any(reasons for _, _, reasons in before[0])
    lowered = lake.settings.model_copy(update={"threshold": 0.01, "algorithm": "trees"})
    later = open_lake(lowered)
    second = training.train(later).version.number
    training.promote(later, second, force=True)
    for version in ("1", "2"):
        assert backfill(later, DAY, DAY, version) == (version, len(scored(lake, 5)))
    changes = rebuild(later, DAY, DAY, apply=True).changes["silver_alerts"]
    assert (changes.added, changes.gone) == (0, 0)
    of_second = {name: row for name, row in predictions(lake, "2").items() if row["account_id"] == alert["account_id"]}
    assert any(of_second[name]["reasons"] != reasons for name, _, reasons in before[0] if name in of_second)
    assert seen() == before


def test_entries_suppress_alerts_of_scores_in_the_stream_a_backtest_and_a_replay(lake: Any) -> None:
    evaluate(lake, likely="live", few="shadow")
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    rows = [
        Entry(
            f"{rule}-{account}",
            "suppressed",
            rule,
            "account",
            account,
            account,
            noon,
            noon + timedelta(days=1),
            "",
            "ann",
            noon,
        )
        for rule in ("likely", "few")
        for account in lake.store.query(
            f"SELECT DISTINCT account_id FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS
        )["account_id"].to_pylist()
    ]
    entries = pa.Table.from_pylist([entry.added for entry in rows], tables.SILVER_LIST_ENTRIES.schema)
    lake.writer(tables.SILVER_LIST_ENTRIES).write(entries, "append")
    land(lake, 5, 5)
    score_new(lake)

    new = scored(lake, 5)
    known = {entry.entity_key for entry in rows}
    held = {name for name, row in new.items() if row["timestamp"] >= noon and row["account_id"] in known}
    left = {key for key in likely(new) if key[1] not in held}
    assert {*raised(lake)} == left
    suppressed = raised(lake, tables.SILVER_SUPPRESSED_ALERTS)
    assert {key for key in suppressed if key[0] == "likely"} == likely(new) - left
    assert all(row["entry_id"] == f"{rule}-{row['account_id']}" for (rule, _), row in suppressed.items())
    assert {(rule, row["is_shadow"]) for (rule, _), row in suppressed.items()} <= {("likely", False), ("few", True)}
    assert min(len(left), len(likely(new) - left)) > 3

    rule = rule_table.read(lake).version_of("likely").rule
    report, _ = alerts.backtest(lake, rule, date(2026, 1, 5), date(2026, 1, 5))
    assert (report.alerts, report.suppressed) == (len(left), len(likely(new) - left))
    stream.run(lake, detect.streams(lake), "available-now")
    changes = rebuild(lake, date(2026, 1, 5), date(2026, 1, 5)).changes
    assert (changes["silver_alerts"].added, changes["silver_alerts"].gone) == (0, 0)
    assert (changes["silver_suppressed_alerts"].added, changes["silver_suppressed_alerts"].gone) == (0, 0)


@pytest.mark.long
def test_a_running_stream_takes_a_change_up_with_its_next_micro_batch(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate(lake, likely="live")
    land(lake, 5, 5)
    score_new(lake)
    land(lake, 6, 6)
    (scoring, _), read = score.streams(lake), rule_table.read

    def changed(lake: Any, change: int | None = None) -> Any:
        """Change the rules when the micro-batch has begun, and asks for them."""
        monkeypatch.setattr(rule_table, "read", read)
        evaluate(lake, few="live")
        return read(lake, change)

    monkeypatch.setattr(rule_table, "read", changed)
    stream.run(lake, [scoring], "available-now")
    of_likely = {key for key in raised(lake) if key[0] == "likely"}
    assert of_likely == likely(scored(lake, 5))
    assert {name for rule, name in raised(lake) if rule == "few"} < {*scored(lake, 6)}
    assert len(raised(lake)) > len(of_likely)


@pytest.mark.usefixtures("each_writer")
@pytest.mark.long
@pytest.mark.parametrize("appends", range(4))
def test_a_micro_batch_that_is_killed_anywhere_raises_each_alert_once_under_its_rules_and_model(
    lake: Any, monkeypatch: pytest.MonkeyPatch, appends: int
) -> None:
    """Predictions, alerts and shadow alerts are three commits; then another model, and other rules, take over."""
    evaluate(lake, likely="live", few="shadow")
    land(lake, 5, 5)
    with killed_after(appends, monkeypatch), pytest.raises(FraudlakeError, match="killed"):
        score_new(lake)
    evaluate(lake, likely="shadow")
    land(lake, 6, 6)
    training.promote(lake, training.train(lake).version.number, force=True)
    score_new(lake)

    first, second = scored(lake, 5), scored(lake, 6)
    versions = {row["model_version"] for row in first.values()}, {row["model_version"] for row in second.values()}
    assert versions == ({"1"} if appends else {"2"}, {"2"})
    # A micro-batch that has raised nothing yet takes the rules as they are now.
    is_fixed = appends >= 2
    assert {*raised(lake)} == (likely(first) if is_fixed else set())
    shadows = {*raised(lake, tables.SILVER_SHADOW_ALERTS)}
    assert {key for key in shadows if key[0] == "likely"} == likely(second) | (set() if is_fixed else likely(first))
    (version,) = versions[0]
    level = budget.threshold("2 accounts a day", published.all_profiles(lake)[version]["budgets"])
    few = {("few", name) for name, row in first.items() if row["probability"] >= level}
    assert {key for key in shadows if key[0] == "few"} == (few if is_fixed else set())
