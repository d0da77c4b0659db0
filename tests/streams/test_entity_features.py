"""Declared features in the stream: those of a history, by several entities, with restarts and new features."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.features import account_features, lake_features
from fraudlake.lake import Lake
from fraudlake.lake.appender import Appender
from fraudlake.lake.definition import Change
from fraudlake.model import history, training
from fraudlake.streams import prediction_figures, score, stream
from tests.cut_appends import killed_after

pytestmark = [pytest.mark.stream, pytest.mark.long]
COLUMNS = {"terminal_id": "string", "country": "string"}
ENTITIES = {"terminal": "terminal_id", "account_at_terminal": ["account_id", "terminal_id"]}
FIRST = [
    {"name": "terminal_count", "entity": "terminal", "aggregate": "count", "window": "7 days"},
    {"name": "terminal_risk", "entity": "terminal", "aggregate": "fraud_share", "window": "7 days", "delay": "1 day"},
    {"name": "since_fraud", "entity": "terminal", "aggregate": "seconds_since_fraud", "window": "3 days"},
    {"name": "account_month", "aggregate": "mean", "column": "amount", "window": "30 days"},
    {"name": "own_country", "aggregate": "value", "column": "country"},
]
"""The features that the lake begins with; its label is known after a day."""
ADDED = [
    *FIRST[1:],
    {"name": "terminal_month", "entity": "terminal", "aggregate": "count", "window": "14 days"},
    {"name": "accounts", "entity": "terminal", "aggregate": "distinct", "column": "account_id", "window": "7 days"},
    {"name": "pair_since", "entity": "account_at_terminal", "aggregate": "seconds_since_last", "window": "30 days"},
    {"name": "account_large", "aggregate": "count", "where": "amount > 90", "window": "90 days"},
    {"name": "pair_age", "entity": "account_at_terminal", "aggregate": "seconds_since_first", "window": "ever"},
    {"name": "is_new_pair", "entity": "account_at_terminal", "aggregate": "is_first", "window": "ever"},
    {"name": "unusual", "aggregate": "z_score", "column": "amount", "window": "ever", "logarithm": True},
    {"name": "terminal_high", "entity": "terminal", "aggregate": "quantile", "column": "amount", "window": "7 days"}
    | {"quantile": 0.9},
    {
        "name": "is_other_account",
        "entity": "terminal",
        "aggregate": "changed",
        "column": "account_id",
        "window": "ever",
    },
    {"name": "is_abroad", "expression": "country <> 'DE'"},
    {"name": "burst", "expression": "count_hour / (account_large + terminal_month * HOUR(dt) - 1)"},
    {"name": "burst_abroad", "expression": "CASE WHEN is_abroad = 1 THEN burst ELSE amount / unusual END"},
]


AGAIN = {"label_delay": "1 day", "algorithm": "logistic", "shuffle_partitions": 2}
"""The settings with which the lake is opened again."""


def transactions(first: int, last: int) -> pa.Table:
    """Transactions of numbers, the same each time: some hours apart, of few accounts and terminals."""
    rows = []
    for n in range(first, last):
        draw = random.Random(n)
        time = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=20 * n, seconds=draw.random())
        fraud = draw.random() < 0.1
        rows.append(
            {
                "transaction_id": f"t{n}",
                "account_id": f"a{draw.randrange(20)}",
                "timestamp": time,
                "amount": round(draw.uniform(1, 100) * (3 if fraud else 1), 2),
                "label": fraud,
                "source": "part-0",
                "position": n,
                "date": time.date(),
                "terminal_id": draw.choice(["one", "two", "three", None]),
                "country": draw.choice(["DE", "FR", None]),
            }
        )
    return pa.Table.from_pylist(rows)


def add(lake: Lake, rows: pa.Table) -> None:
    table = lake.table(tables.SILVER_TRANSACTIONS)
    columns = [rows[name] if name in rows.column_names else pa.nulls(len(rows)) for name in table.column_names]
    lake.writer(table).write(pa.table(columns, table.column_names).cast(table.schema), "append")


def decide(lake: Lake, verdicts: list[tuple[int, bool, int]]) -> None:
    """Add verdicts: the number of a transaction, whether it is fraud, and that of the one at whose time it is known."""
    rows = [
        {
            "transaction_id": f"t{n}",
            "verdict": verdict,
            "decided_at": transactions(known, known + 1)["timestamp"][0].as_py(),
            "date": transactions(n, n + 1)["date"][0].as_py(),
        }
        for n, verdict, known in verdicts
    ]
    schema = tables.SILVER_VERDICTS.schema
    lake.writer(tables.SILVER_VERDICTS).write(pa.Table.from_pylist(rows, schema), "append")


def scored(lake: Lake) -> dict[str, dict[str, Any]]:
    """Score what is new; return the stream's features of all transactions."""
    stream.run(lake, score.streams(lake)[:1], "available-now")
    names = ["transaction_id", *account_features.names(lake.settings)]
    rows = lake.store.query(
        f"SELECT {', '.join(names)} FROM {tables.GOLD_FRAUD_PREDICTIONS.name}", tables.GOLD_FRAUD_PREDICTIONS
    ).to_pylist()
    return {row["transaction_id"]: row for row in rows}


