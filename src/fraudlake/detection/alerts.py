"""Silver alerts: runs the stateful detector over the stream of valid transactions.

:mod:`~fraudlake.detection.detector` evaluates rules of the kind ``small_then_large``, and
:mod:`~fraudlake.detection.live_rules` evaluates all others.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from fraudlake import tables
from fraudlake.detection import buckets, detector, evidence, live_rules, ordering, rule_entity
from fraudlake.detection.live_rules import RuleAlerts
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.rules.rule_set import RuleSet
from fraudlake.silver import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

    from fraudlake.detection.rule_entity import Entity
    from fraudlake.rules.rule_set import RuleVersion
    from fraudlake.settings import Settings

OPEN_FLAGS = "open_flags"
"""The name of the open flags in the state; checkpoints contain it."""
STATE = {OPEN_FLAGS: detector.FLAGS, "rules": live_rules.STATE}
"""The tables of a bucket's state; ``rules`` exists even without rules, so that the state of the last is dropped."""
GRACE = detector.microseconds(600)
"""Grace period in the order of arrival: how long an expired flag stays open for rows out of order, in microseconds of
event time."""
NOTHING: buckets.State = {name: schema.empty_table() for name, schema in STATE.items()}
"""The state of a bucket before its first rows."""
_OUTPUT = pa.schema(
    [
        ("rule", pa.string()),  # null for a row that was too late, as the next two
        ("rule_version", pa.int64()),
        ("is_shadow", pa.bool_()),
        ("account_id", pa.string()),
        ("transaction_id", pa.string()),
        ("time", pa.int64()),
        ("amount", pa.float64()),
        ("label", pa.bool_()),
        ("source", pa.string()),
        ("position", pa.int64()),
        ("kind", pa.string()),  # null for a row that was too late, as all that follows
        ("first_transaction_id", pa.string()),
        ("evidence", pa.string()),  # JSON
        ("columns", pa.string()),  # JSON; null if the rule reads no further columns
        ("measures", pa.string()),  # JSON
        ("explanation", pa.string()),
        ("entity", pa.string()),
        ("entity_key", pa.string()),
    ]
)
_EVIDENCE = "array<struct<variable:string,transaction_id:string,time:bigint,amount:double>>"
_COLUMNS = "array<map<string,string>>"


@dataclass(frozen=True)
class EntityRules:
    """Evaluates the rules of an entity on the rows of one of its buckets."""

    entity: Entity
    pairs: tuple[tuple[RuleVersion, SmallThenLargeRule], ...]
    live: live_rules.LiveRules | None
    """The rules of other kinds, if there are any."""
    flags: pa.Schema
    """The open flags: the detector's columns, and those of the key."""

    def evaluate(self, state: buckets.State, rows: pa.Table, now: int) -> tuple[pa.Table, buckets.State]:
        """Apply all rules to a bucket's rows: see :meth:`Evaluator.evaluate`."""
        open_flags, needed = state[OPEN_FLAGS], live_rules.STATE.empty_table()
        if open_flags.schema.names != self.flags.names:  # there are none
            open_flags = self.flags.empty_table()
        pairs, open_flags = detector.detect(open_flags, rows, [rule for _, rule in self.pairs], now, self._key)
        raised = self._described(pairs)
        if self.live is not None:
            of_others, needed = self.live.evaluate(state["rules"], rows, now)
            raised += of_others
        alerts = [_alert_rows(self.entity, *of_rule) for of_rule in raised]
        return pa.concat_tables([_OUTPUT.empty_table(), *alerts]), {OPEN_FLAGS: open_flags, "rules": needed}

    def without_accounts(self, state: buckets.State, accounts: Collection[str]) -> buckets.State:
        """Return a bucket's state without the given accounts."""
        others = {
            name: buckets.without(table, "account_id", accounts) for name, table in state.items() if name != "rules"
        }
        rules = NOTHING["rules"] if self.live is None else self.live.without_accounts(state["rules"], accounts)
        return {**others, "rules": rules}

    @property
    def versions(self) -> tuple[RuleVersion, ...]:
        """The rules."""
        return (*(version for version, _ in self.pairs), *(self.live.versions if self.live else ()))

    @property
    def _key(self) -> list[str]:
        """The columns of the key, by their names in the detector's rows."""
        return [name if name in detector.FLAGS.names else live_rules.PREFIX + name for name in self.entity.columns]

    def _described(self, pairs: detector.AlertPairs) -> list[RuleAlerts]:
        """Return the alerts of each ``small_then_large`` rule that has any."""
        if not len(pairs.rule):
            return []
        key = pairs.candidates.select(self._key).rename_columns(list(self.entity.columns))
        described = []
        for number, (version, _) in enumerate(self.pairs):
            is_own = pairs.rule == number
            if is_own.any():
                small, large = pairs.small[is_own], pairs.large[is_own]
                alerts = evidence.described_pairs(pairs.candidates, key, small, large, self.entity)
                described.append(RuleAlerts(version, alerts))
        return described


