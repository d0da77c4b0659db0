"""Quality rules: what a bronze row must fulfil to be a transaction; a broken rule rejects the row, or only warns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from fraudlake.settings import Settings

PLACE_IS_NEW = "place_is_new"
TRANSACTION_IS_NEW = "transaction_is_new"
LATE = "late"
"""Reasons that a row alone cannot show.

Its source position, or its id, is stored already; or it came too late for the detector, and is in silver as well.
"""
REASONS = (
    "message_is_readable",
    "account_is_named",
    "amount_is_known",
    "amount_is_finite",
    "amount_is_positive",
    "timestamp_is_known",
    "timestamp_is_not_before_floor",
    "timestamp_is_not_in_future",
    PLACE_IS_NEW,
    TRANSACTION_IS_NEW,
    LATE,
)
"""All that a row can be in quarantine for: the quality rules of :func:`quality_rules`, and those reasons."""


@dataclass(frozen=True)
class QualityRule:
    """A condition with a name: a row fulfils the rule where ``valid`` is true or null."""

    name: str
    valid: Column
    severity: Literal["reject", "warn"]


def quality_rules(settings: Settings, clock: Column) -> list[QualityRule]:
    """Return the rules that look at one row alone. A null value breaks only the rule that forbids nulls.

    Args:
        settings: the bounds, and the names of the rules that only warn.
        clock: the current time to the rules: ``timestamp_is_not_in_future`` adds ``max_ahead`` to it.
    """
    amount, dt = F.col("amount"), F.col("dt")
    latest = clock + F.make_dt_interval(secs=F.lit(settings.max_ahead.total_seconds()))
    valid = {
        "account_is_named": F.coalesce(F.length(F.trim("accountId")) > 0, F.lit(False)),
        "amount_is_known": amount.isNotNull() & ~F.isnan(amount),
        "amount_is_finite": F.isnan(amount) | (F.abs(amount) < F.lit(float("inf"))),
        "amount_is_positive": amount > 0,
        "timestamp_is_known": dt.isNotNull(),
        "timestamp_is_not_before_floor": dt >= F.lit(settings.timestamp_floor).cast("timestamp"),
        "timestamp_is_not_in_future": dt <= latest,
    }
    # A message that cannot be read has no fields. It breaks one rule only: the others would add nothing.
    is_readable = F.col("_error").isNull()
    valid = {"message_is_readable": is_readable, **{name: column | ~is_readable for name, column in valid.items()}}
    return [QualityRule(name, column, "warn" if name in settings.warn else "reject") for name, column in valid.items()]
