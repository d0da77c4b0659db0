"""Detector stream: runs the evaluator over a stream of valid transactions, in the order of arrival or of event time."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from fraudlake.detection import detector
from fraudlake.detection.entity_rules import STATE
from fraudlake.detection.evaluator import Evaluator
from fraudlake.detection.output import OUTPUT, late_rows
from fraudlake.keyed import buckets, ordering
from fraudlake.rules.rule_set import RuleSet
from fraudlake.times import durations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings

GRACE = durations.microseconds(timedelta(minutes=10))
"""Grace period in the order of arrival: how long an expired flag stays open for rows out of order, in microseconds of
event time."""


def detector_output(
    silver: DataFrame,
    settings: Settings,
    evaluator: Evaluator | None = None,
    change: buckets.Change | None = None,
    changed: Collection[int] = (),
    supplements: DataFrame | None = None,
) -> DataFrame:
    """Run the detector over a stream, in the order that ``settings.ordering`` names.

    Args:
        silver: a stream of ``silver_transactions``.
        settings: the declared columns, the order, how late a row may be, and the number of buckets.
        evaluator: evaluates the rules; by default those of the settings.
        change: applied to the state of every bucket in each micro-batch; usually none.
        changed: the entities, by number, whose buckets the change applies to even without new rows.
        supplements: the input of the change for each bucket, :data:`~fraudlake.keyed.buckets.SUPPLEMENTS`.

    Returns:
        A stream of alerts and of rows that came too late: :func:`alerts.alerts` and :func:`output.late` select from it.
    """
    rules = RuleSet.of(settings.rules).select_source("transactions")
    evaluator = evaluator or Evaluator.of(settings, rules.versions)
    in_event_time = settings.ordering == "event_time"
    if in_event_time:
        bound = bound_milliseconds(settings)
        silver = silver.withWatermark("timestamp", f"{bound} milliseconds")
    rows = evaluator.rows
    selected = silver.select(*evaluator.columns(in_event_time))
    packed = buckets.pack(selected, rows, settings.buckets, changed, evaluator.keys)
    by_bucket = buckets.supplemented(packed, supplements).groupBy("bucket")
    change = change or buckets.unchanged
    schema = from_arrow_schema(OUTPUT)
    if in_event_time:
        timed = buckets.TimedBucketProcessor(STATE, rows, _in_event_time(evaluator, bound), change)
        return by_bucket.transformWithStateInPandas(timed, schema, "Append", "EventTime")
    processor = buckets.BucketProcessor(STATE, rows, _as_they_arrive(evaluator), change)
    return by_bucket.transformWithStateInPandas(processor, schema, "Append", "None")


def bound_milliseconds(settings: Settings) -> int:
    """Return how much older than the newest event time a row may be, in whole milliseconds, like Spark's watermark."""
    return math.ceil(settings.max_out_of_orderness / timedelta(milliseconds=1))


def _as_they_arrive(evaluator: Evaluator) -> buckets.Steps:
    def steps(bucket: int, state: buckets.State, rows: pa.Table) -> Iterator[tuple[pa.Table, buckets.State]]:
        alerts, after = evaluator.evaluate(bucket, state, rows, ordering.clock(rows) - GRACE)
        yield OUTPUT.empty_table(), after
        for part in alerts:
            yield part, after

    return steps


def _in_event_time(evaluator: Evaluator, bound_milliseconds: int) -> buckets.TimedStep:
    bound = bound_milliseconds * 1000

    def step(bucket: int, state: buckets.State, rows: pa.Table, watermark: int) -> tuple[pa.Table, buckets.State]:
        split = detector.split_by_watermark(state[buckets.WAITING], rows, watermark, bound)
        number = buckets.entity_of(bucket, evaluator.buckets_each)
        # All entities share the stream's watermark, so a row is late for all or for none; it is output once.
        output = [late_rows(split.late)] if number == buckets.ACCOUNT.entity else []
        if number not in evaluator.evaluated:
            return pa.concat_tables([OUTPUT.empty_table(), *output]), buckets.empty(state)
        alerts, state = evaluator.evaluate(bucket, state, split.ready, split.ready_before)
        return pa.concat_tables([OUTPUT.empty_table(), *alerts, *output]), {**state, buckets.WAITING: split.waiting}

    return step
