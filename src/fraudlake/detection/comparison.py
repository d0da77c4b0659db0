"""Comparison: compares the alerts that a rule raised in the stream with those of the live rules."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import coverage, truth
from fraudlake.detection.backtest import tallies
from fraudlake.detection.report import Report, report
from fraudlake.lake.missing_version import is_missing
from fraudlake.lake.rows import persisted
from fraudlake.values import summed_amount

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.rules.rule_set import RuleSet, RuleVersion


class Span(NamedTuple):
    """The account and the time of an alert, from its first to its last transaction, in microseconds since 1970 UTC."""

    account_id: str
    begin: int
    end: int


@dataclass(frozen=True)
class Overlap:
    """Overlap of the alerts of two rules: two alerts overlap if their account is the same and their times intersect."""

    rule: str
    version: int
    both: int
    """Alerts of this rule that overlap an alert of the other."""
    only_this: int
    """The other alerts of this rule."""
    only_other: int
    """Alerts of the other rule that overlap no alert of this one."""


def overlap_of(own: Sequence[Span], others: Sequence[Span]) -> tuple[int, int, int]:
    """Count a rule's alerts that overlap another rule's, its alerts that do not, and the other's that do not."""
    both = _overlapping(own, others)
    return both, len(own) - both, len(others) - _overlapping(others, own)


def _overlapping(spans: Sequence[Span], others: Sequence[Span]) -> int:
    """Count the spans that overlap one of the others."""
    of_account: dict[str, list[Span]] = {}
    for other in sorted(others):
        of_account.setdefault(other.account_id, []).append(other)
    begins = {account: [other.begin for other in of_one] for account, of_one in of_account.items()}
    # For each span, the latest end among those that begin no later.
    ends = {account: [*accumulate((other.end for other in of_one), max)] for account, of_one in of_account.items()}
    count = 0
    for span in spans:
        begun = bisect_right(begins.get(span.account_id, []), span.end)
        count += bool(begun) and ends[span.account_id][begun - 1] >= span.begin
    return count


def spans(alerts: DataFrame, number: int) -> DataFrame:
    """Return the spans of rows of ``silver_alerts``, with the number of their rule."""
    times = F.transform("evidence", lambda part: part["timestamp"])
    begin = F.unix_micros(F.array_min(times)).alias("begin")
    end = F.unix_micros("timestamp").alias("end")
    return alerts.select("account_id", begin, end, F.lit(number).alias("rule"))


_COUNTS = ("both", "only_this", "only_other")


def overlaps(own: DataFrame, others: Sequence[tuple[RuleVersion, DataFrame]]) -> list[Overlap]:
    """Return how the alerts of a rule overlap those of each other rule; the work is partitioned by account."""
    if not others:
        return []
    together = spans(own, 0)
    names = ("rule", *_COUNTS)
    for number, (_, of_other) in enumerate(others, start=1):
        together = together.unionByName(spans(of_other, number))
    numbers = range(1, len(others) + 1)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        of_rule: dict[int, list[Span]] = defaultdict(list)
        for row in (row for batch in batches for row in batch.to_pylist()):
            of_rule[row.pop("rule")].append(Span(**row))
        counts = zip(*((number, *overlap_of(of_rule[0], of_rule[number])) for number in numbers), strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(one, pa.int64()) for one in counts], names)

    counted = together.repartition("account_id").mapInArrow(count, ", ".join(f"{name} BIGINT" for name in names))
    sums = counted.groupBy("rule").agg(*(F.sum(name).alias(name) for name in _COUNTS))
    by_number = {row["rule"]: row for row in sums.collect()}
    return [
        Overlap(other.rule.name, other.version, *(by_number[number][name] if by_number else 0 for name in _COUNTS))
        for number, (other, _) in enumerate(others, start=1)
    ]


@dataclass(frozen=True)
class Comparison:
    """The result of comparing a rule version's alerts in the stream with those of the live rules."""

    report: Report
    overlaps: list[Overlap]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**self.report.as_dict(), "overlaps": [asdict(overlap) for overlap in self.overlaps]}


