"""Rebuild: recomputes days of silver, quarantine, alerts and gold from bronze, compares them, and replaces them.

The days are computed outside of the tables, as files in a folder of the lake's replays. Each table that differs then
gets them in one commit, which streams skip, and the aggregates are updated. The new rows depend only on bronze, on the
rows of other days and on the settings, so an interrupted rebuild can be repeated. A file records its days and the
versions of the tables before it: the aggregates are updated for all changes since then.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import alerts as silver_alerts
from fraudlake.detection import backtest, detector_stream, history, rule_table, suppression
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.gold import gold_tables
from fraudlake.lake import contents, machine_clock
from fraudlake.lake.rows import persisted
from fraudlake.lake.spark_writer import SparkWriter
from fraudlake.model import alerts as model_alerts
from fraudlake.operations import lag, retention
from fraudlake.operations.rebuild_note import RebuildNote
from fraudlake.operations.standstill import standstill
from fraudlake.quarantine import replay
from fraudlake.rates.base_amount import with_base_amount
from fraudlake.rules.columns import query_columns
from fraudlake.silver import duplicates
from fraudlake.silver import transactions as silver
from fraudlake.streams import cases, groups, lanes, score
from fraudlake.times import literals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.lake import Lake
    from fraudlake.rules.rule_set import RuleSet
    from fraudlake.tables import Table

SAMPLES = 5
_SILVER = tables.SILVER_TRANSACTIONS
_QUARANTINE = tables.SILVER_QUARANTINE
_ALERTS = tables.SILVER_ALERTS
_SUPPRESSED = tables.SILVER_SUPPRESSED_ALERTS
_READ = (tables.BRONZE_TRANSACTIONS.name, _SILVER.name, _QUARANTINE.name)
"""The tables whose rows a rebuild needs."""
_SOURCE_POSITION = ["source", "position"]
_FOLDER = "days-"
"""Prefix of the folders in which replays compute."""
_NOT_COMPARED: dict[str, tuple[str, ...]] = {
    _QUARANTINE.name: ("quarantined_at",),
    # The explanation has these values, too; older rows have them only there.
    _ALERTS.name: (
        "detected_at",
        "kind",
        "evidence",
        "measures",
        "rule_version",
        "evidence_columns",
        "entity",
        "entity_key",
    ),
}
"""Columns, by table, that may differ between a row and the same row recomputed."""
_NOT_COMPARED[_SUPPRESSED.name] = _NOT_COMPARED[_ALERTS.name]
_ORDER = {_SILVER.name: "timestamp", _QUARANTINE.name: "dt"} | dict.fromkeys(
    (_ALERTS.name, _SUPPRESSED.name), "timestamp"
)


@dataclass(frozen=True)
class Changes:
    """Numbers of rows that differ between a table and the recomputed days, with samples."""

    added: int
    gone: int
    same: int
    samples_added: list[dict[str, Any]]
    samples_gone: list[dict[str, Any]]


@dataclass(frozen=True)
class Rebuilt:
    """Changes of a rebuild, by table, and the versions of the changed tables, before and after."""

    first: date
    last: date
    changes: dict[str, Changes]
    versions: dict[str, tuple[int, int]]
    is_applied: bool

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        versions = {name: {"before": before, "after": after} for name, (before, after) in self.versions.items()}
        changes = {name: vars(changes) for name, changes in self.changes.items()}
        return {"from": self.first, "to": self.last, **changes, "versions": versions, "is_applied": self.is_applied}


@dataclass(frozen=True)
class _Days:
    """The days of a rebuild, and how far each live rule looks back, by its name; None is any distance."""

    first: date
    last: date
    reaches: Mapping[str, timedelta | None]

    @property
    def start(self) -> datetime:
        return datetime.combine(self.first, time(), UTC)

    @property
    def end(self) -> datetime:
        return _shifted(datetime.combine(self.last, time(), UTC), timedelta(days=1))

    def hold(self, date: str) -> Column:
        """Return the condition that a date, given in SQL, is one of the days; false for null."""
        return F.expr(f"coalesce({date} BETWEEN DATE'{self.first}' AND DATE'{self.last}', false)")

    @property
    def reach(self) -> timedelta:
        """Longest bounded look-back of the rules."""
        return max((reach for reach in self.reaches.values() if reach is not None), default=timedelta(0))

    @property
    def near(self) -> Column:
        """Return the condition that the rules may need a transaction."""
        if None in self.reaches.values():
            return F.lit(True)
        low = _shifted(self.start, -self.reach)
        high = _shifted(self.end, self.reach)
        days = F.col("date").between(literals.day(low.date()), literals.day(high.date()))
        return days & F.col("timestamp").between(literals.instant(low), literals.instant(high))

    def touch(self, before: datetime | None) -> Column:
        """Return the condition that an alert may depend on transactions of the days.

        An alert of ``small_then_large`` does if the time between its transactions overlaps the days. One of another
        kind does if it ends on the days, or after them by no more than its rule looks back. Alerts that end at
        ``before`` or later are left to the stream, whose state still has transactions from then on.
        """
        times = F.transform("evidence", lambda part: part["timestamp"])
        low = F.array_min(times)
        high = F.array_max(times)
        is_pair = F.col("kind") == "small_then_large"
        touches = F.when(is_pair, (low < literals.instant(self.end)) & (high >= literals.instant(self.start)))
        ends = F.col("timestamp")
        for rule, reach in self.reaches.items():
            is_near = ends >= literals.instant(self.start)
            if reach is not None:
                is_near &= ends < literals.instant(_shifted(self.end, reach))
            touches = touches.when(F.col("rule") == rule, is_near)
        touches = touches.otherwise((ends >= literals.instant(self.start)) & (ends < literals.instant(self.end)))
        return (
            touches if before is None else touches & (F.when(is_pair, high).otherwise(ends) < literals.instant(before))
        )


def _shifted(at: datetime, by: timedelta) -> datetime:
    """Add a duration to a time, within the calendar's limits."""
    try:
        return at + by
    except OverflowError:
        return (datetime.min if by < timedelta(0) else datetime.max).replace(tzinfo=UTC)


