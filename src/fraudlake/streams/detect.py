"""The detector's stream: ``silver_transactions`` → alerts, under the rules of the table of rules.

Before a micro-batch is processed, the checkpoint notes the latest change of the rules that it evaluates. If the rules
have changed since, the stream is rebuilt for the same micro-batch, which then begins with the new rules. A micro-batch
that is repeated after a crash uses the noted rules if it has written anything. Otherwise it uses the current rules, so
that a rule that makes the stream fail can be retired.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fraudlake import tables
from fraudlake.detection import (
    alerts,
    detector_stream,
    output,
    rule_table,
    state_changes,
    suppression,
    warm_start,
)
from fraudlake.detection.evaluator import Evaluator
from fraudlake.keyed import buckets
from fraudlake.keyed.entity_key import THE_ACCOUNT, Entity
from fraudlake.lake import conflict
from fraudlake.lake.appender import Appender
from fraudlake.lake.missing_version import compute_at
from fraudlake.lake.rows import persisted_batch
from fraudlake.silver import quality_rules
from fraudlake.silver import transactions as silver
from fraudlake.streams import rule_notes
from fraudlake.streams.stream import OutdatedError, Stream, advice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.checkpoint import Checkpoint
    from fraudlake.rules.rule_set import RuleSet, RuleVersion

_LOG = logging.getLogger(__name__)
_BY_SHADOW = {False: tables.SILVER_ALERTS, True: tables.SILVER_SHADOW_ALERTS}
"""The table of the alerts of live rules, and that of shadows."""
_WRITTEN = (*tables.ALERTS, tables.SILVER_QUARANTINE)
"""The tables that a micro-batch writes."""


def streams(lake: Lake, forget: DataFrame | None = None) -> list[Stream]:
    """``silver_transactions`` → ``silver_alerts``, through the stateful detector.

    Alerts of shadow rules go to ``silver_shadow_alerts``, and alerts that list entries suppress to
    ``silver_suppressed_alerts``. If the step starts over, the previous stream's late rows are deleted from
    ``silver_quarantine``, since every row is evaluated again.

    Args:
        lake: the lake.
        forget: accounts to remove from the state, ``account_id``.

    Returns:
        The stream, with the rules and the change of state of its next micro-batch.

    Raises:
        UsageError: a rule does not suit the columns, or its entity is not declared.
    """
    return [_Detection.of(lake, forget).stream()]


@dataclass(frozen=True)
class _Detection:
    """The detector's stream from a micro-batch on, until its rules change."""

    lake: Lake
    checkpoint: Checkpoint
    appender: Appender
    forget: DataFrame | None
    first: int
    """The number of its first micro-batch."""
    pending: int | None
    """The number of the micro-batch that is repeated after a crash, if there is one."""
    is_fixed: bool
    """Whether that micro-batch has written something, so that its rules are fixed."""
    rules: RuleSet
    evaluator: Evaluator
    difference: _Difference

    @classmethod
    def of(cls, lake: Lake, forget: DataFrame | None) -> _Detection:
        checkpoint = lake.checkpoint("detect")
        appender = Appender.of(lake, "detect")
        pending = checkpoint.pending_batch()
        first = checkpoint.next_batch
        is_fixed = pending is not None and any(appender.commit(lake, table, pending) for table in _WRITTEN)
        rules = rule_notes.noted(lake, checkpoint, first, "transactions") if is_fixed else _rules(lake)
        # Compile the rules before those of the settings are written to their table: one may be invalid.
        evaluator = Evaluator.of(lake.settings, rules.evaluated)
        difference = _difference(lake, checkpoint, first, rules, evaluator)
        return cls(lake, checkpoint, appender, forget, first, pending, is_fixed, rules, evaluator, difference)

    def stream(self) -> Stream:
        settings = self.lake.settings
        has_change = bool(self.difference.changed)
        writer = _Writer(self.appender, self.first, self.pending, self.rules, has_change, self._in_event_time)
        new_rules = sorted({version.rule.name for version in self.difference.added})
        return Stream(
            "detect",
            self._rows,
            writer.write,
            reads=(tables.SILVER_TRANSACTIONS,),
            writes=dict.fromkeys(tables.ALERTS, "kind <> 'model'"),
            fixed={"buckets": settings.buckets, "ordering": settings.ordering},
            persist=False,
            waits=self._in_event_time,
            explain=lambda failure: advice(failure, "rule", new_rules, "'fraudlake rules retire NAME'"),
            before=self._before,
            renewed=self._renewed,
        )

    @property
    def _in_event_time(self) -> bool:
        return self.lake.settings.ordering == "event_time"

    def _rows(self) -> DataFrame:
        by_time = "timestamp" if self._in_event_time else None
        transactions = self.lake.read_stream(tables.SILVER_TRANSACTIONS, by_time=by_time)
        change, supplements = _change(self.lake, self.checkpoint, self.evaluator, self.difference, self.forget)
        changed = self.difference.changed
        if self.forget is not None:
            changed = changed.union(self.evaluator.by_entity)
        return detector_stream.detector_output(
            transactions, self.lake.settings, self.evaluator, change, changed if change else (), supplements
        )

    def _before(self) -> None:
        rule_table.start(self.lake.store)
        if not self.is_fixed:
            _note(self.lake, self.checkpoint, self.first, self.rules.change, _keys(self.evaluator))
        is_late = f"array_contains(reasons, '{quality_rules.LATE}')"
        if self.checkpoint.is_new and self.lake.store.has_rows(tables.SILVER_QUARANTINE, is_late):
            name = self.lake.name_of(tables.SILVER_QUARANTINE)
            conflict.retried(lambda: self.lake.session.sql(f"DELETE FROM {name} WHERE {is_late}"))

    def _renewed(self) -> Stream:
        latest = _rules(self.lake)
        keys = _keys(Evaluator.of(self.lake.settings, latest.evaluated))
        _note(self.lake, self.checkpoint, self.checkpoint.next_batch, latest.change, keys)
        return _Detection.of(self.lake, self.forget).stream()


