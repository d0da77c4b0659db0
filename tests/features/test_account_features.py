from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.features import account_features, lake_features
from fraudlake.settings import Settings

SECOND = 1_000_000
DAY = 86_400


class Row(NamedTuple):
    account: str
    time: int  # microseconds
    amount: float
    source: str = "part-0"
    position: int = 0


def oracle(history: Iterable[Row]) -> dict[Row, dict[str, float]]:
    """The features as a person would compute them, one row at a time, remembering everything."""
    earlier: dict[str, list[Row]] = defaultdict(list)
    by_row = {}
    for row in sorted(history, key=lambda row: (row.time, row.source, row.position)):
        past = earlier[row.account]
        if past and row.time - past[-1].time > 30 * DAY * SECOND:
            past.clear()
        second = row.time // SECOND
        features = {"amount": row.amount, "hour_of_day": float(row.time // (3600 * SECOND) % 24)}
        recent = past[-1] if past and row.time - past[-1].time <= DAY * SECOND else None
        features["previous_amount"] = recent.amount if recent else 0.0
        features["seconds_since_previous"] = (row.time - recent.time) / SECOND if recent else float(DAY)
        for name, begin in (
            ("minute", second - 59),
            ("hour", (second // 60 - 59) * 60),
            ("day", (second // 3600 - 23) * 3600),
        ):
            inside = [before for before in past if before.time >= begin * SECOND]
            features[f"count_{name}"] = float(len(inside))
            features[f"sum_{name}"] = sum(before.amount for before in inside)
        all_of_it = [*past, row]
        usual = math.exp(sum(math.log(transaction.amount) for transaction in all_of_it) / len(all_of_it))
        features["amount_to_usual"] = row.amount / usual
        angles = [transaction.time % (DAY * SECOND) / (DAY * SECOND) * 2 * math.pi for transaction in all_of_it]
        mean = math.atan2(sum(map(math.sin, angles)), sum(map(math.cos, angles)))
        apart = abs(angles[-1] - mean) % (2 * math.pi)
        features["hours_from_usual"] = min(apart, 2 * math.pi - apart) * 12 / math.pi
        by_row[row] = features
        past.append(row)
    return by_row


def table(rows: list[Row]) -> pa.Table:
    accounts = {name: hash(name) for name in {row.account for row in rows}}
    return pa.table(
        {
            "account": pa.array([accounts[row.account] for row in rows], pa.int64()),
            "time": pa.array([row.time for row in rows], pa.int64()),
            "amount": pa.array([row.amount for row in rows], pa.float64()),
            "source": pa.array([row.source for row in rows], pa.string()).dictionary_encode(),
            "position": pa.array([row.position for row in rows], pa.int64()),
            "account_id": pa.array([row.account for row in rows], pa.string()),
            "transaction_id": pa.array([str(row.position) for row in rows], pa.string()),
            "label": pa.array([False] * len(rows)),
        }
    )


def computed(*micro_batches: list[Row]) -> dict[str, dict[str, float]]:
    """Each transaction's features by its id."""
    memory, by_id = account_features.MEMORY.empty_table(), {}
    for batch in micro_batches:
        rows, memory = account_features.compute(memory, table(batch))
        by_id |= {row["transaction_id"]: {n: row[n] for n in account_features.NAMES} for row in rows.to_pylist()}
    return by_id


def history(seed: int, rows: int, seconds: float) -> list[Row]:
    """Accounts of very different pace, with equal times, equal seconds and pauses of weeks among them."""
    draw = np.random.default_rng(seed)
    gaps = np.where(draw.random(rows) < 0.1, 0, draw.exponential(seconds / rows, rows))
    gaps[draw.random(rows) < 0.005] = 31 * DAY
    times = 1_772_841_600 * SECOND + (np.cumsum(gaps) * SECOND).astype(int)
    accounts = draw.choice(["busy", "steady", "rare"], rows, p=[0.8, 0.17, 0.03])
    amounts = np.round(draw.lognormal(3.5, 1.2, rows) + 0.01, 2)
    return [
        Row(str(a), int(t), float(x), "part-0", i)
        for i, (a, t, x) in enumerate(zip(accounts, times, amounts, strict=True))
    ]


@pytest.mark.parametrize("seconds", [600, 40_000, 900_000])
def test_however_a_history_is_cut_every_row_has_the_features_that_the_oracle_gives(seconds: float) -> None:
    rows = history(seed=7, rows=600, seconds=seconds)
    expected = {str(row.position): features_of_row for row, features_of_row in oracle(rows).items()}
    cuts = sorted({0, 1, 5, 60, 61, 200, 450, 600})
    in_pieces = computed(*(rows[a:b] for a, b in itertools.pairwise(cuts)))
    in_a_single_call = computed(rows[::-1])

    assert in_pieces == in_a_single_call
    assert in_a_single_call.keys() == expected.keys()
    for name, values in in_a_single_call.items():
        assert values == pytest.approx(expected[name], rel=1e-5, abs=1e-5), name


def test_a_whole_table_has_the_features_of_a_single_call_whatever_its_order_and_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [Row(f"{row.account}-{row.position % 40}", *row[1:]) for row in history(seed=11, rows=900, seconds=900_000)]
    shuffled = table([rows[at] for at in np.random.default_rng(1).permutation(len(rows))])
    times = shuffled["time"].cast(pa.timestamp("us", "UTC"))
    silver = shuffled.drop_columns(["account", "time"]).append_column("timestamp", times)
    monkeypatch.setattr(lake_features, "_PART_ROWS", 100)
    no_verdicts = tables.SILVER_VERDICTS.schema.empty_table()
    whole = lake_features.compute_table(
        silver, (), lambda part: part, account_features.COMPUTED, Settings(), no_verdicts
    )
    of_rows = {row["transaction_id"]: {n: row[n] for n in account_features.NAMES} for row in whole.to_pylist()}
    assert of_rows == computed(rows)
    assert whole["account_id"].to_pylist() == sorted(whole["account_id"].to_pylist())
    nothing = lake_features.compute_table(
        silver.slice(0, 0), (), lambda part: part, account_features.COMPUTED, Settings(), no_verdicts
    )
    assert len(nothing) == 0


def test_a_row_of_the_future_changes_nothing() -> None:
    rows = history(seed=3, rows=200, seconds=50_000)
    later = [
        Row(name, rows[-1].time + 1, 9999.0, "part-0", 900 + i) for i, name in enumerate(("busy", "steady", "rare"))
    ]
    before = computed(rows)
    after = computed(rows + later)
    assert {name: after[name] for name in before} == before


def test_a_row_that_comes_late_sees_only_what_is_before_it_in_time() -> None:
    late = computed(
        [Row("a", 100 * SECOND, 5.0, "p", 0), Row("a", 200 * SECOND, 80.0, "p", 1)],
        [Row("a", 130 * SECOND, 7.0, "p", 2)],
    )["2"]
    assert (late["previous_amount"], late["seconds_since_previous"]) == (5.0, 30.0)
    assert (late["count_day"], late["sum_day"]) == (1.0, 5.0)


def test_what_is_remembered_of_an_account_is_bounded_and_ends_with_its_traffic() -> None:
    memory, sizes = account_features.MEMORY.empty_table(), []
    for hour in range(24 * 3):
        batch = [Row("a", (hour * 3600 + i) * SECOND, 1.0, "p", i) for i in range(0, 3600, 2)]
        _, memory = account_features.compute(memory, table(batch))
        sizes.append(len(memory))
    assert max(sizes) <= 60 + 60 + 24 + 1
    _, memory = account_features.compute(memory, table([Row("b", 40 * DAY * SECOND, 1.0)]))
    assert memory["account"].to_pylist() == [hash("b")]