def rebuild(lake: Lake, first: date, last: date, apply: bool = False) -> Rebuilt:
    """Recompute days of silver, quarantine, alerts and aggregates from bronze, under the present settings and rules.

    The rules evaluate transactions in event-time order, beginning as far before the days as they look back. Rows that
    ``quarantine --replay`` moved to silver stay there. Unchanged alerts retain their rows. If the lake has list
    entries, the alerts that they suppress are recomputed in ``silver_suppressed_alerts``.

    Args:
        lake: the lake; with ``apply`` no step may run.
        first: the first day (UTC).
        last: the last day, included.
        apply: replace the days, in one commit per table; otherwise nothing is changed.

    Raises:
        UsageError: the range is empty, or ``row_retention`` has removed rows that it needs.
        FraudlakeError: a step runs, was cut or lags, or another rebuild was cut.
    """
    if last < first:
        raise UsageError(f"--to {last} is before --from {first}")
    columns = query_columns(lake.settings.silver_columns)
    rules = rule_table.read(lake)
    reaches = {
        version.rule.name: version.rule.compile(columns, lake.settings.entities).look_back
        for version in rules.select_source("transactions").live
    }
    reaches |= {version.rule.name: timedelta(0) for version in rules.select_source("predictions").live}
    days = _Days(first, last, reaches)
    retention.require_rows(lake, first, days.reach, *_READ)
    with standstill(lake) if apply else nullcontext():
        _require_caught_up(lake, rules)
        before = {table.name: lake.store.version(table) for table in contents.TABLES} | _cut_versions(lake, days, apply)
        with _computed(lake, days, rules) as (computed, present):
            changes = {table.name: _changes(table, present[table.name], rows) for table, rows in computed.items()}
            if apply:
                RebuildNote(first, last, before).write(lake)
                for table, rows in computed.items():
                    if changes[table.name].added or changes[table.name].gone:
                        _put_in_place(lake, days, table, rows)
                _update_aggregates(lake, days, before)
                RebuildNote.remove(lake)
        after = {table.name: lake.store.version(table) for table in contents.TABLES} if apply else before
    versions = {name: (before[name], version) for name, version in after.items() if version != before[name]}
    return Rebuilt(first, last, changes, versions, apply)


def _cut_versions(lake: Lake, days: _Days, apply: bool) -> dict[str, int]:
    """Return the tables' versions before an interrupted rebuild of the same days; empty if there was none."""
    note = RebuildNote.of(lake)
    if note is None:
        return {}
    if not apply or (note.first, note.last) != (days.first, days.last):
        raise FraudlakeError(f"a replay was interrupted: run '{note.command}' first to finish it")
    return note.versions


def _scored_by(lake: Lake) -> list[str]:
    """Return the streams that have begun to score."""
    return [step for step in ("score", score.FROM_KAFKA) if not lake.checkpoint(step).is_new]


def _require_caught_up(lake: Lake, rules: RuleSet) -> None:
    steps = [("refine", tables.BRONZE_TRANSACTIONS), ("detect", _SILVER)]
    # The stream raises the alerts of the rows that it has still to score.
    if rules.select_source("predictions").live and "score" in _scored_by(lake):
        steps.append(("score", _SILVER))
    for step, table in steps:
        if lake.checkpoint(step).is_new or step in lag.unread(lake, table):
            raise FraudlakeError(f"{step} has not read all of {table.name}: run '{lag.command_of(step)}' first")
    if replay.unfinished(lake):
        raise FraudlakeError("a replay of the quarantine was interrupted: run 'fraudlake quarantine --replay' first")