def measure(lake: Lake) -> None:
    """Bring the figures of the predictions up to date."""
    stream.run(lake, [prediction_figures.stream(lake)], "available-now")


def quality(lake: Lake) -> dict[Any, tuple[int, int]]:
    """Transactions and frauds by day, as the stream has measured them."""
    rows = lake.store.query(
        f"SELECT * FROM {tables.GOLD_PREDICTION_QUALITY.name}", tables.GOLD_PREDICTION_QUALITY
    ).to_pylist()
    assert {row["judged_by"] for row in rows} == {"chargebacks"}
    return {row["date"]: (row["transactions"], row["fraud"]) for row in rows}


def expected_quality(lake: Lake) -> dict[Any, tuple[int, int]]:
    """Count by day what is known at the time of the newest transaction: verdicts, and what is old enough."""
    rows = lake.store.query(
        f"SELECT transaction_id, timestamp, date FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS
    ).to_pylist()
    decided = {row["transaction_id"]: row["verdict"] for row in lake.store.rows(tables.SILVER_VERDICTS).to_pylist()}
    until = max(row["timestamp"] for row in rows) - lake.settings.genuine_after
    counts: dict[Any, tuple[int, int]] = {}
    for row in rows:
        label = decided.get(row["transaction_id"], False if row["timestamp"] <= until else None)
        if label is not None:
            known, frauds = counts.get(row["date"], (0, 0))
            counts[row["date"]] = known + 1, frauds + label
    return counts


def of_history(lake: Lake, verdicts: str = "") -> dict[str, dict[str, Any]]:
    """The features of all transactions, computed at once in this process, with their whole history."""
    names = ["transaction_id", *account_features.names(lake.settings)]
    schema = tables.schema(account_features.computed_columns(lake.settings))
    silver = lake.store.query(
        f"SELECT {', '.join(history.columns_read(lake.settings))} FROM {tables.SILVER_TRANSACTIONS.name}",
        tables.SILVER_TRANSACTIONS,
    )
    given = lake.store.query(
        f"SELECT transaction_id, verdict, decided_at FROM {tables.SILVER_VERDICTS.name} {verdicts}",
        tables.SILVER_VERDICTS,
    )
    found = lake_features.compute_table(silver, (), lambda rows: rows, schema, lake.settings, given)
    return {row["transaction_id"]: row for row in found.select(names).to_pylist()}


def begun(lake: Callable[..., Lake]) -> Lake:
    """A lake with the first features, some rows, and a model that has not scored yet."""
    opened = lake(
        buckets=2,
        columns=json.dumps(COLUMNS),
        entities=json.dumps(ENTITIES),
        features=json.dumps(FIRST),
        **AGAIN,
    )
    add(opened, transactions(0, 900))
    assert training.train(opened).is_champion
    return opened


