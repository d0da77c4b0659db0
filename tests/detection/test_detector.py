from __future__ import annotations

import hashlib
import itertools
import random
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fraudlake.detection import detector
from fraudlake.keyed import ordering
from fraudlake.keyed.rows import ROWS
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from tests import oracle
from tests.oracle import Row
from tests.rule_cases import PAIRS, Case

SECOND = 1_000_000
RULE = SmallThenLargeRule(name="small_then_large", small_below=1.0, large_above=500.0, within=timedelta(seconds=60))
STRICTER = SmallThenLargeRule(name="stricter", small_below=0.5, large_above=600.0, within=timedelta(seconds=10))


def table(rows: list[Row]) -> pa.Table:
    def account(name: str) -> int:
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little", signed=True)

    return pa.table(
        {
            "account": pa.array([account(row.account_id) for row in rows], pa.int64()),
            "time": pa.array([row.time for row in rows], pa.int64()),
            "amount": pa.array([row.amount for row in rows], pa.float64()),
            "source": pa.array([row.source for row in rows], pa.string()).dictionary_encode(),
            "position": pa.array([row.position for row in rows], pa.int64()),
            "account_id": pa.array([row.account_id for row in rows], pa.string()),
            "transaction_id": pa.array([f"{row.source}-{row.position}" for row in rows], pa.string()),
            "label": pa.nulls(len(rows), pa.bool_()),
        },
        schema=ROWS,
    )


def detect(batches: list[list[Row]], rules: tuple[SmallThenLargeRule, ...] = (RULE,)) -> list[tuple[str, str, str]]:
    """Rule, small id and large id of every alert on these micro-batches."""
    flags, alerts = detector.FLAGS.empty_table(), []
    for rows in batches:
        pairs, flags = detector.detect(flags, table(rows), rules, now=0)
        alerts += with_ids(pairs, rules)
    return sorted(alerts)


def with_ids(pairs: detector.AlertPairs, rules: tuple[SmallThenLargeRule, ...]) -> list[tuple[str, str, str]]:
    ids = pairs.candidates["transaction_id"].to_pylist()
    numbers = zip(pairs.rule, pairs.small, pairs.large, strict=True)
    return [(rules[rule].name, ids[small], ids[large]) for rule, small, large in numbers]


