"""Evaluator: evaluates rules of all kinds and entities on the rows of a bucket."""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import detector, live_rules, rule_entity
from fraudlake.detection.entity_rules import NOTHING, EntityRules
from fraudlake.keyed import buckets
from fraudlake.keyed.entity_key import THE_ACCOUNT
from fraudlake.keyed.rows import ROWS
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule

if TYPE_CHECKING:
    from pyspark.sql import Column

    from fraudlake.keyed.entity_key import Entity
    from fraudlake.rules.rule_set import RuleVersion
    from fraudlake.settings import Settings


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
            entities.add(THE_ACCOUNT)
        needed = {name for rules in live.values() for name in rules.further}
        needed |= {name for by in pairs for name in by.columns} - {*detector.FLAGS.names}
        silver = tables.with_declared(tables.SILVER_TRANSACTIONS, settings.silver_columns).schema
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
        return pa.schema([*ROWS, *self.further.values()])

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
        amount = F.col("amount")
        is_whole = any(of_entity.live is not None for of_entity in rules)
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

    def evaluate(
        self, bucket: int, state: buckets.State, rows: pa.Table, now: int
    ) -> tuple[Iterator[pa.Table], buckets.State]:
        """Apply the rules of its entity to a bucket's rows.

        Args:
            bucket: the number of the bucket.
            state: the tables of :data:`.entity_rules.STATE`, as the previous micro-batch returned them.
            rows: new rows, :attr:`rows`.
            now: no later row has an earlier event time (microseconds); in the order of arrival, few have.

        Returns:
            The alerts, in parts with the columns of the detector's output, which are made as they are read; and the new
            state.
        """
        rules = self.by_entity.get(buckets.entity_of(bucket, self.buckets_each))
        return (iter(()), NOTHING) if rules is None else rules.evaluate(state, rows, now)
