"""Entity features against an oracle that looks at one row after the other, however rows are cut into micro-batches."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from fraudlake.features import entity_features
from fraudlake.features.feature_figures import MOST_DISTINCT
from fraudlake.features.feature_plan import HASH_OF, Plan
from fraudlake.model import drift, explanations
from fraudlake.model.classifier import Classifier, Encoding, Logistic
from fraudlake.settings import Settings
from fraudlake.settings.columns import DeclaredColumn
from fraudlake.settings.features import DeclaredFeature
from fraudlake.statistics.histogram import levels_of, numbers_of

COLUMNS = {
    "country": DeclaredColumn.model_validate({"from": "country", "type": "string"}),
    "items": DeclaredColumn.model_validate({"from": "items", "type": "bigint"}),
    "distance": DeclaredColumn.model_validate({"from": "distance", "type": "double"}),
}
DAY = timedelta(days=1)
LONG = "30 days"
FEATURES = [
    {"name": "n_minute", "aggregate": "count", "window": "1 minute"},
    {"name": "n_day", "aggregate": "count", "window": "1 day"},
    {"name": "n_month", "aggregate": "count", "window": LONG},
    {"name": "n_abroad", "aggregate": "count", "window": "90 days", "where": "country <> 'DE' AND amount > 10"},
    {"name": "n_items", "aggregate": "count", "column": "items", "window": "7 days", "delay": "7 days"},
    {"name": "sum_week", "aggregate": "sum", "column": "amount", "window": "7 days"},
    {"name": "sum_items", "aggregate": "sum", "column": "items", "window": "1 hour"},
    {"name": "mean_week", "aggregate": "mean", "column": "distance", "window": "7 days", "delay": "2 days"},
    {"name": "min_day", "aggregate": "min", "column": "amount", "window": "1 day"},
    {"name": "max_month", "aggregate": "max", "column": "items", "window": LONG, "where": "amount > 50"},
    {"name": "countries", "aggregate": "distinct", "column": "country", "window": "7 days"},
    {"name": "countries_then", "aggregate": "distinct", "column": "country", "window": "7 days", "delay": "3 days"},
    {"name": "since", "aggregate": "seconds_since_last", "window": "1 day"},
    {"name": "since_large", "aggregate": "seconds_since_last", "window": LONG, "where": "amount > 90"},
    {"name": "to_mean", "aggregate": "ratio_to_mean", "column": "amount", "window": LONG},
    {"name": "fraud", "aggregate": "fraud_count", "window": LONG},
    {"name": "fraud_then", "aggregate": "fraud_count", "window": "7 days", "delay": "7 days"},
    {"name": "share", "aggregate": "fraud_share", "window": LONG, "delay": "7 days"},
    {"name": "since_fraud", "aggregate": "seconds_since_fraud", "window": "90 days"},
    {"name": "n_ever", "aggregate": "count", "window": "ever"},
    {"name": "max_ever", "aggregate": "max", "column": "items", "window": "ever", "where": "amount > 50"},
    {"name": "known_for", "aggregate": "seconds_since_first", "window": "ever"},
    {"name": "known_for_week", "aggregate": "seconds_since_first", "window": "7 days", "where": "amount > 50"},
    {"name": "is_first", "aggregate": "is_first", "window": "ever", "where": "amount > 90"},
    {"name": "is_first_today", "aggregate": "is_first", "window": "1 day"},
    {"name": "deviation", "aggregate": "stddev", "column": "amount", "window": LONG},
    {"name": "deviation_items", "aggregate": "stddev", "column": "items", "window": "7 days", "delay": "1 day"},
    {"name": "unusual", "aggregate": "z_score", "column": "amount", "window": "ever"},
    {"name": "unusual_log", "aggregate": "z_score", "column": "amount", "window": "90 days", "logarithm": True},
    {"name": "share_large", "aggregate": "share", "window": "7 days", "where": "amount > 50"},
    {"name": "last_distance", "aggregate": "last", "column": "distance", "window": "ever"},
    {"name": "last_items", "aggregate": "last", "column": "items", "window": "7 days", "where": "amount > 50"},
    {"name": "last_then", "aggregate": "last", "column": "amount", "window": LONG, "delay": "7 days"},
    {"name": "is_other", "aggregate": "changed", "column": "country", "window": "ever"},
    {"name": "is_other_week", "aggregate": "changed", "column": "country", "window": "7 days", "where": "amount > 50"},
    {"name": "median", "aggregate": "quantile", "column": "amount", "window": "7 days", "quantile": 0.5},
    {"name": "high_ever", "aggregate": "quantile", "column": "distance", "window": "ever", "quantile": 0.9},
    {"name": "countries_ever", "aggregate": "distinct", "column": "country", "window": "ever"},
    {"name": "own_country", "aggregate": "value", "column": "country"},
    {"name": "own_items", "aggregate": "value", "column": "items"},
]
BEGIN = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())


class Row(NamedTuple):
    """A transaction; ``seconds`` since the begin, ``nth`` is its position."""

    account: int
    seconds: float
    nth: int
    amount: float
    country: str | None
    items: int | None
    distance: float | None
    label: bool | None


def plan(label_delay: timedelta = timedelta(0), features: list[dict[str, Any]] = FEATURES) -> Plan:
    return Plan(tuple(DeclaredFeature.model_validate(feature) for feature in features), COLUMNS, label_delay)


def table(rows: list[Row]) -> pa.Table:
    names: dict[str | None, int] = {}
    hashes = [None if row.country is None else hash_of(row.country, names) for row in rows]
    return pa.table(
        {
            "account": pa.array([row.account for row in rows], pa.int64()),
            "time": pa.array([micros(row) for row in rows], pa.int64()),
            "source": pa.array(["one"] * len(rows)).dictionary_encode(),
            "position": pa.array([row.nth for row in rows], pa.int64()),
            "label": pa.array([row.label for row in rows], pa.bool_()),
            "amount": pa.array([row.amount for row in rows], pa.float64()),
            "country": pa.array([row.country for row in rows], pa.string()),
            "items": pa.array([row.items for row in rows], pa.int64()),
            "distance": pa.array([row.distance for row in rows], pa.float64()),
            f"{HASH_OF}country": pa.array(hashes, pa.int64()),
        }
    )


def hash_of(country: str, names: dict[str | None, int]) -> int:
    return names.setdefault(country, int.from_bytes(country.encode().ljust(7)))


def micros(row: Row) -> int:
    return round((BEGIN + row.seconds) * 1_000_000)


def drawn(seed: int, count: int, days: float) -> list[Row]:
    """Draw rows of a few accounts in the order of time; some have the same time, and some columns are null."""
    draw = random.Random(seed)
    steps = [0.0, 0.25, 20, 700, 5_000, 40_000, 2 * days * 86_400 / count]
    rows, seconds = [], 0.0
    for nth in range(count):
        seconds += draw.choice(steps)
        rows.append(
            Row(
                draw.choice([-5, 1, 2, 2]),
                seconds,
                nth,
                round(draw.uniform(0, 100), 2),
                draw.choice(["DE", "FR", "IT", "ES", None]),
                draw.choice([None, 0, 1, 7]),
                draw.choice([None, 0.5, 12.25]),
                draw.choice([None, False, False, True]),
            )
        )
    return rows


def expected(rows: list[Row], label_delay: timedelta = timedelta(0)) -> list[dict[str, Any]]:
    """Compute the features one row after the other."""
    features = plan().features
    return [
        {feature.name: of_row(feature, row, rows[:at], label_delay) for feature in features}
        for at, row in enumerate(rows)
    ]


HOLDS = {
    None: lambda row: True,
    "country <> 'DE' AND amount > 10": lambda row: row.country is not None and row.country != "DE" and row.amount > 10,
    "amount > 50": lambda row: row.amount > 50,
    "amount > 90": lambda row: row.amount > 90,
}


def of_row(feature: DeclaredFeature, row: Row, before: list[Row], label_delay: timedelta) -> Any:
    if feature.aggregate == "value":
        return getattr(row, str(feature.column))
    assert feature.window is not None
    size, window, delay = (
        round(seconds * 1e6)
        for seconds in (feature.size, feature.window.total_seconds(), feature.delay.total_seconds())
    )
    lag = max(delay, round(label_delay.total_seconds() * 1e6)) if "fraud" in feature.aggregate else delay
    # The tile of the end of the window is the last of it, or is not in it if the window ends in the past.
    begin = ((micros(row) - delay) // size - window // size + (delay == 0)) * size
    end = (micros(row) - lag) // size * size
    mine = [
        other
        for other in before
        if other.account == row.account
        and micros(other) >= begin
        and (micros(other) < end if lag else True)
        and HOLDS[feature.where](other)
    ]
    values = [v for other in mine if (v := getattr(other, feature.column or "amount")) is not None]
    labels = [other.label for other in mine if other.label is not None]
    seconds = [(micros(row) - micros(other)) / 1e6 for other in mine]
    of_fraud = [(micros(row) - micros(other)) / 1e6 for other in mine if other.label]
    mean = sum(values) / len(values) if values and feature.column != "country" else None
    own = getattr(row, feature.column or "amount")
    own_before = [other for other in before if other.account == row.account and begin <= micros(other)]
    in_window = [other for other in own_before if not lag or micros(other) < end]
    scale = math.log if feature.logarithm else float
    scaled = [scale(value) for value in values] if feature.column != "country" else []
    deviation = statistics.stdev(scaled) if len(scaled) > 1 else None

    def z_score() -> float | None:
        return (scale(own) - statistics.mean(scaled)) / deviation if deviation and own is not None else None

    def quantile() -> float | None:
        assert feature.quantile is not None
        return sorted(values)[math.ceil(len(values) * feature.quantile) - 1] if values else None

    return {
        "count": lambda: len(values) if feature.column else len(mine),
        "sum": lambda: sum(values),
        "mean": lambda: mean,
        "min": lambda: min(values, default=None),
        "max": lambda: max(values, default=None),
        "distinct": lambda: len(set(values)),
        "stddev": lambda: deviation,
        "z_score": z_score,
        "quantile": quantile,
        "share": lambda: len(mine) / len(in_window) if in_window else None,
        "last": lambda: values[-1] if values else None,
        "changed": lambda: values[-1] != own if values and own is not None else None,
        "is_first": lambda: not mine,
        "seconds_since_first": lambda: max(seconds, default=None),
        "seconds_since_last": lambda: min(seconds, default=None),
        "ratio_to_mean": lambda: own / mean if mean and own is not None else None,
        "fraud_count": lambda: sum(labels),
        "fraud_share": lambda: sum(labels) / len(labels) if labels else None,
        "seconds_since_fraud": lambda: min(of_fraud, default=None),
    }[feature.aggregate]()


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Round to what the units of logarithms and of distances tell, and quantiles to their middle."""
    quantiles = {name: row[name] for name in ("median", "high_ever") if row.get(name) is not None}
    middles = numbers_of(levels_of(np.array([*quantiles.values()], float)))
    row = row | dict(zip(quantiles, middles.tolist(), strict=True))
    row = {name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()}
    return row | {name: round(row[name], 4) for name in ("unusual_log",) if row.get(name) is not None}


