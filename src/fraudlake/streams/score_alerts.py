"""Score alerts: raises the alerts of rules of the kind ``model`` from a micro-batch's predictions.

They are raised from the committed predictions, so a micro-batch that is repeated after a crash raises the same alerts,
even if the champion has changed since. The checkpoint notes its rules; see :mod:`~fraudlake.streams.rule_notes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import rule_table, suppression
from fraudlake.lake.appender import Appender
from fraudlake.lake.missing_version import compute_at
from fraudlake.model import alerts, published
from fraudlake.streams import rule_notes
from fraudlake.streams.stream import OutdatedError
from fraudlake.times import literals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.commit import Commit
    from fraudlake.model.drift import Profile
    from fraudlake.model.published import Model
    from fraudlake.rules.rule_set import RuleSet


@dataclass(frozen=True)
class ScoreAlerts:
    """Raises the alerts of a stream's micro-batches until the rules change."""

    step: str
    appender: Appender
    rules: RuleSet
    is_fixed: bool
    """Whether the micro-batch is a repetition, which uses the rules that were noted for it."""

    @classmethod
    def of(cls, lake: Lake, step: str) -> ScoreAlerts:
        """Return the alerts of the next micro-batch.

        A repeated micro-batch uses its former rules if it has written alerts, or predictions without rules. Otherwise
        it uses the current rules, so that a rule that makes the stream fail can be retired.
        """
        appender = Appender.of(lake, step)
        pending = appender.repeated
        if pending is None or not _has_written(lake, appender, pending):
            return cls(step, appender, _latest(lake), is_fixed=False)
        rules = rule_notes.noted(lake, lake.checkpoint(step), pending, "predictions")
        return cls(step, appender, rules, is_fixed=True)

    def note(self, lake: Lake) -> None:
        """Note the rules of the next micro-batch in the checkpoint, if there are rules now or were before."""
        checkpoint = lake.checkpoint(self.step)
        batch = checkpoint.next_batch
        if self.rules.evaluated:
            rule_table.start(lake.store)
        if not self.is_fixed and (self.rules.evaluated or checkpoint.notes.rules_of(batch)):
            self._note(lake, self.rules.change)

    def note_latest(self, lake: Lake) -> None:
        """Note that the next micro-batch evaluates the current rules."""
        self._note(lake, rule_table.latest_change(lake))

    def _note(self, lake: Lake, change: int) -> None:
        checkpoint = lake.checkpoint(self.step)
        batch = checkpoint.next_batch
        if checkpoint.notes.rules_of(batch) == change:
            return
        read = {**checkpoint.notes.read_before(batch)} or rule_notes.read_silver(lake, checkpoint, batch)
        if read["silver_version"] is None and read["newest"] is None:  # it reads a topic, or begins
            newest = lake.store.query(
                f"SELECT max(timestamp) AS newest FROM {tables.GOLD_FRAUD_PREDICTIONS.name}",
                tables.GOLD_FRAUD_PREDICTIONS,
            )["newest"]
            read["newest"] = newest.cast(pa.timestamp("us", "UTC")).cast(pa.int64())[0].as_py()
        checkpoint.notes.note_rules(batch, change, read, {})

    def require_current(self, lake: Lake, batch_id: int) -> None:
        """Check that these rules are the current ones, which a new micro-batch evaluates.

        Raises:
            OutdatedError: the rules have changed.
        """
        if batch_id != self.appender.repeated and _evaluated(_latest(lake)) != _evaluated(self.rules):
            raise OutdatedError

    def record(self, model: Model, scored_at: datetime) -> dict[str, Any]:
        """Return the record for the commit of a micro-batch's predictions; empty if no rule evaluates them."""
        return {"model_version": model.number, "scored_at": scored_at.isoformat()} if self.rules.evaluated else {}

    def raise_alerts(self, lake: Lake, batch_id: int) -> None:
        """Append the alerts of a micro-batch's committed predictions; suppressed alerts go to their own table."""
        versions = self.rules.evaluated
        commit = self.appender.commit(lake, tables.GOLD_FRAUD_PREDICTIONS, batch_id) if versions else None
        if commit is None or "scored_at" not in commit.record:
            return
        profiles = published.profiles(lake, [commit.record["model_version"]])
        append = partial(self._append, lake, batch_id, profiles, commit)
        # The version may have been removed before an interrupted micro-batch is repeated.
        if compute_at(lake, tables.GOLD_FRAUD_PREDICTIONS, commit.version, append) is None:
            append(lake.read(tables.GOLD_FRAUD_PREDICTIONS))

    def _append(
        self,
        lake: Lake,
        batch_id: int,
        profiles: Mapping[str, Profile],
        commit: Commit,
        predictions: DataFrame,
    ) -> bool:
        of_batch = F.col("scored_at") == literals.instant(datetime.fromisoformat(commit.record["scored_at"]))
        shadows = tuple(version for version in self.rules.evaluated if version.is_shadow)
        versions = self.rules.evaluated
        raised = {
            table: alerts.raise_alerts(predictions.where(of_batch), some, profiles)
            for table, some in ((tables.SILVER_ALERTS, self.rules.live), (tables.SILVER_SHADOW_ALERTS, shadows))
            if some
        }
        entries = suppression.BatchEntries.of(lake, self.appender, batch_id, tables.ALERTS, versions)
        with suppression.divided(raised, entries.rows, versions, lake.settings) as by_table:
            for table, rows in by_table.items():
                self.appender.append(lake, rows, table, batch_id, record=entries.record)
        return True


def _has_written(lake: Lake, appender: Appender, batch_id: int) -> bool:
    """Return whether a micro-batch has written alerts, or predictions without rules."""
    scored = appender.commit(lake, tables.GOLD_FRAUD_PREDICTIONS, batch_id)
    raises_none = scored is not None and "scored_at" not in scored.record
    return raises_none or any(appender.commit(lake, table, batch_id) for table in tables.ALERTS)


def _latest(lake: Lake) -> RuleSet:
    return rule_table.read(lake).select_source("predictions")


def _evaluated(rules: RuleSet) -> list[tuple[str, int, str]]:
    return [(version.rule.name, version.version, version.status) for version in rules.evaluated]