@dataclass(frozen=True)
class Evaluator:
    """Evaluates rules of all kinds on the rows of a bucket; each bucket belongs to one entity."""

    by_entity: Mapping[int, EntityRules]
    """The rules by the number of their entity, for each entity that gets rows."""
    further: Mapping[str, pa.Field]
    """The further columns of silver, each with its field in :attr:`rows`."""
    buckets_each: int
    """The number of buckets of an entity."""

    @classmethod
    def of(cls, settings: Settings, versions: Sequence[RuleVersion]) -> Evaluator:
        """Return the evaluator of rules; of the settings it needs entities, columns, order and buckets.

        In event-time order the account's buckets always get rows, since they decide which rows are late. Without rules
        they store none.

        Raises:
            UsageError: a rule does not fit the columns, or groups by no entity.
        """
        live = live_rules.LiveRules.by_entity(settings, versions)
        pairs: dict[Entity, list[tuple[RuleVersion, SmallThenLargeRule]]] = defaultdict(list)
        for version in versions:
            if isinstance(version.rule, SmallThenLargeRule):
                pairs[rule_entity.named(version.rule, settings)].append((version, version.rule))
        entities = {*live, *pairs}
        if settings.ordering == "event_time" or not entities:
            entities.add(rule_entity.THE_ACCOUNT)
        needed = {name for rules in live.values() for name in rules.further}
        needed |= {name for by in pairs for name in by.columns} - {*detector.FLAGS.names}
        silver = tables.with_declared(tables.SILVER_TRANSACTIONS, settings.columns).schema
        further = {name: pa.field(live_rules.PREFIX + name, silver.field(name).type) for name in sorted(needed)}
        by_entity = {
            by.number: EntityRules(
                by,
                tuple(pairs.get(by, ())),
                live.get(by),
                pa.schema(
                    [*detector.FLAGS, *(further[name] for name in by.columns if name in further and by in pairs)]
                ),
            )
            for by in sorted(entities, key=lambda by: by.number)
        }
        return cls(by_entity, further, settings.buckets)

    @property
    def rows(self) -> pa.Schema:
        """The columns of the rows: the detector's, and further ones that rules need."""
        return pa.schema([*detector.ROWS, *self.further.values()])

    @property
    def evaluated(self) -> dict[int, Entity]:
        """The entities that have rules, by their numbers."""
        return {number: rules.entity for number, rules in self.by_entity.items() if rules.versions}

    @property
    def keys(self) -> list[buckets.Key]:
        """The keys by which rows are packed into buckets."""
        return [rules.entity.key for rules in self.by_entity.values()]

    def columns(self, may_be_late: bool) -> list[Column]:
        """Select :attr:`rows` from silver, then hashes of keys. Values that the output never needs are sent as null."""
        rules = self.by_entity.values()
        amount, is_whole = F.col("amount"), any(of_entity.live is not None for of_entity in rules)
        of_pairs = (rule.is_small(amount) | rule.is_large(amount) for one in rules for _, rule in one.pairs)
        candidate = functools.reduce(operator.or_, of_pairs, F.lit(is_whole))
        is_labelled = F.lit(may_be_late or is_whole)
        return [
            F.xxhash64("account_id").alias("account"),
            F.unix_micros("timestamp").alias("time"),
            amount,
            F.col("source"),
            F.col("position"),
            F.when(candidate | is_labelled, F.col("account_id")).alias("account_id"),
            F.when(candidate, F.col("transaction_id")).alias("transaction_id"),
            F.when(is_labelled, F.col("label")).alias("label"),
            *(F.col(name).alias(field.name) for name, field in self.further.items()),
            *(
                buckets.key_hash(one.entity.columns).alias(one.entity.key.column)
                for one in rules
                if not one.entity.is_account
            ),
        ]

    def evaluate(self, bucket: int, state: buckets.State, rows: pa.Table, now: int) -> tuple[pa.Table, buckets.State]:
        """Apply the rules of its entity to a bucket's rows.

        Args:
            bucket: the number of the bucket.
            state: the tables of :data:`STATE`, as the previous micro-batch returned them.
            rows: new rows, :attr:`rows`.
            now: no later row has an earlier event time (microseconds); in the order of arrival, few have.

        Returns:
            The alerts, in the columns of the detector's output, and the new state.
        """
        rules = self.by_entity.get(buckets.entity_of(bucket, self.buckets_each))
        return (_OUTPUT.empty_table(), NOTHING) if rules is None else rules.evaluate(state, rows, now)


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
        supplements: the input of the change for each bucket, :data:`~fraudlake.detection.buckets.SUPPLEMENTS`.

    Returns:
        A stream of alerts and of rows that came too late: :func:`alerts` and :func:`late` select from it.
    """
    known = RuleSet.of(settings.rules).of_source("transactions")
    evaluator = evaluator or Evaluator.of(settings, known.versions)
    in_event_time = settings.ordering == "event_time"
    if in_event_time:
        bound = bound_milliseconds(settings)
        silver = silver.withWatermark("timestamp", f"{bound} milliseconds")
    rows = evaluator.rows
    selected = silver.select(*evaluator.columns(in_event_time))
    packed = buckets.pack(selected, rows, settings.buckets, changed, evaluator.keys)
    by_bucket = buckets.supplemented(packed, supplements).groupBy("bucket")
    change = change or buckets.unchanged
    schema = from_arrow_schema(_OUTPUT)
    if in_event_time:
        timed = buckets.TimedBucketProcessor(STATE, rows, _in_event_time(evaluator, bound), change)
        return by_bucket.transformWithStateInPandas(timed, schema, "Append", "EventTime")
    processor = buckets.BucketProcessor(STATE, rows, _as_they_arrive(evaluator), change)
    return by_bucket.transformWithStateInPandas(processor, schema, "Append", "None")


def bound_milliseconds(settings: Settings) -> int:
    """Return how much older than the newest event time a row may be, in whole milliseconds, like Spark's watermark."""
    return math.ceil(settings.max_out_of_orderness / timedelta(milliseconds=1))


