"""Comparison: the figures of the alerts that a rule raised in the stream, compared with those of live rules."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import coverage, truth
from fraudlake.detection.alerts import entity_and_key
from fraudlake.detection.backtest import in_order
from fraudlake.detection.report import Report, report
from fraudlake.lake.missing_version import is_missing
from fraudlake.lake.rows import persisted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.rules.rule_set import RuleSet, RuleVersion


class Span(NamedTuple):
    """The time of an alert: of its account, from its first to its last transaction, microseconds since 1970 UTC."""

    account_id: str
    begin: int
    end: int


@dataclass(frozen=True)
class Overlap:
    """Overlap of the alerts of two rules: two alerts overlap if they share the account and a moment."""

    rule: str
    version: int
    both: int
    """Alerts of this rule that overlap one of the other."""
    only_this: int
    """The other alerts of this rule."""
    only_other: int
    """Alerts of the other rule that overlap none of this one."""

    @classmethod
    def of(cls, other: RuleVersion, own: Sequence[Span], others: Sequence[Span]) -> Overlap:
        """Count the alerts, given by their spans, of a rule and of another one."""
        both = _overlapping(own, others)
        counts = (both, len(own) - both, len(others) - _overlapping(others, own))
        return cls(other.rule.name, other.version, *counts)


def _overlapping(spans: Sequence[Span], others: Sequence[Span]) -> int:
    """Count the spans that overlap one of the others."""
    of_account: dict[str, list[Span]] = {}
    for other in sorted(others):
        of_account.setdefault(other.account_id, []).append(other)
    begins = {account: [other.begin for other in of_one] for account, of_one in of_account.items()}
    # Of those that begin up to some time, the latest end.
    ends = {account: [*accumulate((other.end for other in of_one), max)] for account, of_one in of_account.items()}
    count = 0
    for span in spans:
        begun = bisect_right(begins.get(span.account_id, []), span.end)
        count += bool(begun) and ends[span.account_id][begun - 1] >= span.begin
    return count


def spans(alerts: DataFrame) -> list[Span]:
    """Return the spans of rows of ``silver_alerts``; alerts of version 0.1.0 have no evidence, but small ones."""
    times = F.transform("evidence", lambda part: part["timestamp"])
    first = F.coalesce(F.array_min(times), "small_timestamp", "timestamp")
    rows = alerts.select("account_id", F.unix_micros(first).alias("begin"), F.unix_micros("timestamp").alias("end"))
    return [Span(**row) for row in rows.toArrow().to_pylist()]


@dataclass(frozen=True)
class Comparison:
    """The alerts of a version of a rule in the stream, compared with those of the live rules."""

    report: Report
    overlaps: list[Overlap]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**self.report.as_dict(), "overlaps": [asdict(overlap) for overlap in self.overlaps]}


def raised(alerts: DataFrame, version: RuleVersion) -> DataFrame:
    """Return the alerts of a version of a rule; those from before rules had versions belong to the first one."""
    is_of_version = F.coalesce("rule_version", F.lit(1)) == F.lit(version.version)
    return alerts.where((F.col("rule") == F.lit(version.rule.name)) & is_of_version)


def as_evidence(alerts: DataFrame, silver: DataFrame) -> DataFrame:
    """Return alerts of ``silver_alerts`` in the columns of :data:`evidence.COLUMNS`, with the labels of silver.

    Alerts of version 0.1.0 have no evidence, and are left out.
    """
    parts = alerts.select("alert_id", F.posexplode("evidence").alias("number", "part"))
    labels = silver.select("transaction_id", "label")
    labelled = parts.select("alert_id", "number", "part.*").join(labels, on="transaction_id", how="left")
    rows = F.collect_list(F.struct("number", "variable", "transaction_id", "timestamp", "amount", "label"))
    collected = labelled.groupBy("alert_id").agg(F.array_sort(rows).alias("parts"))
    return (
        alerts.drop("evidence")
        .join(collected, on="alert_id")
        .select(
            F.col("timestamp").alias("time"),
            "account_id",
            "transaction_id",
            "amount",
            *entity_and_key(),
            F.col("parts.variable").alias("roles"),
            F.col("parts.transaction_id").alias("transaction_ids"),
            F.transform("parts.timestamp", F.unix_micros).alias("times"),
            F.col("parts.amount").alias("amounts"),
            F.col("parts.label").alias("labels"),
            F.to_json("evidence_columns").alias("columns"),
            F.to_json("measures").alias("measures"),
        )
    )


def compare(lake: Lake, rules: RuleSet, version: RuleVersion, first: date | None, last: date | None) -> Comparison:
    """``silver_alerts`` and ``silver_shadow_alerts`` of a range of days, both included → what a rule raised, compared.

    All figures are over the transactions that the version was evaluated on: see :func:`coverage.seen`.
    """
    try:
        return _compare_over(lake, coverage.seen(lake, version), rules, version, first, last)
    except PySparkException as error:
        if not is_missing(error):
            raise
        return _compare_over(lake, coverage.seen(lake, version, by_time=True), rules, version, first, last)


def _compare_over(
    lake: Lake, seen: DataFrame, rules: RuleSet, version: RuleVersion, first: date | None, last: date | None
) -> Comparison:
    alerts = lake.read(tables.SILVER_ALERTS).unionByName(lake.read(tables.SILVER_SHADOW_ALERTS))
    own = raised(alerts, version).where(truth.condition("to_date(timestamp)", first, last))
    in_range = truth.condition("date", first, last)
    with persisted(seen.where(in_range).select("transaction_id", "date", "label")) as transactions:
        history = truth.of_rows(transactions)
        verdicts = truth.verdicts_on(lake, in_range, transactions)
        others = [
            (other, raised(alerts, other).join(transactions, on="transaction_id", how="left_semi"))
            for other in rules.live
            if other.rule != version.rule
        ]
        own_spans = spans(own)
        overlaps = [Overlap.of(other, own_spans, spans(of_other)) for other, of_other in others]
    explained = as_evidence(own, lake.read(tables.SILVER_TRANSACTIONS))
    return Comparison(report(version.rule, in_order(explained.toArrow()), history, verdicts), overlaps)
