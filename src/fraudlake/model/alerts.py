"""Alerts of scores: evaluates rules of the kind ``model`` on predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import alert_changes, comparison, suppression, truth
from fraudlake.detection import what_if as what_if_
from fraudlake.detection.alerts import alert_id
from fraudlake.detection.backtest import without_suppressed
from fraudlake.entity import ACCOUNT
from fraudlake.model import budget, published
from fraudlake.rules.kinds.model import ModelRule
from fraudlake.rules.rule_set import RuleSet
from fraudlake.silver import clock

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import Column, DataFrame

    from fraudlake.detection.alert_changes import WhatIf
    from fraudlake.detection.report import Report
    from fraudlake.lake import Lake
    from fraudlake.model.drift import Profile
    from fraudlake.model.published import Model
    from fraudlake.rules.kinds import Rule
    from fraudlake.rules.rule_set import RuleVersion

ROLE = "SCORED"
"""The role of the transaction in the evidence."""
_READ = ("transaction_id", "account_id", "timestamp", "amount", "probability", "reasons", "model_version")
_EXPLANATION = (
    "Account %s paid %.2f at %s UTC: version %s of the model gives it the fraud probability %.3f (limit %.3f)"
)


def raise_alerts(predictions: DataFrame, versions: Sequence[RuleVersion], profiles: Mapping[str, Profile]) -> DataFrame:
    """Return the alerts that versions of rules raise, in the columns of ``silver_alerts``.

    Args:
        predictions: rows of ``gold_fraud_predictions``.
        versions: versions of rules; other kinds raise no alerts here.
        profiles: the profiles of the model's versions. If a version has no budget curve, rules with a budget raise
            nothing.
    """
    raised = [_raised(version, rule, profiles) for version, rule in _model_rules(versions)]
    transaction = F.struct(F.lit(ROLE).alias("variable"), "transaction_id", "timestamp", "amount")
    reasons = F.concat_ws("; ", "reasons")
    columns = {
        "alert_id": alert_id("rule", "transaction_id", "transaction_id"),
        "explanation": F.concat(
            F.format_string(
                _EXPLANATION,
                "account_id",
                "amount",
                F.date_format("timestamp", "yyyy-MM-dd HH:mm:ss"),
                "model_version",
                "probability",
                "level",
            ),
            F.when(reasons != "", F.concat(F.lit(": "), reasons)).otherwise(""),
            F.lit("."),
        ),
        "detected_at": clock.now(),
        "kind": F.lit(ModelRule.model_fields["kind"].default),
        "evidence": F.array(transaction),
        "evidence_columns": F.lit(None).cast("array<map<string,string>>"),
        "measures": F.create_map(
            *(F.lit("probability"), F.col("probability").cast("string")),
            *(F.lit("threshold"), F.col("level").cast("string")),
            *(F.lit("model_version"), F.col("model_version")),
            *(F.lit("reasons"), F.to_json("reasons")),
        ),
        "entity": F.lit(ACCOUNT),
        "entity_key": F.col("account_id"),
    }
    rows = predictions.select(*_READ, F.explode(F.array_compact(F.array(*raised))).alias("raised"))
    rows = rows.select(*_READ, "raised.*")
    return rows.withColumns(columns).select(*tables.SILVER_ALERTS.column_names)


def lowest(versions: Sequence[RuleVersion], model: Model) -> float:
    """Return the lowest probability at which any of the rules alerts with a version of the model; 1 without rules.

    Raises:
        FraudlakeError: a rule has a budget, and the version of the model has no budget curve.
    """
    return min((model.threshold(rule.threshold) for _, rule in _model_rules(versions)), default=1.0)


def raise_latest(predictions: DataFrame, lake: Lake, versions: Sequence[RuleVersion]) -> DataFrame:
    """Return the alerts of all predictions; of a transaction's, the first by :data:`tables.PREDICTION_ORDER` counts."""
    nth = F.expr(f"row_number() OVER (PARTITION BY transaction_id ORDER BY {tables.PREDICTION_ORDER})")
    one_each = predictions.withColumn("_nth", nth).where("_nth = 1").drop("_nth")
    return raise_alerts(one_each, versions, published.all_profiles(lake))