def detector_output_of_history(
    silver: DataFrame, settings: Settings, versions: Sequence[RuleVersion], tasks: int, now: int
) -> DataFrame:
    """Apply rules to stored transactions, in event-time order.

    Args:
        silver: rows of ``silver_transactions``, with as much earlier history as the rules look back.
        settings: the declared columns.
        versions: the rules.
        tasks: how many tasks share the accounts.
        now: as for :meth:`Evaluator.evaluate`.

    Returns:
        The detector's output, for :func:`alerts`; no row is late.
    """
    evaluator = Evaluator.of(settings, versions)
    selected = silver.select(*evaluator.columns(may_be_late=False))
    parts = (_of_history(selected, evaluator, rules, tasks, now) for rules in evaluator.by_entity.values())
    return functools.reduce(lambda some, others: some.union(others), parts)


def _of_history(selected: DataFrame, evaluator: Evaluator, rules: EntityRules, tasks: int, now: int) -> DataFrame:
    """Apply the rules of an entity to rows that :meth:`Evaluator.columns` selects."""
    columns = evaluator.rows

    def detect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        present = [batch for batch in batches if batch.num_rows]
        if present:
            rows = pa.Table.from_batches(present).combine_chunks()
            rows = rows.set_column(3, "source", rows["source"].dictionary_encode()).cast(columns)
            alerts, _ = rules.evaluate(NOTHING, rows, now)
            yield from alerts.to_batches()

    key = rules.entity.key.column
    keyed = (
        selected
        if rules.entity.is_account
        else selected.where(F.col(key).isNotNull()).withColumn("account", F.col(key))
    )
    rows = keyed.select(*columns.names)
    return rows.repartition(tasks, "account").mapInArrow(detect, from_arrow_schema(_OUTPUT))


FORGOTTEN = "forgotten"
"""The name of the supplement with the accounts (``account_id``) that :func:`forgetting` removes."""


def forgetting(evaluator: Evaluator) -> buckets.Change:
    """Return a change that removes accounts from the state."""

    def change(bucket: int, state: buckets.State, supplements: buckets.Supplements) -> buckets.State:
        rules = evaluator.by_entity.get(buckets.entity_of(bucket, evaluator.buckets_each))
        if rules is None:
            return buckets.empty(state)
        if FORGOTTEN not in supplements:
            return state
        accounts = pa.ipc.open_stream(supplements[FORGOTTEN][0]).read_all()["account_id"]
        return rules.without_accounts(state, set(accounts.to_pylist()))

    return change


def dropping(entities: Collection[int], number_of_buckets: int) -> buckets.Change:
    """Return a change that empties the state of entities, which are given by their numbers."""

    def change(bucket: int, state: buckets.State, supplements: buckets.Supplements) -> buckets.State:
        is_dropped = buckets.entity_of(bucket, number_of_buckets) in entities
        return buckets.empty(state) if is_dropped else state

    return change


