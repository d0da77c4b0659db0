"""Verdicts as labels of fraud features, against an oracle that asks for each row what was known at its time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fraudlake.features import entity_features, feature_buckets
from fraudlake.features.decided import FIELDS
from fraudlake.features.feature_buckets import DECIDED, FeatureBuckets, merge_decided
from fraudlake.features.feature_plan import Plan
from fraudlake.settings import Settings
from fraudlake.settings.features import DeclaredFeature
from tests.features.packed_rows import packed_rows
from tests.features.test_entity_features import COLUMNS, DAY, HOLDS, Row, cuts, drawn, micros, rounded, table

FEATURES = [
    {"name": "fraud", "aggregate": "fraud_count", "window": "30 days"},
    {"name": "fraud_day", "aggregate": "fraud_count", "window": "1 day", "where": "amount > 50"},
    {"name": "fraud_then", "aggregate": "fraud_count", "window": "7 days", "delay": "3 days"},
    {"name": "share", "aggregate": "fraud_share", "window": "30 days"},
    {"name": "share_then", "aggregate": "fraud_share", "window": "7 days", "delay": "7 days"},
    {"name": "since", "aggregate": "seconds_since_fraud", "window": "90 days"},
    {"name": "since_large", "aggregate": "seconds_since_fraud", "window": "7 days", "where": "amount > 50"},
    {"name": "n", "aggregate": "count", "window": "7 days"},
]
DELAYS = [timedelta(0), timedelta(hours=5), 8 * DAY]


class Verdict(NamedTuple):
    """A decision about the row of a number, some seconds after the begin."""

    nth: int
    verdict: bool
    seconds: float


def plan(label_delay: timedelta) -> Plan:
    return Plan(tuple(DeclaredFeature.model_validate(feature) for feature in FEATURES), COLUMNS, label_delay)


def verdicts(rows: Sequence[Row], seed: int, days: float) -> list[Verdict]:
    """Draw a verdict on every second row, and corrections of some."""
    draw, drawn = random.Random(seed), []
    for row in rows:
        seconds = row.seconds
        for _ in range(draw.choice([0, 0, 1, 1, 2])):
            seconds += draw.choice([0.0, 30.0, draw.random() * days * 86_400])
            drawn.append(Verdict(row.nth, draw.random() < 0.5, seconds))
    return drawn


def decided(rows: Sequence[Row], given: Sequence[Verdict]) -> pa.Table:
    """The rows of verdicts, and Flink's other frauds."""
    by_number = {row.nth: row for row in rows}
    others = [row for row in rows if row.label and row.nth not in {verdict.nth for verdict in given}]
    of = table([*(by_number[verdict.nth] for verdict in given), *others])
    missing = [None] * len(others)
    decided_at = [micros(Row(0, verdict.seconds, 0, 0, None, None, None, None)) for verdict in given]
    columns = {
        "transaction_id": pa.array([f"t{n}" for n in of["position"].to_pylist()], pa.string()),
        "_verdict": pa.array([*(verdict.verdict for verdict in given), *missing], pa.bool_()),
        "_decided_at": pa.array([*decided_at, *missing], pa.int64()),
    }
    for name, column in columns.items():
        of = of.append_column(name, column)
    return of


def computed(batches: list[list[Row]], of: Plan, given: Sequence[Verdict]) -> list[dict[str, Any]]:
    state: entity_features.State = {}
    found: list[dict[str, Any]] = []
    every = [row for batch in batches for row in batch]
    for batch in batches:
        features, state = entity_features.compute(state, table(batch), of, decided(every, given))
        found += features.to_pylist()
    return found


def expected(rows: list[Row], label_delay: timedelta, given: Sequence[Verdict]) -> list[dict[str, Any]]:
    return [
        {feature.name: of_row(feature, row, rows, label_delay, given) for feature in plan(label_delay).features}
        for row in rows
    ]


