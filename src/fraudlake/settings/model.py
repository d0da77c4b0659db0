"""Model: what a model learns, when it becomes champion, and when it is no longer good enough."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Model(BaseModel):
    """How transactions are scored."""

    model_name: str = Field(
        "fraudlake",
        pattern=r"^[\w.-]+$",
        description="Name of the registered model (default in a workspace: CATALOG.SCHEMA.fraud_model).",
    )
    threshold: float = Field(0.5, gt=0, lt=1, description="Probability from which a transaction is predicted fraud.")
    holdout: float = Field(0.3, gt=0, lt=1, description="Latest share of the history, by which the model is evaluated.")
    labels: Literal["auto", "flink", "verdicts"] = Field(
        "auto", description="What a model learns: Flink's label, analysts' verdicts, or those where there are enough."
    )
    algorithm: Literal["trees", "logistic"] = Field(
        "trees", description="Gradient-boosted trees, or the logistic regression that is otherwise their baseline."
    )
    max_training_rows: int = Field(
        5_000_000,
        ge=1000,
        description="Largest history that a model learns whole; of a larger one it learns all fraud and a sample.",
    )
    promotion_margin: float = Field(
        0.005, ge=0, lt=1, description="By how much a challenger's area under PR must be higher than the champion's."
    )
    auto_promote: bool = Field(True, description="Let 'train' make a better model the champion by itself.")
    max_drift: float = Field(0.25, gt=0, description="Population stability index above which 'status' fails.")
    min_true_prediction_rate: float = Field(
        0.95, ge=0, le=1, description="True prediction rate of the latest day below which 'status' fails."
    )