@contextmanager
def _computed(lake: Lake, days: _Days, rules: RuleSet) -> Iterator[tuple[dict[Table, DataFrame], dict[str, DataFrame]]]:
    """Compute the days outside of the tables, for the length of the block; return them, and the current rows."""
    _remove_left_behind(lake)
    folder = lake.replays / f"{_FOLDER}{uuid.uuid4().hex}"

    def written(table: Table, rows: DataFrame) -> DataFrame:
        path = str(folder / table.name)
        rows.select(*lake.table(table).column_names).write.parquet(path)
        return lake.session.read.schema(lake.table(table).columns).parquet(path)

    before = _detected_before(lake)
    present = {
        _SILVER.name: lake.read(_SILVER).where(days.hold("date")),
        _QUARANTINE.name: lake.read(_QUARANTINE).where(days.hold("to_date(dt)")),
        _ALERTS.name: lake.read(_ALERTS).where(days.touch(before)),
        _SUPPRESSED.name: lake.read(_SUPPRESSED).where(~F.col("is_shadow") & days.touch(before)),
    }
    entries = suppression.read_entries(lake, [version.rule for version in rules.live])
    try:
        valid, rejected = _refined(lake, days, present[_SILVER.name], present[_QUARANTINE.name])
        transactions = written(_SILVER, valid)
        quarantined = written(_QUARANTINE, rejected)
        others = lake.read(_SILVER).where(~days.hold("date"))
        near = others.unionByName(transactions, allowMissingColumns=True).where(days.near)
        tasks = backtest.tasks_for(lake, near.count())
        now = _evaluated_before(lake)
        detected = history.detector_output_of_history(
            near, lake.settings, rules.select_source("transactions").live, tasks, now
        )
        raised = silver_alerts.alerts(detected)
        of_scores = rules.select_source("predictions").live
        if of_scores and _scored_by(lake):
            predictions = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where(days.hold("date"))
            scored = predictions.join(transactions.select("transaction_id"), on="transaction_id", how="left_semi")
            raised = raised.unionByName(model_alerts.raise_latest(scored, lake, of_scores))
        detected_on = {_ALERTS: raised.where(days.touch(before))}
        with suppression.divided(detected_on, entries, rules.live, lake.settings, is_batch=False) as divided:
            alerts = {
                table: written(table, _with_present_rows(table, rows, present[table.name]))
                for table, rows in divided.items()
            }
        yield {_SILVER: transactions, _QUARANTINE: quarantined, **alerts}, present
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_behind(lake: Lake) -> None:
    """Remove the folders of killed replays: a folder older than ``max_idle`` is not in use."""
    end = datetime.now(UTC) - lake.settings.longest_idle
    folders = lake.replays.glob(f"{_FOLDER}*")
    old = [folder for folder in folders if datetime.fromtimestamp(folder.stat().st_mtime, UTC) < end]
    if old and not machine_clock.is_in_doubt(lake):
        for folder in old:
            shutil.rmtree(folder, ignore_errors=True)


def _watermark(lake: Lake) -> int | None:
    """Return the detector's watermark, microseconds; None in the order of arrival."""
    millis = lake.checkpoint("detect").watermark_milliseconds() if lake.settings.ordering == "event_time" else None
    return None if millis is None else millis * 1000


def _detected_before(lake: Lake) -> datetime | None:
    """Return the watermark in event-time order; the detector's state still has transactions from then on."""
    watermark = _watermark(lake)
    return None if watermark is None else datetime.fromtimestamp(watermark / 1_000_000, UTC)


def _evaluated_before(lake: Lake) -> int:
    """Return the time, in microseconds, up to which the stream takes transactions as complete."""
    watermark = _watermark(lake)
    if watermark is not None:
        return watermark
    newest = lake.store.query(f"SELECT max(timestamp) AS newest FROM {_SILVER.name}", _SILVER)["newest"][0].as_py()
    return 0 if newest is None else round(newest.timestamp() * 1_000_000) - detector_stream.GRACE