def backtest(lake: Lake, rule: ModelRule, first: date | None, last: date | None) -> tuple[Report, DataFrame]:
    """Evaluate a rule over ``gold_fraud_predictions`` of a range of days (inclusive); return its figures and alerts.

    They cover the transactions that have a prediction; see :func:`fraudlake.detection.backtest.backtest`.
    """
    scored = _Scored.on_days(lake, first, last)
    alerts = scored.evidence(lake, rule)
    entries = suppression.read_entries(lake, [rule])
    history = truth.count_rows(scored.transactions)
    return without_suppressed(alerts, entries, rule, lake.settings, history, truth.frauds(scored.decided))


class _Scored(NamedTuple):
    """Predictions and silver of a range of days, the transactions that have a prediction, and the verdicts on these."""

    predictions: DataFrame
    silver: DataFrame
    transactions: DataFrame
    decided: DataFrame

    @classmethod
    def on_days(cls, lake: Lake, first: date | None, last: date | None) -> _Scored:
        in_range = truth.condition("date", first, last)
        predictions = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where(in_range)
        silver = lake.read(tables.SILVER_TRANSACTIONS).where(in_range)
        scored = silver.join(predictions.select("transaction_id"), on="transaction_id", how="left_semi")
        return cls(predictions, silver, scored, truth.verdicts_on(lake, in_range, scored.select("transaction_id")))

    def evidence(self, lake: Lake, rule: Rule) -> DataFrame:
        """Return the alerts of a rule, :data:`evidence.COLUMNS` and ``verdicts``."""
        alerts = raise_latest(self.predictions, lake, RuleSet.of([rule]).versions)
        return comparison.as_evidence(alerts, self.silver, self.decided)


def what_if(lake: Lake, old: Rule | None, new: ModelRule, first: date | None, last: date | None) -> WhatIf:
    """Compare the alerts of a changed rule with those of the present one, over predictions of a range of days.

    See :func:`fraudlake.detection.what_if.what_if`.
    """
    scored = _Scored.on_days(lake, first, last)
    rules = [rule for rule in (old, new) if rule is not None]
    sides = [scored.evidence(lake, rule).withColumn(what_if_.VERSION, F.lit(n)) for n, rule in enumerate(rules, 1)]
    raised = reduce(lambda some, others: some.unionByName(others), sides)
    changes = what_if_.compare_raised(lake, raised, old, new)
    history = truth.count_rows(scored.transactions)
    return alert_changes.summarize(lake.store, *changes, (old, new), history, truth.frauds(scored.decided))


def _model_rules(versions: Sequence[RuleVersion]) -> Iterator[tuple[RuleVersion, ModelRule]]:
    return ((version, version.rule) for version in versions if isinstance(version.rule, ModelRule))


def _raised(version: RuleVersion, rule: ModelRule, profiles: Mapping[str, Profile]) -> Column:
    """Return the rule and its alert level if a prediction reaches that level, otherwise null."""
    level = _level(rule, profiles)
    columns = (
        F.lit(rule.name).alias("rule"),
        F.lit(version.version).cast("bigint").alias("rule_version"),
        level.alias("level"),
    )
    return F.when(F.col("probability") >= level, F.struct(*columns))


def _level(rule: ModelRule, profiles: Mapping[str, Profile]) -> Column:
    """Return the lowest probability that raises an alert."""
    if not isinstance(rule.threshold, str):
        return F.lit(rule.threshold)
    level = F.lit(None).cast("double")
    for number, probability in budget.thresholds(rule.threshold, profiles).items():
        level = F.when(F.col("model_version") == number, F.lit(probability)).otherwise(level)
    return level