def detect_in_event_time(batches: list[list[Row]], bound: int) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Alerts and the ids of late rows; the watermark moves as Spark's does (by milliseconds), to the end at last."""
    flags, waiting, watermark = detector.FLAGS.empty_table(), ROWS.empty_table(), 0
    alerts, late = [], []
    for rows in [*batches, []]:
        if not rows:
            watermark = 10**18  # the end: no row waits any longer
        split = detector.split_by_watermark(waiting, table(rows), watermark, bound)
        pairs, flags = detector.detect(flags, split.ready, [RULE], split.ready_before)
        waiting = split.waiting
        alerts += with_ids(pairs, (RULE,))
        late += split.late["transaction_id"].to_pylist()
        watermark = max([watermark, *(row.time // 1000 * 1000 - bound for row in rows)])
    return sorted(alerts), sorted(late)


def expected(rows: list[Row], rule: SmallThenLargeRule = RULE) -> list[tuple[str, str, str]]:
    pairs = oracle.alerts(rows, rule.small_below, rule.large_above, round(rule.within.total_seconds() * SECOND))
    return sorted((rule.name, f"{s.source}-{s.position}", f"{b.source}-{b.position}") for s, b in pairs)


def account(*steps: tuple[float, float]) -> list[Row]:
    """One account's rows from (seconds, amount)."""
    return [Row("1", round(second * SECOND), amount, position=i) for i, (second, amount) in enumerate(steps)]


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.name)
def test_the_detector_raises_the_alerts_of_the_case(case: Case) -> None:
    rule = SmallThenLargeRule.model_validate(case.rule)
    assert detect([case.rows()], (rule,)) == [(rule.name, f"part-0-{s}", f"part-0-{b}") for s, b in case.alerts]


def test_another_accounts_transaction_between_does_not_clear_the_flag() -> None:
    rows = [Row("1", 0, 0.5, position=0), Row("2", 1, 50.0, position=1), Row("1", 2, 600.0, position=2)]
    assert detect([rows]) == [("small_then_large", "part-0-0", "part-0-2")]


def test_two_accounts_with_the_same_hash_are_not_taken_for_one() -> None:
    rows = table([Row("1", 0, 0.5), Row("2", SECOND, 600.0, position=1)])
    same = rows.set_column(0, "account", pa.array([7, 7], pa.int64()))
    pairs, _ = detector.detect(detector.FLAGS.empty_table(), same, [RULE], now=0)
    assert with_ids(pairs, (RULE,)) == []


def test_exactly_within_counts_and_a_microsecond_more_does_not() -> None:
    assert len(detect([account((0, 0.5), (60, 600.0))])) == 1
    assert detect([account((0, 0.5), (60.000001, 600.0))]) == []


def test_a_flag_stays_open_from_one_micro_batch_to_the_next() -> None:
    small, large = account((0, 0.5), (30, 600.0))
    assert detect([[small], [large]]) == [("small_then_large", "part-0-0", "part-0-1")]


def test_a_large_one_that_comes_later_with_an_earlier_time_counts_within_the_same_bound() -> None:
    small, a_little, far = account((100, 0.5), (40, 600.0), (39.999999, 600.0))
    assert len(detect([[small], [a_little]])) == 1
    assert detect([[small], [far]]) == []


def test_rows_of_the_same_time_are_ordered_by_source_and_position() -> None:
    small, large = Row("1", 0, 0.5, "part-a", 7), Row("1", 0, 600.0, "part-b", 2)
    assert len(detect([[large, small]])) == 1
    assert detect([[small._replace(source="part-c"), large]]) == []
    assert len(detect([[large._replace(source="part-a", position=8), small]])) == 1


@pytest.mark.slow
def test_an_account_with_a_third_of_all_rows_hides_no_alert_of_its_own_or_of_others() -> None:
    draw = random.Random(7)
    rows = [
        Row("hot" if draw.random() < 0.3 else str(draw.randrange(500)), at * SECOND, draw.choice((0.5, 20.0, 600.0)))
        for at in range(60_000)
    ]
    rows = [row._replace(position=at) for at, row in enumerate(rows)]
    pairs = expected(rows)
    assert len({row.account_id for row in rows}) == 501 and len(pairs) > 1000
    assert detect([rows[begin : begin + 20_000] for begin in range(0, len(rows), 20_000)]) == pairs


def test_a_flag_that_expired_before_now_is_dropped() -> None:
    flags = detector.detect(detector.FLAGS.empty_table(), table(account((0, 0.5))), [RULE], 0)[1]
    later = table([Row("2", 70 * SECOND, 50.0)])
    still_open = detector.detect(flags, later, [RULE], 60 * SECOND)[1]
    dropped = detector.detect(flags, later, [RULE], 60 * SECOND + 1)[1]
    assert (len(flags), len(still_open), len(dropped)) == (1, 1, 0)


def test_one_wild_timestamp_does_not_move_a_buckets_clock() -> None:
    year = 365 * 86_400 * SECOND
    assert ordering.clock(table([Row("9", i, 50.0) for i in range(3)] + [Row("8", year, 50.0)])) == 1


def test_each_rule_raises_its_own_alerts() -> None:
    rows = account((0, 0.7), (5, 550.0), (100, 0.2), (105, 650.0))
    assert detect([rows], (RULE, STRICTER)) == sorted(expected(rows) + expected(rows, STRICTER))
    assert len(expected(rows, STRICTER)) == 1


amounts = st.sampled_from([0.01, 0.99, 1.0, 1.01, 42.0, 500.0, 500.01, 900.0])
histories = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 20).map(lambda n: n * 10 * SECOND), amounts), max_size=60
).map(lambda drawn: [Row(a, t, m, f"part-{i % 3}", i) for i, (a, t, m) in enumerate(drawn)])


@given(histories)
def test_in_one_micro_batch_it_finds_what_the_oracle_finds_in_event_time(rows: list[Row]) -> None:
    assert detect([rows]) == expected(oracle.in_event_time(rows))