def test_the_stream_has_the_features_of_the_history_and_a_new_one_starts_warm(
    lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"columns": json.dumps(COLUMNS), "entities": json.dumps(ENTITIES), "algorithm": "logistic"}
    opened = lake(
        buckets=2,
        shuffle_partitions=2,
        max_files_per_trigger=1,
        label_delay="1 day",
        features=json.dumps(FIRST),
        **given,
    )
    add(opened, transactions(0, 900))
    assert training.train(opened).is_champion
    add(opened, transactions(900, 1000))
    before = scored(opened)
    # Verdicts come between micro-batches, and once the next one has begun; some are known, or corrected, within it.
    on = [n for n in range(800, 1000) if n % 3 == 0]
    decide(opened, [(n, n % 2 == 0, 1000 + n % 50) for n in on])
    add(opened, transactions(1000, 1300))
    take_up = score._SeenVerdicts.new

    def outdated(seen: score._SeenVerdicts, lake: Lake, is_whole: bool) -> Any:
        known = take_up(seen, lake, is_whole)
        if lake.store.count(tables.SILVER_VERDICTS) == len(on):
            decide(lake, [(n, n % 2 == 1, 1100 + n % 150) for n in on if n % 5 == 0])
        return known

    monkeypatch.setattr(score._SeenVerdicts, "new", outdated)
    found, truth = scored(opened), of_history(opened)
    assert found == truth
    without = of_history(opened, "WHERE false")
    changed = {name for name in truth if truth[name] != without[name]}
    assert changed and not changed & before.keys()

    # The model goes on with the features that it names; a new one is there for the next training.
    opened = lake(change=Change("test"), features=json.dumps(FIRST + ADDED[4:]), **AGAIN)
    add(opened, transactions(1300, 1500))
    new = {row["transaction_id"] for row in transactions(1300, 1500).to_pylist()}
    found, truth = scored(opened), of_history(opened)
    assert {name: row for name, row in found.items() if name in new} == {name: truth[name] for name in new}
    decide(opened, [(0, True, 2_000_000)])
    left_out = "labels left out, since a label is known 1 day after its transaction (label_delay)"
    future = "1 verdict left out, dated in the future, from 2102-03-20 18:40 UTC on: correct decided_at"
    trained = training.train(opened)
    assert trained.is_new and left_out in trained.reason and future in trained.reason

    # Spark's tasks compute the same as this process.
    silver = opened.read(tables.SILVER_TRANSACTIONS)
    verdicts = lake_features.verdicts_of(silver, opened.read(tables.SILVER_VERDICTS), opened.settings)
    payloads = lake_features.compute_history(silver, opened.settings, decided_rows=verdicts)
    names = ["transaction_id", *account_features.names(opened.settings)]
    rows = lake_features.unpacked(payloads, opened.settings).select(*names).toArrow().to_pylist()
    assert {row["transaction_id"]: row for row in rows} == truth


