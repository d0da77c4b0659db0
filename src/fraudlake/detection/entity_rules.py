"""Entity rules: evaluates the rules of an entity on the rows of one of its buckets.

:mod:`~fraudlake.detection.detector` evaluates rules of the kind ``small_then_large``, and
:mod:`~fraudlake.detection.live_rules` evaluates all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from fraudlake.detection import detector, evidence, live_rules, output
from fraudlake.detection.live_rules import RuleAlerts
from fraudlake.keyed import buckets

if TYPE_CHECKING:
    from fraudlake.keyed.entity_key import Entity
    from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
    from fraudlake.rules.rule_set import RuleVersion

OPEN_FLAGS = "open_flags"
"""The name of the open flags in the state; checkpoints contain it."""
STATE = {OPEN_FLAGS: detector.FLAGS, "rules": live_rules.STATE}
"""The tables of a bucket's state; ``rules`` exists even without rules, so that the state of the last is dropped."""
NOTHING: buckets.State = {name: schema.empty_table() for name, schema in STATE.items()}
"""The state of a bucket before its first rows."""


@dataclass(frozen=True)
class EntityRules:
    """Evaluates the rules of an entity on the rows of one of its buckets."""

    entity: Entity
    pairs: tuple[tuple[RuleVersion, SmallThenLargeRule], ...]
    live: live_rules.LiveRules | None
    """The rules of other kinds, if there are any."""
    flags: pa.Schema
    """The open flags: the detector's columns, and those of the key."""

    def evaluate(self, state: buckets.State, rows: pa.Table, now: int) -> tuple[Iterator[pa.Table], buckets.State]:
        """Apply all rules to a bucket's rows: see :meth:`Evaluator.evaluate`."""
        open_flags = state[OPEN_FLAGS]
        needed = live_rules.STATE.empty_table()
        if open_flags.schema.names != self.flags.names:  # there are none
            open_flags = self.flags.empty_table()
        pairs, open_flags = detector.detect(open_flags, rows, [rule for _, rule in self.pairs], now, self._key)
        raised = self._described(pairs)
        if self.live is not None:
            of_others, needed = self.live.evaluate(state["rules"], rows, now)
            raised += of_others
        alerts = (output.alert_rows(self.entity, one.version, part) for one in raised for part in one.alerts)
        return alerts, {OPEN_FLAGS: open_flags, "rules": needed}

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
                small = pairs.small[is_own]
                large = pairs.large[is_own]
                alerts = evidence.described_pairs(pairs.candidates, key, small, large, self.entity)
                described.append(RuleAlerts(version, alerts))
        return described