@given(histories, st.lists(st.integers(0, 60), max_size=6))
def test_it_takes_micro_batches_as_they_come_and_each_in_event_time(rows: list[Row], cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    batches = [rows[a:b] for a, b in itertools.pairwise(edges)]
    assert detect(batches) == expected([row for batch in batches for row in oracle.in_event_time(batch)])


@given(histories)
def test_the_order_of_rows_within_a_micro_batch_does_not_matter(rows: list[Row]) -> None:
    assert detect([rows[::-1]], (RULE, STRICTER)) == detect([rows], (RULE, STRICTER))


BOUND = 30 * SECOND


def shuffled_within_bound(rows: list[Row], lateness: list[int]) -> list[Row]:
    """The rows in an order in which none comes more than the bound after a newer one."""
    arrival = [row.time + late for row, late in zip(rows, lateness, strict=True)]
    return [row for _, row in sorted(zip(arrival, rows, strict=True))]


disordered = histories.flatmap(
    lambda rows: st.lists(st.integers(0, BOUND), min_size=len(rows), max_size=len(rows)).map(
        lambda lateness: shuffled_within_bound(rows, lateness)
    )
)


@given(disordered, st.lists(st.integers(0, 60), max_size=6))
def test_in_event_time_order_the_cut_into_micro_batches_does_not_matter(rows: list[Row], cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    batches = [rows[a:b] for a, b in itertools.pairwise(edges) if a < b]
    assert detect_in_event_time(batches, BOUND) == (expected(oracle.in_event_time(rows)), [])


fractions = st.sampled_from([0, 1, 400, 999])
within_milliseconds = st.lists(
    st.tuples(st.sampled_from([0, 3]), fractions, st.sampled_from([0.5, 600.0]), st.sampled_from([0, 3])), max_size=8
).map(
    # Each row comes at a time of whole milliseconds, at most 3 ms after its own.
    lambda drawn: [
        Row("1", 1000 * milliseconds + micros, amount, position=number)
        for number, (milliseconds, micros, amount, _) in sorted(
            enumerate(drawn), key=lambda entry: entry[1][0] + entry[1][3]
        )
    ]
)


@pytest.mark.slow
@given(within_milliseconds, st.lists(st.integers(0, 8), max_size=4))
@settings(max_examples=500)
def test_nor_does_it_matter_where_rows_are_less_than_a_millisecond_apart(rows: list[Row], cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    batches = [rows[a:b] for a, b in itertools.pairwise(edges) if a < b]
    assert detect_in_event_time(batches, bound=3000) == (expected(oracle.in_event_time(rows)), [])


def test_a_row_less_than_a_millisecond_behind_the_bound_is_in_order_or_late() -> None:
    large, newest, small = Row("1", 400, 600.0), Row("9", 3999, 50.0), Row("1", 1, 0.5, position=1)
    # Spark's watermark after the newest row is 0: the small row may still come, and so the large one waits for it.
    assert detect_in_event_time([[large, newest], [small]], bound=3000) == (
        [("small_then_large", "part-0-1", "part-0-0")],
        [],
    )


def test_a_row_behind_the_watermark_is_late_and_one_at_it_is_not() -> None:
    newest = Row("9", 100 * SECOND, 50.0, position=0)
    at, behind = Row("1", 70 * SECOND, 0.5, position=1), Row("1", 70 * SECOND - 1, 0.5, position=2)
    assert detect_in_event_time([[newest], [at, behind]], BOUND)[1] == ["part-0-2"]


def test_a_late_row_neither_alerts_nor_clears_a_flag() -> None:
    small, large = Row("1", 0, 0.5, position=0), Row("1", 20 * SECOND, 900.0, position=1)
    between, newest = Row("1", 10 * SECOND, 0.7, position=2), Row("9", 100 * SECOND, 50.0, position=3)
    alerts, late = detect_in_event_time([[small, large], [newest], [between]], BOUND)
    assert alerts == [("small_then_large", "part-0-0", "part-0-1")]
    assert late == ["part-0-2"]