def _refined(lake: Lake, days: _Days, present: DataFrame, quarantined: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the rows of silver and of quarantine that bronze gives for the days."""
    moved = replay.moved(lake)
    corrected = present.join(moved, on=_SOURCE_POSITION, how="left_semi")
    bronze = lake.read(tables.BRONZE_TRANSACTIONS).where(days.hold("date"))
    bronze = bronze.withColumns({"source": silver.source(), "position": silver.position()})
    bronze = bronze.join(moved, on=_SOURCE_POSITION, how="left_anti")
    # Of several rows with the same producer's id, the one in silver came first, and stays there.
    first = present.select(*_SOURCE_POSITION).distinct().withColumn("_came_first", F.lit(True))
    checked = silver.checked(bronze.join(first, on=_SOURCE_POSITION, how="left"), lake.settings)
    checked = checked.drop(*_SOURCE_POSITION)
    other_silver = lake.read(_SILVER).where(~days.hold("date")).unionByName(corrected)
    stored = duplicates.StoredTables(
        lambda: other_silver, lambda: lake.read(_QUARANTINE).where(~days.hold("to_date(dt)"))
    )
    summary = duplicates.batch_summary(checked)
    overlapping = duplicates.PositionIndex().overlapping_sources(summary, stored)
    came_first = F.coalesce("_came_first", F.lit(False))
    rows = duplicates.with_duplicate_reasons(checked, summary, overlapping, stored, came_first).drop("_came_first")
    valid = silver.valid(rows, lake.settings.columns).unionByName(corrected, allowMissingColumns=True)
    valid = with_base_amount(valid, lake, (days.first, days.last))
    known_since = quarantined.groupBy(silver.source().alias("source"), silver.position().alias("position")).agg(
        F.min("quarantined_at").alias("_since")
    )
    rejected = silver.quarantined(rows).withColumns({"source": silver.source(), "position": silver.position()})
    rejected = rejected.join(known_since, on=_SOURCE_POSITION, how="left")
    return valid, rejected.withColumn("quarantined_at", F.coalesce("_since", "quarantined_at"))


def _with_present_rows(table: Table, alerts: DataFrame, present: DataFrame) -> DataFrame:
    """Return the alerts; those already in the table keep their row and its time of detection."""
    text = F.to_json(F.struct(*_compared(table, alerts))).alias("_compared")  # it can be joined on, with its nulls
    row = F.struct(*alerts.columns)
    old_rows = present.select(text, row.alias("_present"))
    rows = alerts.select(text, row.alias("_new")).join(old_rows, on="_compared", how="left")
    return rows.select(F.coalesce("_present", "_new").alias("_row")).select("_row.*")


def _compared(table: Table, rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name not in _NOT_COMPARED.get(table.name, ())]


def _changes(table: Table, present: DataFrame, computed: DataFrame) -> Changes:
    columns = _compared(table, computed)
    more = F.col("_more")
    with persisted(_different(computed, present, columns), eager=False) as different:
        sums = (F.sum(F.greatest(number, F.lit(0))) for number in (more, -more))
        added, gone = different.agg(*(F.coalesce(one, F.lit(0)) for one in sums)).collect()[0]

        def samples(condition: Column, number: int) -> list[dict[str, Any]]:
            rows = different.where(condition).select(*columns).orderBy(_ORDER[table.name], *columns[:1]).limit(SAMPLES)
            return [row.asDict() for row in rows.collect()] if number else []

        return Changes(added, gone, computed.count() - added, samples(more > 0, added), samples(more < 0, gone))


def _different(computed: DataFrame, present: DataFrame, columns: list[str]) -> DataFrame:
    """Return the rows that occur more often in one table; ``_more`` is the computed minus the present number."""
    both = computed.select(*columns, F.lit(1).alias("_more")).union(present.select(*columns, F.lit(-1).alias("_more")))
    return both.groupBy(*columns).agg(F.sum("_more").alias("_more")).where("_more != 0")


def _put_in_place(lake: Lake, days: _Days, table: Table, rows: DataFrame) -> None:
    """Replace the days of a table in one commit."""
    record = {"replayed": [str(days.first), str(days.last)]}
    if table is _SILVER:
        SparkWriter(lake, table).replace(rows, record, (days.first, days.last))
        return
    is_other = ~(days.hold("to_date(dt)") if table is _QUARANTINE else days.touch(_detected_before(lake)))
    if table == _SUPPRESSED:
        is_other |= F.col("is_shadow")
    SparkWriter(lake, table).replace(lake.read(table).where(is_other).unionByName(rows), record)


def _update_aggregates(lake: Lake, days: _Days, before: dict[str, int]) -> None:
    """Compute the aggregates of the days, and of days with changed alerts."""
    dates = {days.first + timedelta(days=number) for number in range((days.last - days.first).days + 1)}
    if lake.store.version(_ALERTS) != before[_ALERTS.name]:
        then = lake.read_version(_ALERTS, before[_ALERTS.name])
        now = lake.read(_ALERTS)
        columns = [name for name in _compared(_ALERTS, now) if name in then.columns]
        changed = _different(now, then, columns).selectExpr("to_date(timestamp) AS date").distinct()
        dates |= {row["date"] for row in changed.collect()}
    for aggregate in gold_tables.GROUPED:
        groups.recompute(lake, aggregate, lake.read(_SILVER), sorted(dates))
    cases.update_all(lake)
    lanes.recompute(lake, dates)