def computed(batches: list[list[Row]], of: Plan) -> list[dict[str, Any]]:
    state: entity_features.State = {}
    found: list[dict[str, Any]] = []
    for batch in batches:
        features, state = entity_features.compute(state, table(batch), of)
        found += features.to_pylist()
    return found


def cuts(rows: list[Row], seed: int) -> Iterator[list[Row]]:
    draw, begin = random.Random(seed), 0
    while begin < len(rows):
        end = begin + draw.choice([1, 2, 7, 40])
        yield rows[begin:end]
        begin = end


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("label_delay", [timedelta(0), timedelta(hours=5), 8 * DAY])
def test_features_are_those_of_an_oracle(seed: int, label_delay: timedelta) -> None:
    rows = drawn(seed, count=150, days=[1, 20, 120, 300][seed])
    found = computed([rows], plan(label_delay))
    assert [rounded(row) for row in found] == [rounded(row) for row in expected(rows, label_delay)]


@pytest.mark.parametrize("seed", range(6))
def test_features_do_not_depend_on_how_rows_are_cut(seed: int) -> None:
    rows = drawn(seed, count=400, days=[1, 20, 120, 300, 40, 90][seed])
    whole = computed([rows], plan(2 * DAY))
    assert computed(list(cuts(rows, seed)), plan(2 * DAY)) == whole