@dataclass(frozen=True)
class _Writer:
    """Writes micro-batches of the detector's output. Spark Connect pickles it, so it has no DataFrame."""

    appender: Appender
    first: int
    pending: int | None
    rules: RuleSet
    has_change: bool
    """Whether the state changes in the first micro-batch."""
    in_event_time: bool

    def write(self, lake: Lake, batch: DataFrame, batch_id: int) -> None:
        self._require_current(lake, batch_id)
        entries = suppression.BatchEntries.of(lake, self.appender, batch_id, _WRITTEN, self.rules.evaluated)
        is_divided = any(version.is_shadow or version.rule.watched for version in self.rules.evaluated)
        # In the order of arrival no row is late. Without shadows and lists the detector's output is used once.
        if self.in_event_time or is_divided or entries.rows is not None:
            self._write_divided(lake, batch, batch_id, entries)
        else:
            self.appender.append(lake, alerts.alerts(batch), tables.SILVER_ALERTS, batch_id)

    def _require_current(self, lake: Lake, batch_id: int) -> None:
        """Check that a micro-batch may use these rules and this change of state.

        Raises:
            OutdatedError: the rules have changed, or an earlier micro-batch has made the change of state.
        """
        if batch_id == self.pending:
            return
        is_done = self.has_change and batch_id != self.first
        if is_done or rule_table.latest_change(lake) != self.rules.change:
            raise OutdatedError

    def _write_divided(self, lake: Lake, batch: DataFrame, batch_id: int, entries: suppression.BatchEntries) -> None:
        """Write live, shadow and suppressed alerts, and late rows, each to its table."""
        versions = self.rules.evaluated
        may_lose_alerts = entries.rows is not None or any(version.rule.watched for version in versions)
        with persisted_batch(batch) as require_again:
            counts = {row["is_shadow"]: row["count"] for row in batch.groupBy("is_shadow").count().collect()}
            require_again(sum(counts.values()))
            raised = {
                table: alerts.alerts(batch, is_shadow=is_shadow)
                for is_shadow, table in _BY_SHADOW.items()
                if is_shadow in counts
            }
            with suppression.divided(raised, entries.rows, versions, lake.settings) as by_table:
                numbers = {table: counts[is_shadow] for is_shadow, table in _BY_SHADOW.items() if is_shadow in counts}
                if may_lose_alerts:
                    numbers = {table: rows.count() for table, rows in by_table.items()}
                if None in counts:
                    quarantine = tables.SILVER_QUARANTINE
                    by_table[quarantine] = silver.quarantined_late(output.late(batch), lake.table(quarantine))
                    numbers[quarantine] = counts[None]
                for table, rows in by_table.items():
                    if numbers[table]:
                        self.appender.append(lake, rows, table, batch_id, record=entries.record)
                        self.appender.require_rows(lake, (table,), batch_id, numbers[table])


def _rules(lake: Lake) -> RuleSet:
    """Return the rules that evaluate transactions; the others evaluate predictions."""
    return rule_table.read(lake).select_source("transactions")


class _Difference(NamedTuple):
    """How a micro-batch's rules differ from those of the one before."""

    added: tuple[RuleVersion, ...] = ()
    """Versions that are new, or that group by another entity than before."""
    old_entities: frozenset[int] = frozenset()
    """The numbers of the entities that had rules before."""
    dropped: frozenset[int] = frozenset()
    """The numbers of the entities that no rule uses any more, whose state is dropped."""
    changed: frozenset[int] = frozenset()
    """The numbers of the entities whose state changes."""


