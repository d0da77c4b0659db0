"""Groups: recomputes the groups of aggregates, and the cases, that new transactions and alerts touch.

A group is always computed whole, from the current tables. So repeated micro-batches and late rows give the same result
as one pass over everything.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.gold import gold_tables
from fraudlake.gold.aggregate import by_sources
from fraudlake.lake import threads
from fraudlake.lake.rows import persisted_batch
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.streams import cases, refresh
from fraudlake.streams.stream import Stream
from fraudlake.times import durations
from fraudlake.times.days import divided
from fraudlake.values import summed_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.gold.aggregate import GroupAggregate
    from fraudlake.lake import Lake

_AT_ONCE = 4_000_000
"""Number of transactions whose groups are computed and merged at once: a merge has them all in memory."""
_MANY = 20_000
"""Number of rows in a micro-batch from which it pays to count the rows of their days."""


def shared(lake: Lake) -> list[Stream]:
    """Return a stream for all aggregates of the same sources, so that new rows are read once for all of them."""
    return [_stream(lake, aggregates) for aggregates in by_sources(gold_tables.GROUPED)]


def _stream(lake: Lake, aggregates: Sequence[GroupAggregate]) -> Stream:
    """The aggregates' sources → their tables. The stream has the name and the checkpoint of the first aggregate.

    It also updates cases, if they have the same sources.
    """
    first = aggregates[0]
    has_cases = first.sources == gold_tables.CASES.sources

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            # It touches all groups, so its rows are read only to compute these.
            updates = _updates(lake, aggregates, refresh.whole_days(lake))
            threads.call_all([*([partial(cases.update_all, lake)] if has_cases else []), *updates])
            return
        touched = refresh.select_whole_days(lake, batch, f"{first.step}.date")
        with persisted_batch(touched) as require_again:
            by_day, entities = _summary(touched, first, has_cases)
            rows = sum(by_day.values())
            require_again(rows)
            # Groups are computed from all rows of their days, old and new; few new rows touch few groups.
            is_many = rows > _MANY
            whole = refresh.counts(lake, [*by_day]) if is_many else by_day
            # If most rows of the days are new, computing every group is faster than finding the touched ones.
            is_most = is_many and 2 * rows > sum(whole.values())
            updates = _updates(lake, aggregates, whole, None if is_most else touched)
            threads.call_all([partial(cases.update, lake, entities), *updates])

    return Stream(
        first.step,
        partial(refresh.touched, lake, [*aggregates, *([gold_tables.CASES] if has_cases else [])]),
        write,
        reads=first.sources,
        persist=False,
        before=partial(_take_on, lake, aggregates),
    )


def _summary(
    touched: DataFrame, aggregate: GroupAggregate, has_cases: bool
) -> tuple[dict[date, int], set[cases.Entity]]:
    """Return the number of rows of each day, and the entities with new alerts, by one query."""
    keys = [F.col(f"{aggregate.step}.date").alias("date")]
    if has_cases:
        keys.append(F.col(gold_tables.CASES.step).alias("entity"))
    by_day: Counter[date] = Counter()
    alerted: set[cases.Entity] = set()
    for row in touched.groupBy(*keys).count().collect():
        by_day[row["date"]] += row["count"]
        if has_cases and row["entity"]["entity"] is not None:
            alerted.add((row["entity"]["entity"], row["entity"]["entity_key"]))
    return by_day, alerted


def _updates(
    lake: Lake, aggregates: Collection[GroupAggregate], days: Mapping[date, int], touched: DataFrame | None = None
) -> list[Callable[[], None]]:
    """Return a call per table that computes and merges the groups of some days, or only those in ``touched``.

    ``days`` has the number of transactions of each day.
    """
    if not days:
        return []
    rules = _rules(lake)

    def update(aggregate: GroupAggregate) -> None:
        for part in divided(days, _AT_ONCE):
            groups = _computed(lake, aggregate, lake.read(tables.SILVER_TRANSACTIONS), part, rules)
            if touched is not None:
                groups = refresh.select_groups(groups, touched.select(f"{aggregate.step}.*").distinct(), aggregate.keys)
            lake.writer(aggregate.table).upsert(groups, aggregate.keys, part)

    return [partial(update, aggregate) for aggregate in aggregates]


def _take_on(lake: Lake, aggregates: Sequence[GroupAggregate]) -> None:
    """Compute tables that are new to a stream that has begun from all days; from then on the stream updates them."""
    first, *others = aggregates
    checkpoint = lake.checkpoint(first.step)
    new = [aggregate for aggregate in others if aggregate.table.name not in checkpoint.notes.also_writes]
    # A new gap or length changes all cases.
    bounds = ", ".join(map(durations.text, (lake.settings.case_gap, lake.settings.case_length)))
    of_bounds = [f"{gold_tables.CASES.table.name} {bounds}"] if first.sources == gold_tables.CASES.sources else []
    if not new and {*of_bounds} <= {*checkpoint.notes.also_writes}:
        return
    if not checkpoint.is_new:
        threads.call_all(_updates(lake, new, refresh.whole_days(lake) if new else {}))
        if of_bounds:
            cases.update_all(lake)
    checkpoint.notes.note_also_writes([*(aggregate.table.name for aggregate in others), *of_bounds])


def recompute(
    lake: Lake,
    aggregate: GroupAggregate,
    transactions: DataFrame,
    days: list[date],
    alerts: DataFrame | None = None,
) -> None:
    """Recompute the groups of some days, and remove groups that no longer have a transaction.

    Args:
        lake: the lake.
        aggregate: the aggregate.
        transactions: the transactions to aggregate.
        days: the days.
        alerts: the alerts to aggregate; by default all.
    """
    rules = _rules(lake)
    for part in divided(refresh.counts(lake, days), _AT_ONCE):
        computed = _computed(lake, aggregate, transactions, part, rules, alerts)
        refresh.replace_days(lake, computed, aggregate, part)


def _computed(
    lake: Lake,
    aggregate: GroupAggregate,
    transactions: DataFrame,
    days: list[date],
    rules: Sequence[SmallThenLargeRule],
    alerts: DataFrame | None = None,
) -> DataFrame:
    alerts = lake.read(tables.SILVER_ALERTS) if alerts is None else alerts
    summed = {"summed": summed_amount(lake.settings.silver_columns)} if aggregate.adds_amounts else {}
    return aggregate.compute(refresh.on_dates(transactions, days), alerts, rules, **summed)


def _rules(lake: Lake) -> list[SmallThenLargeRule]:
    live = [version.rule for version in rule_table.read(lake).live]
    return [rule for rule in live if isinstance(rule, SmallThenLargeRule)]
