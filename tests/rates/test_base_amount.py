"""Amounts in the base currency: by the rate of the day or of the last days, against a plain search for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake import api, tables
from fraudlake.detection import rule_table, rule_value, what_if
from fraudlake.errors import UsageError
from fraudlake.features import entity_features
from fraudlake.lake.definition import Change
from fraudlake.operations import rebuild
from fraudlake.operations.status import status
from fraudlake.quarantine import replay
from fraudlake.rates import base_amount, rate_table
from fraudlake.review import items
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.settings.currency import Currency
from fraudlake.streams import aggregate, detect, ingest, refine, score, stream
from fraudlake_desk.queue import queue
from fraudlake_desk.review import marks
from tests.desk import local

pytestmark = pytest.mark.stream

FRIDAY, SATURDAY, MONDAY, WEDNESDAY = (date(2026, 3, day) for day in (6, 7, 9, 11))
DECLARED = {"columns": {"currency": "string"}, "currency": {"base": "EUR"}}
RATES = pa.table(
    {
        "date": [FRIDAY, FRIDAY, MONDAY],
        "currency": ["GBP", "JPY", "GBP"],
        "rate": [1.25, 0.00625, 1.5],
    }
)
PAYMENTS: list[tuple[date, str, str | None, float, float | None]] = [
    (FRIDAY, "gbp", "GBP", 100.0, 125.0),
    (SATURDAY, "weekend", "GBP", 100.0, 125.0),
    (MONDAY, "monday", "GBP", 100.0, 150.0),
    (SATURDAY, "jpy", "JPY", 16000.0, 100.0),
    (WEDNESDAY, "too long ago", "JPY", 16000.0, None),
    (SATURDAY, "base", "EUR", 100.0, 100.0),
    (SATURDAY, "lower case", "\tgbp ", 100.0, 125.0),
    (SATURDAY, "unknown", "XXX", 100.0, None),
    (SATURDAY, "without", None, 100.0, None),
    (FRIDAY - timedelta(days=1), "before", "GBP", 100.0, None),
]
"""Day, account, currency and amount, and by hand the amount in EUR."""
EXPECTED = {account: in_base for _, account, _, _, in_base in PAYMENTS}


def land(folder: Path, name: str, *rows: tuple[date, str, str | None, float, Any]) -> None:
    days, accounts, currencies, amounts, _ = zip(*rows, strict=True)
    times = pa.array([datetime(day.year, day.month, day.day, 23, 59, 59, tzinfo=UTC) for day in days])
    columns = {"dt": times.cast(pa.timestamp("us", "UTC")), "accountId": accounts, "amount": amounts}
    columns |= {"alert": [False] * len(rows), "currency": pa.array(currencies, pa.string())}
    pq.write_table(pa.table(columns), folder / name)


def take(lake: Any, *steps: Any) -> Any:
    for step in steps:
        stream.run(lake, step(lake), "available-now")
    return lake


def in_base(lake: Any) -> dict[str, float | None]:
    table = lake.table(tables.SILVER_TRANSACTIONS)
    rows = lake.store.query(f"SELECT account_id, base_amount FROM {table.name}", table).to_pylist()
    assert len(rows) == len({row["account_id"] for row in rows})
    return {row["account_id"]: row["base_amount"] for row in rows}


def test_amounts_are_those_of_a_plain_search(spark: Any) -> None:
    draw = random.Random(7)
    first = date(2026, 1, 1)
    days = [first + timedelta(days=number) for number in range(40)]
    known = [
        (day, code, draw.choice([0.5, 2.0, 4.0]), datetime(2026, 3, 1, hour))
        for day in days
        for code in ("USD", "GBP")
        for hour in range(draw.choice([0, 0, 0, 1, 2]))
    ]
    draw.shuffle(known)
    payments = [(draw.choice(days), draw.choice(["USD", "GBP", "EUR", "CHF", None]), float(n)) for n in range(400)]
    carry = 3

    def plain(day: date, code: str | None, amount: float) -> float | None:
        if code == "EUR":
            return amount
        suitable = [one for one in known if one[1] == code and 0 <= (day - one[0]).days <= carry]
        latest = max(suitable, key=lambda one: (one[0], one[3]), default=None)
        return None if latest is None else amount * latest[2]

    rows = spark.createDataFrame(payments, "date DATE, currency STRING, amount DOUBLE")
    table = spark.createDataFrame(known, "date DATE, currency STRING, rate DOUBLE, at TIMESTAMP")
    converted = base_amount.converted(rows, Currency(base="EUR", carry_days=carry), table).collect()
    found = {row["amount"]: row["base_amount"] for row in converted}
    assert len(converted) == len(payments)
    assert found == {amount: plain(day, code, amount) for day, code, amount in payments}
    assert 50 < sum(one is None for one in found.values()) < 300  # both happen


@pytest.fixture
def with_rates(lake: Callable[..., Any], landing: Path) -> Any:
    """A lake in EUR that has rates."""
    made = lake(**DECLARED)
    rate_table.load(made.store, RATES, "rates.csv", "ann")
    return made


def test_payments_have_the_amounts_by_hand_however_micro_batches_are_cut(
    with_rates: Any, lake: Callable[..., Any], landing: Path
) -> None:
    for number in range(0, len(PAYMENTS), 4):
        land(landing, f"part-{number}-0", *PAYMENTS[number : number + 4])
        take(with_rates, ingest.streams, refine.streams)
    assert with_rates.checkpoint("refine").next_batch == 3
    assert in_base(with_rates) == EXPECTED

    whole = lake("whole", **DECLARED)
    rate_table.load(whole.store, RATES, "rates.csv", "ann")
    folder = whole.root / "landing"
    folder.mkdir()
    land(folder, "part-0-0", *PAYMENTS)
    assert in_base(take(whole, ingest.streams, refine.streams)) == EXPECTED


def test_what_lacks_a_rate_is_counted_and_has_one_after_a_replay(with_rates: Any, landing: Path) -> None:
    land(landing, "part-0-0", *PAYMENTS)
    take(with_rates, ingest.streams, refine.streams, detect.streams)
    assert rate_table.missing(with_rates.store) == [
        rate_table.Missing(FRIDAY - timedelta(days=1), "GBP", 1),
        rate_table.Missing(SATURDAY, "XXX", 1),
        rate_table.Missing(SATURDAY, None, 1),
        rate_table.Missing(WEDNESDAY, "JPY", 1),
    ]
    assert status(with_rates).gaps == [
        "3 payments of silver without a rate of exchange: 'fraudlake rates missing' lists their days and currencies: "
        "load their rates with 'fraudlake rates load', then run 'fraudlake replay'"
    ]

    later = pa.table({"date": [WEDNESDAY, SATURDAY], "currency": ["JPY", "GBP"], "rate": [0.005, 2.0]})
    rate_table.load(with_rates.store, later, "later.csv", "ann")
    assert in_base(with_rates) == EXPECTED
    done = rebuild.rebuild(with_rates, SATURDAY, WEDNESDAY, apply=True)
    changes = done.changes[tables.SILVER_TRANSACTIONS.name]
    assert (changes.added, changes.gone) == (3, 3)
    now = {"too long ago": 80.0, "weekend": 200.0, "lower case": 200.0}
    assert in_base(with_rates) == EXPECTED | now
    assert status(with_rates).rows.without_rate == 2
    assert status(with_rates).rows.without_currency == 1


@pytest.mark.long
def test_a_lake_that_runs_gets_base_amounts_for_new_payments_and_by_a_replay_for_others(
    lake: Callable[..., Any], landing: Path
) -> None:
    first, last = PAYMENTS[0], PAYMENTS[2]
    land(landing, "part-0-0", first)
    take(lake(columns=DECLARED["columns"]), ingest.streams, refine.streams, detect.streams, aggregate.streams)
    changed = lake(change=Change("ann"), **DECLARED)
    assert [row["amount_at_risk"] for row in queue.build(changed.store, FRIDAY).rows] == [0.0]
    rate_table.load(changed.store, RATES, "rates.csv", "ann")
    land(landing, "part-1-0", last)
    take(changed, ingest.streams, refine.streams, detect.streams)
    assert in_base(changed) == {"gbp": None, "monday": 150.0}
    rebuild.rebuild(changed, FRIDAY, FRIDAY, apply=True)
    assert in_base(changed) == {"gbp": 125.0, "monday": 150.0}


@pytest.mark.long
def test_a_replayed_row_of_quarantine_has_its_amount(with_rates: Any, landing: Path) -> None:
    land(landing, "part-0-0", (SATURDAY, "gbp", "GBP", -100.0, None))
    take(with_rates, ingest.streams, refine.streams)
    assert in_base(with_rates) == {}
    replay.replay(with_rates, None, {"amount": "abs(amount)"})
    assert in_base(with_rates) == {"gbp": 125.0}
    later = pa.table({"date": [SATURDAY], "currency": ["GBP"], "rate": [2.0]})
    rate_table.load(with_rates.store, later, "later.csv", "ann")
    take(with_rates, detect.streams)
    rebuild.rebuild(with_rates, SATURDAY, SATURDAY, apply=True)
    assert in_base(with_rates) == {"gbp": 200.0}


SUMS = [
    {"name": "eur_hour", "aggregate": "sum", "column": "base_amount", "window": "1 hour"},
    {"name": "eur", "aggregate": "value", "column": "base_amount"},
]


def test_features_sum_what_has_a_rate_and_are_not_scored_from_kafka(lake: Callable[..., Any]) -> None:
    of_sums = lake(**DECLARED, features=SUMS)
    amounts = [40.0, None, 60.0, 5.0]
    rows = pa.table(
        {
            "transaction_id": list("abcd"),
            "account_id": ["a"] * 4,
            "amount": [1.0] * 4,
            "base_amount": amounts,
            "timestamp": pa.array([minute * 60_000_000 for minute in range(4)], pa.timestamp("us", "UTC")),
            "source": ["part-0"] * 4,
            "position": list(range(4)),
            "label": [False] * 4,
        }
    )
    computed = entity_features.compute_table(rows, of_sums.settings, tables.SILVER_VERDICTS.schema.empty_table())
    assert computed.to_pydict() == {"eur_hour": [0, 40, 40, 100], "eur": amounts}
    with pytest.raises(UsageError, match="score: a declared feature reads base_amount, which only silver has"):
        score._from_kafka(of_sums)


LIMIT = ThresholdRule.model_validate(
    {
        "kind": "threshold",
        "name": "over_110_eur",
        "aggregate": "max",
        "column": "base_amount",
        "window": "1 transaction",
        "above": 110,
    }
)
BY_HAND = ["gbp", "lower case", "monday", "weekend"]
"""The accounts that pay more than 110 EUR; 16,000 JPY are 100."""


def alerted(lake: Any) -> list[str]:
    rows = lake.store.query(
        f"SELECT account_id FROM {tables.SILVER_ALERTS.name} WHERE rule = '{LIMIT.name}'", tables.SILVER_ALERTS
    )
    return sorted(rows["account_id"].to_pylist())


@pytest.mark.long
def test_a_limit_is_in_one_currency_in_stream_backtest_and_replay(with_rates: Any, landing: Path) -> None:
    land(landing, "part-0-0", *PAYMENTS)
    rule_table.apply(with_rates, [(LIMIT, "live")], "ann", None)
    take(with_rates, ingest.streams, refine.streams, detect.streams)
    assert alerted(with_rates) == BY_HAND

    tried, found = api.backtest(with_rates, LIMIT.model_copy(update={"name": "tried"}))
    assert sorted(row["account_id"] for row in found.collect()) == BY_HAND
    assert tried.amount_at_risk == sum(EXPECTED[account] or 0.0 for account in BY_HAND)
    changes = what_if.what_if(with_rates, LIMIT, LIMIT.model_copy(update={"above": 130}), None, None)
    assert (changes.before.amount_at_risk, changes.after.amount_at_risk) == (525.0, 150.0)

    later = pa.table({"date": [MONDAY], "currency": ["JPY"], "rate": [0.01]})
    rate_table.load(with_rates.store, later, "later.csv", "ann")
    rebuild.rebuild(with_rates, MONDAY, WEDNESDAY, apply=True)
    assert alerted(with_rates) == sorted([*BY_HAND, "too long ago"])


ANY = LIMIT.model_copy(update={"name": "any", "column": "amount", "above": 1})


@pytest.mark.long
def test_sums_of_gold_and_of_the_queue_are_in_the_base_currency(with_rates: Any, landing: Path) -> None:
    saturday = [one for one in PAYMENTS if one[0] == SATURDAY]
    land(landing, "part-0-0", *saturday)
    rule_table.apply(with_rates, [(ANY, "live")], "ann", None)
    take(with_rates, ingest.streams, refine.streams, detect.streams, aggregate.streams)
    store = with_rates.store
    by_hand = {account: in_base or 0.0 for _, account, _, _, in_base in saturday}

    def sums(table: str, amount: str) -> dict[str, float]:
        rows = with_rates.spark.sql(f"SELECT account_id, {amount} AS amount FROM {table}").collect()
        return {row["account_id"]: row["amount"] for row in rows}

    for table in ("gold_account_daily", "gold_account_tiles", "gold_alert_windows"):
        assert sums(table, "amount_sum") == by_hand
        assert sums(table, "amount_max") == by_hand
    assert sums("gold_cases", "amount_at_risk") == by_hand

    local.verdicts(store, dict.fromkeys(store.rows(tables.SILVER_TRANSACTIONS)["transaction_id"].to_pylist(), True))
    (value,) = rule_value.measure(store, rule_table.read(with_rates).live).rules
    assert (value.found.frauds, value.found.amount) == (len(by_hand), sum(by_hand.values()))

    listed = queue.build(store, SATURDAY).rows
    assert {row["account_id"]: row["amount_at_risk"] for row in listed} == by_hand
    # 16,000 JPY are less than 100 GBP.
    assert [row["account_id"] for row in listed[:2]] in (["weekend", "lower case"], ["lower case", "weekend"])
    (item,) = (one.item for one in items.listed(store, SATURDAY) if one.item.account_id == "jpy")
    assert [*marks.amounts(store, item, item.transaction_ids).values()] == [100.0]

    later = pa.table({"date": [SATURDAY], "currency": ["JPY"], "rate": [0.01]})
    rate_table.load(store, later, "later.csv", "ann")
    rebuild.rebuild(with_rates, SATURDAY, SATURDAY, apply=True)
    assert sums("gold_cases", "amount_at_risk") == by_hand | {"jpy": 160.0}
