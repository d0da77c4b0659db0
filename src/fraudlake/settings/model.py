"""Model: the settings for training, promotion and monitoring."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Literal

from pydantic import BaseModel, Field

from fraudlake.times.durations import Duration
from fraudlake.values import Threshold


class Model(BaseModel):
    """How transactions are scored."""

    model_name: str = Field(
        "fraudlake",
        pattern=r"^[\w.-]+$",
        description="Name of the registered model (default in a workspace: CATALOG.SCHEMA.fraud_model).",
    )
    threshold: Threshold = Field(
        0.5,
        description="Probability from which a transaction is predicted fraud, or a budget: '100 accounts a day'.",
    )
    alert_budget: int = Field(
        100, ge=1, description="Alerts, or accounts, that can be looked at in a day, for the figures of the model."
    )
    alert_cost: float = Field(
        0, ge=0, description="Cost of looking at an alert, in account currency, for the amount that a model saves."
    )
    holdout: float = Field(
        0.3, gt=0, lt=1, description="Share of the history, at its end, on which the model is evaluated."
    )
    labels: Literal["auto", "flink", "verdicts", "chargebacks"] = Field(
        "auto",
        description="Labels: Flink's, analysts' verdicts, verdicts if there are enough, or verdicts and, without one, "
        "genuine after a time (chargebacks).",
    )
    genuine_after: Duration = Field(
        timedelta(days=45),
        ge=timedelta(0),
        description="Age at which a transaction without a verdict is genuine, if labels are chargebacks.",
    )
    label_delay: Duration = Field(
        timedelta(0),
        ge=timedelta(0),
        description="How long after its transaction a label of Flink is known; verdicts are known from decided_at on.",
    )
    train_from: date | None = Field(
        None, description="First day (UTC) of the transactions that teach or test a model (default: the first of all)."
    )
    algorithm: Literal["trees", "logistic"] = Field(
        "trees", description="Gradient-boosted trees, or logistic regression, which is otherwise their baseline."
    )
    max_training_rows: int = Field(
        5_000_000,
        ge=1000,
        description="Approximate maximum of training rows; of a longer history, all fraud and a sample is used.",
    )
    retrain_share: float = Field(
        0.1,
        ge=0,
        description="Share of new transactions or new verdicts from which 'run' trains again; 'train' always does.",
    )
    train_every: Duration | None = Field(
        None,
        ge=timedelta(0),
        description="Age of the latest version from which 'run' trains again if anything is new (default: no age).",
    )
    promotion_metric: Literal[
        "area_under_pr",
        "area_under_roc",
        "card_precision",
        "card_recall",
        "precision_at_budget",
        "recall_at_budget",
        "amount_saved",
    ] = Field("area_under_pr", description="Figure by which a challenger must beat the champion, by more than chance.")
    auto_promote: bool = Field(True, description="Let 'train' make a better model the champion by itself.")
    max_drift: float = Field(0.25, gt=0, description="Population stability index above which 'status' fails.")
    min_true_prediction_rate: float = Field(
        0.95, ge=0, le=1, description="True prediction rate of the latest day below which 'status' fails."
    )

    @property
    def are_chargebacks(self) -> bool:
        """Whether a transaction without a verdict becomes genuine with age, whatever Flink's label says."""
        return self.labels == "chargebacks"

    @property
    def flink_delay(self) -> timedelta:
        """How long after its transaction Flink's label is known; 0 if that label is not used."""
        return timedelta(0) if self.are_chargebacks else self.label_delay

    @property
    def known_after(self) -> timedelta:
        """How long after its transaction a label other than a verdict is known."""
        return self.genuine_after if self.are_chargebacks else self.label_delay