def test_features_are_in_the_order_of_the_rows_that_are_given() -> None:
    rows = drawn(3, count=100, days=20)
    shuffled = random.Random(3).sample(rows, len(rows))
    found = computed([shuffled], plan())
    whole = dict(zip(rows, computed([rows], plan()), strict=True))
    assert found == [whole[row] for row in shuffled]


def test_a_row_that_comes_late_sees_the_tiles_before_it_and_counts_for_later_rows() -> None:
    features = [{"name": "n", "aggregate": "count", "window": "1 day"}]
    on_time = [Row(1, 0.0, 0, 1.0, None, None, None, None), Row(1, 9_000.0, 2, 1.0, None, None, None, None)]
    late, after = (Row(1, seconds, nth, 1.0, None, None, None, None) for seconds, nth in ((4_000.0, 1), (9_001.0, 3)))
    assert computed([on_time, [late], [after]], plan(features=features)) == [{"n": n} for n in (0.0, 1.0, 1.0, 3.0)]


def test_the_last_transaction_is_the_latest_even_if_an_earlier_one_came_late() -> None:
    features = [{"name": "since", "aggregate": "seconds_since_last", "window": "1 day"}]
    first, late, after = (
        Row(1, seconds, nth, 1.0, None, None, None, None) for seconds, nth in ((3_500.0, 1), (60.0, 0), (3_700.0, 2))
    )
    found = computed([[first], [late, after]], plan(features=features))
    assert found == [{"since": since} for since in (None, 0.0, 200.0)]