def _difference(lake: Lake, checkpoint: Checkpoint, batch: int, rules: RuleSet, evaluator: Evaluator) -> _Difference:
    keys = _keys(evaluator)
    keys_before = checkpoint.notes.keys_of(batch - 1)
    if batch == 0 or (rule_notes.change_noted(checkpoint, batch - 1), keys_before) == (rules.change, keys):
        return _Difference()
    before = rule_notes.noted(lake, checkpoint, batch - 1, "transactions")
    moved = {str(version) for version in before.evaluated if keys_before.get(str(version)) != keys.get(str(version))}
    new = rules.added_since(before)
    added = tuple(version for version in rules.evaluated if version in new or str(version) in moved)
    entities = {*evaluator.evaluated.values()}
    entities_before = {_entity(keys_before, version) for version in before.evaluated}
    dropped = frozenset(by.number for by in entities_before - entities)
    begun = {
        number for number, of_entity in evaluator.by_entity.items() if any(one in added for one in of_entity.versions)
    }
    old_entities = frozenset(by.number for by in entities_before & entities)
    return _Difference(added, old_entities, dropped, dropped | begun)


def _keys(evaluator: Evaluator) -> dict[str, list[str]]:
    """Return, for each rule that does not group by account, its entity's name and key columns."""
    return {
        str(version): [rules.entity.name, *rules.entity.columns]
        for rules in evaluator.by_entity.values()
        for version in rules.versions
        if not rules.entity.is_account
    }


def _entity(keys: Mapping[str, Sequence[str]], version: RuleVersion) -> Entity:
    name, *columns = keys.get(str(version), (THE_ACCOUNT.name, *THE_ACCOUNT.columns))
    return Entity(name, tuple(columns))


def _note(lake: Lake, checkpoint: Checkpoint, batch: int, change: int, keys: Mapping[str, Sequence[str]]) -> None:
    """Note a micro-batch's rules, their entities, and how far the stream had read before it."""
    if (checkpoint.notes.rules_of(batch), checkpoint.notes.keys_of(batch)) == (change, keys):
        return
    read = rule_notes.read_silver(lake, checkpoint, batch)
    in_event_time = lake.settings.ordering == "event_time"
    watermark = checkpoint.watermark_milliseconds(batch - 1) if in_event_time else None
    if watermark is not None:
        read["watermark"] = watermark * 1000
    checkpoint.notes.note_rules(batch, change, read, keys)


def _change(
    lake: Lake,
    checkpoint: Checkpoint,
    evaluator: Evaluator,
    difference: _Difference,
    forget: DataFrame | None,
) -> tuple[buckets.Change | None, DataFrame | None]:
    """Return the change of state with which the next micro-batch begins, and the rows that the change needs."""
    changes = []
    supplements = []
    if difference.dropped:
        changes.append(state_changes.dropping(difference.dropped, lake.settings.buckets))
    if forget is not None:
        changes.append(state_changes.forgetting(evaluator))
        entities = [*evaluator.by_entity]
        number = lake.settings.buckets
        supplements.append(buckets.for_every(forget.select("account_id"), state_changes.FORGOTTEN, entities, number))
    states = _states(lake, checkpoint, evaluator, difference.added) if difference.added else None
    if states is not None:
        changes.append(warm_start.change(lake.settings, difference.added, difference.old_entities))
        supplements.append(states)
    if not changes:
        return None, None

    def change(bucket: int, state: buckets.State, supplements: buckets.Supplements) -> buckets.State:
        for apply in changes:
            state = apply(bucket, state, supplements)
        return state

    whole = functools.reduce(lambda some, others: some.unionByName(others), supplements) if supplements else None
    return change, whole


def _states(lake: Lake, checkpoint: Checkpoint, evaluator: Evaluator, added: Sequence[RuleVersion]) -> DataFrame | None:
    """Return the initial state of new rules, as supplements; None if the rows that the stream has read are gone."""
    done = checkpoint.next_batch - 1
    table = tables.SILVER_TRANSACTIONS
    version = checkpoint.version_read(done, lake.store.identity(table))
    if version is None:
        return None
    in_event_time = lake.settings.ordering == "event_time"
    watermark = checkpoint.watermark_milliseconds(done) if in_event_time else None
    late = lake.read(tables.SILVER_QUARANTINE).where(f"array_contains(reasons, '{quality_rules.LATE}')")
    places = late.select(silver.source().alias("source"), silver.position().alias("position"))
    micros = None if watermark is None else watermark * 1000

    def states(rows: DataFrame) -> DataFrame:
        read = rows.join(places, on=["source", "position"], how="left_anti")
        return warm_start.states(read, lake.settings, evaluator, added, micros)

    computed = compute_at(lake, table, version, states)
    if computed is None:
        names = ", ".join(map(str, added))
        _LOG.warning("detect: version %s of %s is gone: %s begin with the next rows", version, table.name, names)
    return computed
