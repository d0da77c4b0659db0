"""Live rules: evaluates thresholds and patterns on a bucket's rows, micro-batch by micro-batch.

For each rule, the state contains the rows that a later alert may include or count, and any further state of the rule.
The state of a removed rule is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from fraudlake.arrays import to_bytes
from fraudlake.detection import evidence, rule_entity
from fraudlake.rules.columns import query_columns

if TYPE_CHECKING:
    from fraudlake.entity import Entities
    from fraudlake.keyed.entity_key import Entity
    from fraudlake.rules.compiled_rule import CompiledRule
    from fraudlake.rules.rule_set import RuleVersion
    from fraudlake.settings import Settings
    from fraudlake_patterns.expressions import Column

STATE = pa.schema(
    [
        ("rule", pa.string()),
        ("definition", pa.string()),  # the rule as JSON
        ("rows", pa.binary()),  # the rows that it needs, as an Arrow IPC stream, in the order of evaluation
        ("open_matches", pa.string()),  # the rule's own state, as JSON; checkpoints contain this name
    ]
)
"""A rule that needs earlier rows of a bucket."""

PREFIX = "silver_"
"""The prefix of further columns of silver in the detector's rows."""


@dataclass(frozen=True)
class LiveRules:
    """The rules of an entity other than ``small_then_large``.

    ``columns`` maps the names that rules use to columns; ``further`` are the columns of silver that the detector's rows
    do not already have.
    """

    entity: Entity
    versions: tuple[RuleVersion, ...]
    columns: Mapping[str, Column]
    entities: Entities
    further: frozenset[str]

    @classmethod
    def by_entity(cls, settings: Settings, versions: Iterable[RuleVersion]) -> dict[Entity, LiveRules]:
        """Select the rules of these kinds from all rules, and group them by entity.

        Raises:
            UsageError: a rule does not fit the columns, or groups by no entity.
        """
        versions = [version for version in versions if version.rule.kind != "small_then_large"]
        columns = query_columns(settings.silver_columns) if versions else {}
        compiled = [version.rule.compile(columns, settings.entities) for version in versions]
        entities = [
            rule_entity.find_entity(version.rule, rule.partition_by, settings)
            for version, rule in zip(versions, compiled, strict=True)
        ]
        live = {}
        for by in dict.fromkeys(entities):
            of_entity = [number for number, other in enumerate(entities) if other == by]
            needed = {name for number in of_entity for name in compiled[number].columns}
            live[by] = cls(
                by,
                tuple(versions[number] for number in of_entity),
                columns,
                settings.entities,
                frozenset(needed - {*evidence.NEEDS}),
            )
        return live

    def evaluate(self, state: pa.Table, rows: pa.Table, now: int) -> tuple[list[RuleAlerts], pa.Table]:
        """Evaluate a bucket's rows.

        Args:
            state: :data:`STATE`, as the previous micro-batch returned it.
            rows: new rows, with the detector's columns and :meth:`fields`.
            now: no later row has an earlier event time, microseconds.

        Returns:
            The alerts of each rule, which are made as they are read, and the new state.
        """
        if not self.versions or (not len(state) and not len(rows)):
            return [], STATE.empty_table()
        new = self._silver(rows)
        before = {row["definition"]: row for row in state.to_pylist()}
        raised = []
        needed = []
        for version, compiled in zip(self.versions, self._compiled, strict=True):
            definition = version.rule.model_dump_json()
            entry = before.get(definition)
            part = new.select([*dict.fromkeys((*evidence.NEEDS, *compiled.columns))])
            old_rows = 0
            rule_state = ()
            if entry is not None:
                earlier = pa.ipc.open_stream(entry["rows"]).read_all()
                part = pa.concat_tables([earlier, part])
                old_rows = len(earlier)
                rule_state = json.loads(entry["open_matches"])
            evaluation = compiled.evaluate(part, old_rows, rule_state, now)
            raised.append(
                RuleAlerts(version, evidence.described(part, evaluation.alerts, compiled.columns, self.entity))
            )
            if len(evaluation.needed):
                needed.append(
                    {
                        "rule": version.rule.name,
                        "definition": definition,
                        "rows": to_bytes(part.take(pa.array(evaluation.needed)).combine_chunks(), is_compressed=True),
                        "open_matches": json.dumps(evaluation.state),
                    }
                )
        return raised, pa.Table.from_pylist(needed, STATE)

    def without_accounts(self, state: pa.Table, accounts: Collection[str]) -> pa.Table:
        """Return a bucket's state (:data:`STATE`) without the given accounts."""
        definitions = (version.rule.model_dump_json() for version in self.versions)
        compiled_rules = dict(zip(definitions, self._compiled, strict=True))
        states = []
        for row in state.to_pylist():
            compiled = compiled_rules.get(row["definition"])
            if compiled is None:  # the rule was removed
                continue
            rows = pa.ipc.open_stream(row["rows"]).read_all()
            stays, rule_state = compiled.forget(json.loads(row["open_matches"]), rows, accounts)
            if len(stays):
                new = {
                    "rows": to_bytes(stays.combine_chunks(), is_compressed=True),
                    "open_matches": json.dumps(rule_state),
                }
                states.append(row | new)
        return pa.Table.from_pylist(states, STATE)

    @cached_property
    def _compiled(self) -> list[CompiledRule]:
        """The compiled rules, which each task compiles itself, since they cannot be serialized."""
        return [version.rule.compile(self.columns, self.entities) for version in self.versions]

    def _silver(self, rows: pa.Table) -> pa.Table:
        """Return rows of the detector in the columns of silver."""
        columns: dict[str, Any] = {name: rows[name] for name in evidence.NEEDS if name not in ("timestamp", "source")}
        columns["timestamp"] = rows["time"].cast(pa.timestamp("us", "UTC"))
        columns["source"] = rows["source"].cast(pa.string())
        return pa.table(columns | {name: rows[PREFIX + name] for name in sorted(self.further)})


class RuleAlerts(NamedTuple):
    """Alerts of a rule, in parts with the columns of :func:`evidence.described`."""

    version: RuleVersion
    alerts: Iterable[pa.Table]