def test_the_state_is_bounded_by_the_windows() -> None:
    features = [
        {"name": "n", "aggregate": "count", "window": "90 days"},
        {"name": "countries", "aggregate": "distinct", "column": "country", "window": "1 day"},
    ]
    state: entity_features.State = {}
    for day in range(400):
        batch = [Row(1, day * 86_400.0 + n * 600, n, 1.0, "DE", None, None, None) for n in range(140)]
        _, state = entity_features.compute(state, table(batch), plan(features=features))
    assert {name: len(tiles) for name, tiles in state.items()} == {"86400": 91, "3600 values country": 37}


def test_distinct_is_estimated_beyond_what_a_tile_stores_however_rows_are_cut() -> None:
    draw = random.Random(1)
    rows, hashes = [Row(1, n * 0.3, n, 1.0, None, None, None, None) for n in range(24_000)], []
    for _ in rows:
        hashes.append(draw.randrange(-(2**63), 2**63))
    given = table(rows).set_column(9, f"{HASH_OF}country", pa.array(hashes, pa.int64()))
    of = plan(features=[{"name": "n", "aggregate": "distinct", "column": "country", "window": w} for w in ("ever",)])
    whole, state = entity_features.compute({}, given, of)
    assert len(next(iter(state.values()))) == MOST_DISTINCT
    counts = whole["n"].to_numpy()
    assert counts[: MOST_DISTINCT + 1].tolist() == [*range(MOST_DISTINCT), counts[MOST_DISTINCT]]
    error = counts[MOST_DISTINCT:] / np.arange(MOST_DISTINCT, len(rows)) - 1
    assert np.abs(error).max() < 0.15
    found, state = [], {}
    for begin in range(0, len(rows), 1_700):
        computed_, state = entity_features.compute(state, given.slice(begin, 1_700), of)
        found += computed_["n"].to_pylist()
    assert found == counts.tolist()


