"""The detector's stream: ``silver_transactions`` → alerts, under the rules of the table of rules.

Before a micro-batch is processed, the checkpoint notes the change of rules after which it evaluates. If the rules
have changed since, the stream is rebuilt for the same micro-batch, which then begins with the new rules; a
micro-batch that is repeated after a crash keeps those that were noted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import alerts, buckets, rule_table, warm_start
from fraudlake.lake import conflict
from fraudlake.lake.appender import Appender
from fraudlake.lake.missing_version import is_missing
from fraudlake.lake.rows import persisted_batch
from fraudlake.silver import quality_rules
from fraudlake.silver import transactions as silver
from fraudlake.streams.stream import OutdatedError, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.detection.warm_start import WarmState
    from fraudlake.lake import Lake
    from fraudlake.lake.checkpoint import Checkpoint
    from fraudlake.rules.rule_set import RuleSet, RuleVersion

_LOG = logging.getLogger(__name__)


def streams(lake: Lake, forget: Mapping[int, str] | None = None) -> list[Stream]:
    """``silver_transactions`` → ``silver_alerts``, through the stateful detector.

    Alerts of rules in the shadow go to ``silver_shadow_alerts``. If the step starts over, late rows of the stream
    before leave ``silver_quarantine``: every row is evaluated again.

    Args:
        lake: the lake.
        forget: accounts that leave the state, by their hashes (``xxhash64``).

    Returns:
        The stream as its next micro-batch needs it.

    Raises:
        UsageError: a rule does not suit the columns, or its rows are not divided by account.
    """
    checkpoint, appender = lake.checkpoint("detect"), Appender.of(lake, "detect")
    pending, first = checkpoint.pending_batch(), checkpoint.next_batch
    rules = _noted(lake, checkpoint, first) if pending is not None else rule_table.read(lake)
    has_changed = first > 0 and _change_noted(checkpoint, first - 1) != rules.change
    added = rules.added_since(_noted(lake, checkpoint, first - 1)) if has_changed else ()
    # Before the rules of the settings are written to their table: one may be impossible.
    evaluator = alerts.Evaluator.of(lake.settings, rules.evaluated)
    in_event_time = lake.settings.ordering == "event_time"
    has_shadow = any(version.is_shadow for version in rules.evaluated)

    def before() -> None:
        rule_table.start(lake)
        if pending is None:
            _note(lake, checkpoint, first, rules.change)
        is_late = f"array_contains(reasons, '{quality_rules.LATE}')"
        if checkpoint.is_new and lake.has_rows(tables.SILVER_QUARANTINE, is_late):
            name = lake.name_of(tables.SILVER_QUARANTINE)
            conflict.retried(lambda: lake.session.sql(f"DELETE FROM {name} WHERE {is_late}"))  # noqa: S608 (both are ours)

    def renewed() -> Stream:
        _note(lake, checkpoint, checkpoint.next_batch, rule_table.latest_change(lake))
        (stream,) = streams(lake, forget)
        return stream

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        if batch_id != pending and ((added and batch_id != first) or rule_table.latest_change(lake) != rules.change):
            raise OutdatedError
        # In the order of arrival no row is late, and without a shadow the detector's output is used once.
        if not (in_event_time or has_shadow):
            appender.append(lake, alerts.alerts(batch), tables.SILVER_ALERTS, batch_id)
            return
        quarantine = tables.SILVER_QUARANTINE
        with persisted_batch(batch) as require_again:
            counts = {row["is_shadow"]: row["count"] for row in batch.groupBy("is_shadow").count().collect()}
            require_again(sum(counts.values()))
            for is_shadow, rows, table in (
                (False, alerts.alerts(batch), tables.SILVER_ALERTS),
                (True, alerts.alerts(batch, is_shadow=True), tables.SILVER_SHADOW_ALERTS),
                (None, silver.quarantined_late(alerts.late(batch), lake.table(quarantine)), quarantine),
            ):
                if is_shadow in counts:
                    appender.append(lake, rows, table, batch_id)
                    appender.require_rows(lake, (table,), batch_id, counts[is_shadow])

    def rows() -> DataFrame:
        transactions = lake.read_stream(tables.SILVER_TRANSACTIONS, by_time="timestamp" if in_event_time else None)
        change = _change(lake, checkpoint, rules, added, forget)
        return alerts.detector_output(transactions, lake.settings, evaluator, change)

    return [
        Stream(
            "detect",
            rows,
            write,
            reads=(tables.SILVER_TRANSACTIONS,),
            writes=dict.fromkeys((tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS), ""),
            fixed={"buckets": lake.settings.buckets, "ordering": lake.settings.ordering},
            persist=False,
            waits=in_event_time,
            before=before,
            renewed=renewed,
        )
    ]


def _note(lake: Lake, checkpoint: Checkpoint, batch: int, change: int) -> None:
    """Record the change of rules that a micro-batch evaluates, and the position of the stream before it."""
    if checkpoint.rules_of(batch) == change:
        return
    silver_table, done = tables.SILVER_TRANSACTIONS, batch - 1
    version = checkpoint.version_read(done, lake.identity(silver_table))
    newest = None if version is None else _newest(lake, version)
    read: dict[str, int | None] = {"silver_version": version, "newest": newest, "watermark": None}
    watermark = checkpoint.watermark_milliseconds(done) if lake.settings.ordering == "event_time" else None
    if watermark is not None:
        read["watermark"] = watermark * 1000
    checkpoint.note_rules(batch, change, read)


def _newest(lake: Lake, version: int) -> int | None:
    """Return the newest event time of a version of silver, microseconds; None: it has no rows, or is gone."""
    newest_of = F.max(F.unix_micros("timestamp"))
    try:
        newest: int | None = lake.read_version(tables.SILVER_TRANSACTIONS, version).agg(newest_of).collect()[0][0]
    except PySparkException as error:
        if not is_missing(error):
            raise
        return None
    return newest


def _noted(lake: Lake, checkpoint: Checkpoint, batch: int) -> RuleSet:
    """Return the rules that a micro-batch was noted to evaluate."""
    return rule_table.read(lake, _change_noted(checkpoint, batch))


def _change_noted(checkpoint: Checkpoint, batch: int) -> int:
    """Return the change after which a micro-batch was noted to evaluate; before there were notes, it was the first."""
    return checkpoint.rules_of(batch) or 1


def _change(
    lake: Lake,
    checkpoint: Checkpoint,
    rules: RuleSet,
    added: Sequence[RuleVersion],
    forget: Mapping[int, str] | None,
) -> buckets.Change | None:
    """Return the state of every bucket for the next micro-batch: without accounts, and with new rules."""
    changes = []
    if forget:
        changes.append(alerts.forgetting(lake.settings, rules.evaluated, forget))
    states = _states(lake, checkpoint, rules, added) if added else None
    if states is not None:
        changes.append(warm_start.change(lake.settings, added, states))
    if not changes:
        return None

    def change(bucket: int, state: buckets.State) -> buckets.State:
        for apply in changes:
            state = apply(bucket, state)
        return state

    return change


def _states(
    lake: Lake, checkpoint: Checkpoint, rules: RuleSet, added: Sequence[RuleVersion]
) -> dict[int, WarmState] | None:
    """Return the initial state of new rules, by bucket; None if the rows that the stream has read are gone."""
    done, table = checkpoint.next_batch - 1, tables.SILVER_TRANSACTIONS
    version = checkpoint.version_read(done, lake.identity(table))
    if version is None:
        return None
    in_event_time = lake.settings.ordering == "event_time"
    watermark = checkpoint.watermark_milliseconds(done) if in_event_time else None
    late = lake.read(tables.SILVER_QUARANTINE).where(f"array_contains(reasons, '{quality_rules.LATE}')")
    places = late.select(silver.source().alias("source"), silver.position().alias("position"))
    micros = None if watermark is None else watermark * 1000
    try:
        read = lake.read_version(table, version).join(places, on=["source", "position"], how="left_anti")
        return warm_start.states(read, lake.settings, rules.evaluated, added, micros)
    except PySparkException as error:
        if not is_missing(error):
            raise
        names = ", ".join(map(str, added))
        _LOG.warning("detect: version %s of %s is gone: %s begin with the next rows", version, table.name, names)
        return None
