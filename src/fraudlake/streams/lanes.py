"""Lanes: updates ``gold_lane_agreement`` from the alerts of the fast lane and of the exact lane."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.entity import ACCOUNT
from fraudlake.gold import lane_agreement
from fraudlake.gold.lane_agreement import AGGREGATE
from fraudlake.lake import machine_clock
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.streams import refresh
from fraudlake.streams.stream import Stream
from fraudlake.streams.watermark import watermark
from fraudlake.times import literals

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake


def stream(lake: Lake) -> Stream:
    """``bronze_fast_alerts`` and ``silver_alerts`` → ``gold_lane_agreement``."""

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        touched = batch.where("date IS NOT NULL").groupBy("date").agg(F.max("is_fast").alias("is_fast")).collect()
        # Pending alerts of only the exact lane can change only when the fast lane raises another alert.
        lanes = lane_agreement.LANES if any(row["is_fast"] for row in touched) else ("fast",)
        _compare(lake, {row["date"] for row in touched} | _pending_days(lake, lanes))

    return Stream(
        AGGREGATE.step,
        lambda: refresh.touched(lake, [AGGREGATE]).select(f"{AGGREGATE.step}.*"),
        write,
        reads=AGGREGATE.sources,
        persist=False,
        # If the exact lane never raises a pending alert of the fast lane, no micro-batch would settle it.
        after=lambda: _compare(lake, _pending_days(lake, ("fast",))),
    )


def _pending_days(lake: Lake, lanes: Iterable[str]) -> set[date]:
    """Return the days with alerts that so far only one of some lanes has raised, and the other one still may."""
    condition = " OR ".join(f"only_{lane}_pending > 0" for lane in lanes)
    rows = lake.store.query(f"SELECT DISTINCT date FROM {AGGREGATE.table.name} WHERE {condition}", AGGREGATE.table)
    return set(rows["date"].to_pylist())


def recompute(lake: Lake, days: Iterable[date], messages: DataFrame | None = None) -> None:
    """Compare the lanes on some days again, if the lake compares them.

    Args:
        lake: the lake.
        days: the days.
        messages: the rows to use instead of the current ``bronze_fast_alerts``.
    """
    if not lake.checkpoint(AGGREGATE.step).is_new:
        _compare(lake, set(days), messages)


def _compare(lake: Lake, days: set[date], messages: DataFrame | None = None) -> None:
    """Compare the lanes on days from which no row has been removed."""
    compared = (tables.BRONZE_FAST_ALERTS, tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE, tables.SILVER_ALERTS)
    first_day = machine_clock.first_day(lake, *(table.name for table in compared))
    chosen = sorted(day for day in days if first_day is None or day >= first_day)
    if not chosen:
        return
    silver = lake.read(tables.SILVER_TRANSACTIONS)
    rules_of_lake = rule_table.read(lake)
    live = [version.rule for version in rules_of_lake.live if version.rule.entity == ACCOUNT]
    rules = {rule.name: rule.within for rule in live if isinstance(rule, SmallThenLargeRule)}
    rules |= {rule.name: rule.duration or timedelta(0) for rule in live if isinstance(rule, ThresholdRule)}
    # An alert may depend on rows before its day, and rows still earlier may explain it.
    beside = 1 + max((look_back.days for look_back in rules.values()), default=0)
    numbers = {day.toordinal() + distance for day in chosen for distance in range(-beside, beside + 1)}
    near = [date.fromordinal(number) for number in sorted(numbers) if 1 <= number <= date.max.toordinal()]
    sent = lake.read(tables.BRONZE_FAST_ALERTS) if messages is None else messages
    # The fast lane ignores list entries, so an alert that they suppress counts as one of the exact lane.
    suppressed = lake.read(tables.SILVER_SUPPRESSED_ALERTS).where("NOT is_shadow").drop("entry_id", "is_shadow")
    raised = lake.read(tables.SILVER_ALERTS).unionByName(suppressed)
    raised = raised.where(F.to_date("timestamp").isin([literals.day(one) for one in chosen]))
    agreement = lane_agreement.lane_agreement(
        refresh.on_dates(sent, chosen),
        raised,
        refresh.on_dates(silver, near),
        lake.read(tables.SILVER_QUARANTINE),
        sent,
        rules,
        watermark(lake) if lake.settings.ordering == "event_time" else None,
    )
    refresh.replace_days(lake, agreement, AGGREGATE, chosen)