def of_row(
    feature: DeclaredFeature, row: Row, rows: list[Row], label_delay: timedelta, given: Sequence[Verdict]
) -> Any:
    assert feature.window is not None
    size, window, delay, known_after = (
        round(seconds * 1e6)
        for seconds in (
            feature.size,
            feature.window.total_seconds(),
            feature.delay.total_seconds(),
            label_delay.total_seconds(),
        )
    )
    now = micros(row)
    begin = ((now - delay) // size - window // size + (delay == 0)) * size

    def is_in(other: Row, lag: int) -> bool:
        return micros(other) >= begin and (micros(other) < (now - lag) // size * size if lag else other.nth < row.nth)

    mine = [other for other in rows if other.account == row.account and HOLDS_HERE[feature.where](other)]
    if feature.aggregate == "count":
        return sum(is_in(other, delay) for other in mine)
    known: list[tuple[int, bool]] = []
    for other in mine:
        decisions = sorted(
            (verdict.seconds, verdict.verdict)
            for verdict in given
            if verdict.nth == other.nth and verdict.seconds <= row.seconds
        )
        label = other.label if is_in(other, max(delay, known_after)) else None
        if decisions and is_in(other, delay) and micros(other) < now:
            label = decisions[-1][1]
        if label is not None:
            known.append((now - micros(other), label))
    frauds = [since / 1e6 for since, label in known if label]
    return {
        "fraud_count": len(frauds),
        "fraud_share": len(frauds) / len(known) if known else None,
        "seconds_since_fraud": min(frauds, default=None),
    }[feature.aggregate]


HOLDS_HERE = {None: HOLDS[None], "amount > 50": HOLDS["amount > 50"]}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("label_delay", DELAYS)
def test_fraud_features_are_those_of_an_oracle(seed: int, label_delay: timedelta) -> None:
    days = [1, 20, 120, 300][seed]
    rows = drawn(seed, count=150, days=days)
    given = verdicts(rows, seed, days=min(days, 40))
    found = computed([rows], plan(label_delay), given)
    assert [rounded(row) for row in found] == [rounded(row) for row in expected(rows, label_delay, given)]


@pytest.mark.parametrize("seed", range(3))
def test_verdicts_that_come_between_micro_batches_give_what_the_history_gives(seed: int) -> None:
    rows = drawn(seed, count=300, days=60)
    given = verdicts(rows, seed, days=20)
    whole = computed([rows], plan(DAY), given)

    state: entity_features.State = {}
    found: list[dict[str, Any]] = []
    for batch in cuts(rows, seed):
        # When a micro-batch begins, the table has the verdicts of before its rows, and some of later ones.
        come = [verdict for verdict in given if verdict.seconds <= batch[-1].seconds]
        features, state = entity_features.compute(state, table(batch), plan(DAY), decided(rows, come))
        found += features.to_pylist()
    assert found == whole


@pytest.mark.parametrize("step_rows", [100, 5000])
def test_verdicts_on_a_first_load_count_however_long_it_is(step_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_buckets, "_STEP_ROWS", step_rows)
    hours = np.arange(60 * 24)
    features = [{"name": "frauds", "aggregate": "fraud_count", "window": "1 day"}]
    bucketed = FeatureBuckets.from_settings(Settings.model_validate({"features": features, "buckets": 1}))
    rows = packed_rows(bucketed, hours * 3_600_000_000)
    is_fraud = pa.array([True] * len(hours))
    decided_rows = rows.append_column(FIELDS[0], is_fraud).append_column(FIELDS[1], pc.add(rows["time"], 1))

    shuffled = rows.take(np.random.default_rng(1).permutation(len(rows)))
    parts = [*bucketed.steps(0, {DECIDED: decided_rows}, shuffled)]
    assert len(parts) == -(-len(hours) // step_rows)
    frauds = {row["transaction_id"]: row["frauds"] for part, _ in parts for row in part.to_pylist()}
    assert frauds == {str(hour): min(hour, 23) for hour in hours}
    assert len(parts[-1][1][DECIDED]) < len(hours)
    (without, after), *_ = bucketed.steps(0, {DECIDED: merge_decided(None, {})}, rows.slice(0, 9))
    assert (without["frauds"].to_pylist(), len(after[DECIDED])) == ([0.0] * 9, 0)


def test_moving_all_verdicts_by_a_day_changes_exactly_what_they_tell_on_that_day() -> None:
    rows = [row._replace(seconds=row.seconds + row.nth / 1e6) for row in drawn(2, count=400, days=60)]
    given = verdicts(rows, 2, days=10)
    moved = [verdict._replace(seconds=verdict.seconds + 86_400) for verdict in given]
    before, after = (computed([rows], plan(DAY), of) for of in (given, moved))
    assert [rounded(row) for row in after] == [rounded(row) for row in expected(rows, DAY, moved)]

    changed = {at for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}
    times = [(verdict.nth, verdict.seconds) for verdict in given]
    told = {
        at
        for at, row in enumerate(rows)
        if any(rows[nth].account == row.account and seconds <= row.seconds < seconds + 86_400 for nth, seconds in times)
    }
    assert changed and changed <= told
    assert all(before[at]["n"] == after[at]["n"] for at in changed)


def test_a_row_never_sees_the_verdict_on_itself_nor_one_of_the_future() -> None:
    rows = drawn(7, count=200, days=60)
    nothing = computed([rows], plan(DAY), [])
    for at in (40, 90, 150):
        for verdict in (True, False):
            at_once = computed([rows], plan(DAY), [Verdict(rows[at].nth, verdict, rows[at].seconds)])
            assert at_once[: at + 1] == nothing[: at + 1]
            known = rows[at].seconds + 86_400.0
            later = computed([rows], plan(DAY), [Verdict(rows[at].nth, verdict, known)])
            seen = [row for row, (a, b) in enumerate(zip(nothing, later, strict=True)) if a != b]
            assert all(rows[row].seconds >= known for row in seen)
