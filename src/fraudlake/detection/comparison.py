"""Comparison: the alerts that a rule raised in the stream become the figures of a backtest, beside other rules."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from fraudlake.detection.backtest import Report

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame

    from fraudlake.rules.rule_set import RuleVersion


@dataclass(frozen=True)
class Overlap:
    """How many transactions alerts of two rules end with: of both, of this rule alone, of the other alone."""

    rule: str
    version: int
    both: int
    only_this: int
    only_other: int

    @classmethod
    def of(cls, other: RuleVersion, own_ends: Collection[str], other_ends: Collection[str]) -> Overlap:
        """Count the transactions, given by their ids, that alerts of a rule and of another one end with."""
        own, others = set(own_ends), set(other_ends)
        counts = (len(own & others), len(own - others), len(others - own))
        return cls(other.rule.name, other.version, *counts)


@dataclass(frozen=True)
class Comparison:
    """What a version of a rule has raised in the stream, and the live rules beside it."""

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
            F.col("parts.variable").alias("roles"),
            F.col("parts.transaction_id").alias("transaction_ids"),
            F.transform("parts.timestamp", F.unix_micros).alias("times"),
            F.col("parts.amount").alias("amounts"),
            F.col("parts.label").alias("labels"),
            F.to_json("evidence_columns").alias("columns"),
            F.to_json("measures").alias("measures"),
        )
    )