def raised(alerts: DataFrame, version: RuleVersion) -> DataFrame:
    """Return the alerts of a version of a rule."""
    is_of_rule = F.col("rule") == F.lit(version.rule.name)
    return alerts.where(is_of_rule & (F.col("rule_version") == F.lit(version.version)))


def as_evidence(alerts: DataFrame, silver: DataFrame, decided: DataFrame) -> DataFrame:
    """Return rows of ``silver_alerts`` in the columns of :data:`evidence.COLUMNS`, with labels and ``verdicts``.

    ``decided`` comes from :func:`truth.verdicts_on`.
    """
    summed = F.expr(summed_amount(silver.columns))
    parts = alerts.select("alert_id", F.posexplode("evidence").alias("number", "part"))
    labels = silver.select("transaction_id", "label", summed.alias("summed_amount")).join(
        decided, on="transaction_id", how="left"
    )
    labelled = parts.select("alert_id", "number", "part.*").join(labels, on="transaction_id", how="left")
    names = ("number", "variable", "transaction_id", "timestamp", "amount", "label", "verdict", "summed_amount")
    rows = F.collect_list(F.struct(*names))
    collected = labelled.groupBy("alert_id").agg(F.array_sort(rows).alias("parts"))
    return (
        alerts.drop("evidence")
        .join(collected, on="alert_id")
        .select(
            F.col("timestamp").alias("time"),
            "account_id",
            "transaction_id",
            "amount",
            F.element_at("parts.summed_amount", -1).alias("summed_amount"),
            "entity",
            "entity_key",
            F.col("parts.variable").alias("roles"),
            F.col("parts.transaction_id").alias("transaction_ids"),
            F.transform("parts.timestamp", F.unix_micros).alias("times"),
            F.col("parts.amount").alias("amounts"),
            F.col("parts.label").alias("labels"),
            F.col("parts.verdict").alias("verdicts"),
            F.to_json("evidence_columns").alias("columns"),
            F.to_json("measures").alias("measures"),
        )
    )


def compare(lake: Lake, rules: RuleSet, version: RuleVersion, first: date | None, last: date | None) -> Comparison:
    """Compare what a rule raised in ``silver_alerts`` or ``silver_shadow_alerts`` in a range of days (inclusive).

    All figures cover the transactions on which the version was evaluated: see :func:`coverage.evaluated_rows`.
    """
    try:
        return _compare_over(lake, coverage.evaluated_rows(lake, version), rules, version, first, last)
    except PySparkException as error:
        if not is_missing(error):
            raise
        return _compare_over(lake, coverage.evaluated_rows(lake, version, by_time=True), rules, version, first, last)


def _compare_over(
    lake: Lake, rows: DataFrame, rules: RuleSet, version: RuleVersion, first: date | None, last: date | None
) -> Comparison:
    alerts = lake.read(tables.SILVER_ALERTS).unionByName(lake.read(tables.SILVER_SHADOW_ALERTS))
    own = raised(alerts, version).where(truth.condition("to_date(timestamp)", first, last))
    in_range = truth.condition("date", first, last)
    with persisted(rows.where(in_range).select("transaction_id", "date", "label")) as transactions:
        history = truth.count_rows(transactions)
        decided = truth.verdicts_on(lake, in_range, transactions)
        frauds = truth.frauds(decided)
        others = [
            (other, raised(alerts, other).join(transactions, on="transaction_id", how="left_semi"))
            for other in rules.live
            if other.rule != version.rule
        ]
        overlap = overlaps(own, others)
        counted = tallies(as_evidence(own, lake.read(tables.SILVER_TRANSACTIONS), decided))
    suppressed = raised(lake.read(tables.SILVER_SUPPRESSED_ALERTS), version)
    number = suppressed.where(truth.condition("to_date(timestamp)", first, last)).count()
    return Comparison(replace(report(version.rule, counted, history, frauds), suppressed=number), overlap)