def test_a_new_feature_that_fails_is_taken_back_and_the_stream_goes_on_as_if_it_had_never_been(
    lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = begun(lake)
    assert scored(opened) == of_history(opened)

    added = lake(change=Change("test"), features=json.dumps(FIRST + ADDED[4:]), **AGAIN)
    add(added, transactions(900, 1000))
    with monkeypatch.context() as patched:
        patched.setattr(Appender, "append", lambda *arguments, **options: 1 / 0)
        with pytest.raises(FraudlakeError, match=r"by zero: .* first one with terminal_month, .*takes it back"):
            scored(added)

    opened = lake(change=Change("test"), features=json.dumps(FIRST), **AGAIN)
    add(opened, transactions(1000, 1100))
    assert scored(opened) == of_history(opened)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_killed_micro_batch_takes_up_a_new_feature_and_new_verdicts_once(
    lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    opened = begun(lake)
    scored(opened)

    decide(opened, [(n, n % 2 == 0, 900 + n % 50) for n in range(700, 900, 3)])
    opened = lake(change=Change("test"), features=json.dumps(FIRST + ADDED[4:]), **AGAIN)
    add(opened, transactions(900, 1000))
    with killed_after(int(is_written), monkeypatch), pytest.raises(FraudlakeError, match="killed"):
        scored(opened)
    assert (opened.store.count(tables.GOLD_FRAUD_PREDICTIONS) == 1000) == is_written
    add(opened, transactions(1000, 1100))
    new = {row["transaction_id"] for row in transactions(900, 1100).to_pylist()}
    found, truth = scored(opened), of_history(opened)
    assert {name: row for name, row in found.items() if name in new} == {name: truth[name] for name in new}
    assert truth != of_history(opened, "WHERE false")


def test_of_chargebacks_the_stream_has_the_features_of_the_history_and_flinks_frauds_leave_its_state(
    lake: Callable[..., Lake],
) -> None:
    given = {"columns": json.dumps(COLUMNS), "entities": json.dumps(ENTITIES), "algorithm": "logistic"}
    of_fraud = [
        {"name": "terminal_fraud", "entity": "terminal", "aggregate": "fraud_count", "window": "14 days"},
        {"name": "terminal_risk", "entity": "terminal", "aggregate": "fraud_share", "window": "14 days"},
        {"name": "since_fraud", "aggregate": "seconds_since_fraud", "window": "14 days"},
    ]
    common = {"buckets": 2, "shuffle_partitions": 2, **given}
    opened = lake(features=json.dumps(of_fraud), **common)
    add(opened, transactions(0, 700))
    assert training.train(opened).is_champion
    scored(opened)

    # Half of the frauds become known, after one to five days.
    opened = lake(labels="chargebacks", genuine_after="3 days", shuffle_partitions=2, algorithm="logistic")
    labels = transactions(0, 1500)["label"].to_pylist()
    frauds = [n for n in range(600, 1100) if labels[n] and n % 2]
    first = [(n, True, n + 72 + 41 * n % 300) for n in frauds[::2]]
    decide(opened, [one for one in first if one[0] < 900])
    add(opened, transactions(700, 900))
    scored(opened)
    measure(opened)
    assert quality(opened) == expected_quality(opened)
    decide(opened, [(n, True, 900 + n % 300) for n in frauds[1::2] if n < 900])
    # A verdict is on a transaction that silver has.
    add(opened, transactions(900, 1200))
    decide(opened, [one for one in first if one[0] >= 900])
    found, truth = scored(opened), of_history(opened)
    new = {row["transaction_id"] for row in transactions(900, 1200).to_pylist()}
    assert {name: row for name, row in found.items() if name in new} == {name: truth[name] for name in new}
    assert any(row["terminal_fraud"] for name, row in found.items() if name in new)
    measure(opened)
    assert quality(opened) == expected_quality(opened)
    # Without a verdict, age alone changes the figures of older days.
    add(opened, transactions(1200, 1500))
    scored(opened)
    measure(opened)
    assert quality(opened) == expected_quality(opened)
    # Spark computes the figures of many rows.
    dates = opened.store.query(
        f"SELECT DISTINCT date FROM {tables.GOLD_FRAUD_PREDICTIONS.name}", tables.GOLD_FRAUD_PREDICTIONS
    )["date"].to_pylist()
    few, many = (
        compute(opened, dates, {}, prediction_figures.genuine_until(opened))[0].sort_by("date")
        for compute in (prediction_figures._compute_here, prediction_figures._compute_in_spark)
    )
    assert len(few) and few.equals(many)
    # The label of the predictions is that of the payload.
    stored = opened.store.query(
        f"SELECT transaction_id, label FROM {tables.GOLD_FRAUD_PREDICTIONS.name}", tables.GOLD_FRAUD_PREDICTIONS
    ).to_pylist()
    assert {row["transaction_id"]: row["label"] for row in stored} == {f"t{n}": labels[n] for n in range(1500)}