def test_a_row_never_sees_its_own_label_nor_one_that_is_not_known_yet() -> None:
    rows = drawn(7, count=200, days=60)
    names = [feature["name"] for feature in FEATURES if "fraud" in feature["aggregate"]]
    before = computed([rows], plan(3 * DAY))
    for at in (40, 90, 150):
        turned = [*rows[:at], rows[at]._replace(label=not rows[at].label), *rows[at + 1 :]]
        after = computed([turned], plan(3 * DAY))
        changed = [row for row, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        known = micros(rows[at]) + 3 * 86_400 * 1_000_000
        assert all(micros(rows[row]) >= known for row in changed)
        assert all(before[row][name] == after[row][name] for row in changed for name in before[0] if name not in names)


def test_a_feature_that_is_new_is_warm_if_the_state_of_a_history_is_put_in() -> None:
    rows = drawn(5, count=300, days=90)
    few, every = plan(DAY, FEATURES[:8]), plan(DAY)
    _, state = entity_features.compute({}, table(rows[:200]), few)
    _, history = entity_features.compute({}, table(rows[:200]), every)
    assert entity_features.lacks(state, every)
    assert not entity_features.lacks(history, every)
    found, _ = entity_features.compute(entity_features.warmed(state, history), table(rows[200:]), every)
    assert found.to_pylist() == computed([rows], every)[200:]


def test_sums_of_huge_amounts_and_of_nan_do_not_overflow() -> None:
    features = [{"name": "sum", "aggregate": "sum", "column": "distance", "window": "1 day"}]
    rows = [Row(1, float(n), n, 1.0, None, None, value, None) for n, value in enumerate([1e300, np.nan, -np.inf, 2.0])]
    found = computed([rows], plan(features=features))
    assert [row["sum"] for row in found] == [0.0, 1e9, 1e9, 0.0]


def test_zeros_of_both_signs_are_one_value_and_one_key() -> None:
    declared = [
        {"name": "distances", "aggregate": "distinct", "column": "distance", "window": "1 day"},
        {"name": "n", "entity": "place", "aggregate": "count", "window": "1 day"},
    ]
    settings = Settings(columns=COLUMNS, entities={"place": "distance"}, features=declared)
    times = pa.array([(BEGIN + n) * 1_000_000 for n in range(3)]).cast(pa.timestamp("us", "UTC"))
    ids = ["t0", "t1", "t2"]
    silver = {"transaction_id": ids, "account_id": ["a"] * 3, "timestamp": times, "label": [False] * 3}
    silver |= {"source": ["one"] * 3, "position": [0, 1, 2], "distance": [0.0, -0.0, 0.0]}
    found = entity_features.compute_table(pa.table(silver), settings, pa.table({}))
    assert found.to_pylist() == [{"distances": float(n > 0), "n": float(n)} for n in range(3)]


def test_texts_and_missing_numbers_have_shapes_to_compare_days_with() -> None:
    texts = np.array(["DE", "FR", None, "DE"], dtype=object)
    shape = drift.shape(texts, np.ones(4))
    assert shape == {"edges": [], "shares": [0.5, 0.25, 0.25], "median": 0.0, "values": ["DE", "FR"]}
    assert drift._bins(np.array(["FR", None, "ES", "FR"], dtype=object), shape) == [0, 2, 2]
    numbers = drift.shape(np.array([1.0, np.nan, 3.0, np.nan]), np.ones(4))
    assert (numbers["edges"], numbers["shares"], numbers["median"]) == ([1.0, 3.0], [0.25, 0.25, 0.5], 1.0)
    assert drift.shape(np.array([np.nan]), np.ones(1))["shares"] == [0.0, 1.0]


def test_a_declared_feature_is_explained_by_its_text_or_its_meaning() -> None:
    given = [{"text": "{:.1f} at {its} terminal"}, {"where": "amount > 5", "delay": "1 day"}]
    declared = [
        DeclaredFeature.model_validate({"name": f"f{n}", "aggregate": "count", "window": "7 days"} | more)
        for n, more in enumerate(given)
    ]
    sentences = {feature.name: feature.sentence for feature in declared}
    learned = Logistic([0.0] * 3, [1.0] * 3, [3.0, 2.0, 1.0], 0.0)
    made = Classifier(("f0", "f1", "own_country"), learned, 1.0, 0.0, {"own_country": Encoding({}, 0.5, 0.5)})
    sentences["own_country"] = "it is in {}"
    medians = {"f0": 2.5, "f1": 0.0, "own_country": 0.0}
    matrix = np.array([[12.0, 3.0, 0.5]])
    assert explanations.reasons(made, matrix, medians, sentences, {"own_country": ["FR"]}) == [
        [
            "12.0 at {its} terminal (usually 2.5)",
            "the count of its account where amount > 5 in 7 days, up to 1 day before it is 3 (usually 0)",
            "it is in FR",
        ]
    ]