def alerts(detector_output: DataFrame, is_shadow: bool = False, columns: Iterable[str] = ()) -> DataFrame:
    """Return the alerts in the columns of ``silver_alerts``, with times in UTC.

    ``is_shadow`` selects the alerts of shadow rules instead; further ``columns`` of the output follow.
    """
    transactions = F.from_json("evidence", _EVIDENCE)
    return detector_output.where(F.col("is_shadow") == F.lit(is_shadow)).select(
        alert_id("rule", "first_transaction_id", "transaction_id").alias("alert_id"),
        "rule",
        "account_id",
        "transaction_id",
        F.timestamp_micros("time").alias("timestamp"),
        "amount",
        "explanation",
        clock.now().alias("detected_at"),
        "kind",
        F.transform(transactions, _transaction).alias("evidence"),
        F.from_json("measures", "map<string,string>").alias("measures"),
        "rule_version",
        F.from_json("columns", _COLUMNS).alias("evidence_columns"),
        "entity",
        "entity_key",
        *columns,
    )


def _transaction(row: Column) -> Column:
    """Return a transaction of an alert's evidence."""
    return F.struct(
        row["variable"].alias("variable"),
        row["transaction_id"].alias("transaction_id"),
        F.timestamp_micros(row["time"]).alias("timestamp"),
        row["amount"].alias("amount"),
    )


def alert_id(rule: str, first: str, second: str) -> Column:
    """Make an id from a rule's name and two transactions' ids, all given as columns' names.

    They are joined by ``|``. If a producer's id contains ``|``, the length of the first id marks its end.
    """
    length = F.when(F.concat(first, second).contains("|"), F.length(first))
    return F.sha2(F.concat_ws("|", rule, length.cast("string"), first, second), 256).substr(1, 32)


def late(detector_output: DataFrame) -> DataFrame:
    """Return the rows too late for event-time order: ``dt, accountId, amount, alert, source, position, reasons``."""
    return detector_output.where(F.col("rule").isNull()).select(
        F.timestamp_micros("time").alias("dt"),
        F.col("account_id").alias("accountId"),
        "amount",
        F.col("label").alias("alert"),
        "source",
        "position",
        F.array(F.lit("late")).alias("reasons"),
    )


def _as_they_arrive(evaluator: Evaluator) -> buckets.Step:
    def step(bucket: int, state: buckets.State, rows: pa.Table) -> tuple[pa.Table, buckets.State]:
        return evaluator.evaluate(bucket, state, rows, ordering.clock(rows) - GRACE)

    return step


def _in_event_time(evaluator: Evaluator, bound_milliseconds: int) -> buckets.TimedStep:
    bound = bound_milliseconds * 1000

    def step(bucket: int, state: buckets.State, rows: pa.Table, watermark: int) -> tuple[pa.Table, buckets.State]:
        split = detector.split_by_watermark(state[buckets.WAITING], rows, watermark, bound)
        number = buckets.entity_of(bucket, evaluator.buckets_each)
        # All entities share the stream's watermark, so a row is late for all or for none; it is output once.
        output = [_late_rows(split.late)] if number == buckets.ACCOUNT.entity else []
        if number not in evaluator.evaluated:
            return pa.concat_tables([_OUTPUT.empty_table(), *output]), buckets.empty(state)
        alerts, state = evaluator.evaluate(bucket, state, split.ready, split.ready_before)
        return pa.concat_tables([alerts, *output]), {**state, buckets.WAITING: split.waiting}

    return step


def _alert_rows(by: Entity, version: RuleVersion, alerts: pa.Table) -> pa.Table:
    of_rule = {
        "rule": version.rule.name,
        "rule_version": version.version,
        "is_shadow": version.is_shadow,
        "kind": version.rule.kind,
        "entity": by.name,
    }
    columns = {
        name: pa.repeat(pa.scalar(value, _OUTPUT.field(name).type), len(alerts)) for name, value in of_rule.items()
    }
    return _output_table(len(alerts), **columns, **{name: alerts[name] for name in alerts.column_names})


def _late_rows(rows: pa.Table) -> pa.Table:
    columns = {name: rows[name] for name in ("account_id", "time", "amount", "label", "position")}
    return _output_table(len(rows), **columns, source=rows["source"].cast(pa.string()))


def _output_table(rows: int, **columns: pa.Array) -> pa.Table:
    """Make a table of :data:`_OUTPUT` from some of its columns; the others are null."""
    return pa.table([columns.get(field.name, pa.nulls(rows, field.type)) for field in _OUTPUT], schema=_OUTPUT)
