"""Rules: what a bronze row must fulfil to be a transaction, and whether breaking it rejects the row or only warns."""

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
"""Reasons that no rule of a row alone can give: duplicates, and what the detector adds (the row is in silver, too)."""
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
"""All that a row can be in quarantine for: the rules of :func:`checks`, and those reasons."""


@dataclass(frozen=True)
class Check:
    """A rule with its name: ``valid`` is true, or null, where a row fulfils it."""

    name: str
    valid: Column
    severity: Literal["reject", "warn"]


def checks(settings: Settings, clock: Column) -> list[Check]:
    """Return the rules of a row alone; a null breaks only the rule that is about nulls.

    Args:
        settings: the bounds, and which rules only warn.
        clock: the time that a row may not be too far ahead of.
    """
    amount, dt = F.col("amount"), F.col("dt")
    latest = clock + F.make_dt_interval(secs=F.lit(settings.max_ahead.total_seconds()))
    rules = {
        "account_is_named": F.coalesce(F.length(F.trim("accountId")) > 0, F.lit(False)),
        "amount_is_known": amount.isNotNull() & ~F.isnan(amount),
        "amount_is_finite": F.isnan(amount) | (F.abs(amount) < F.lit(float("inf"))),
        "amount_is_positive": amount > 0,
        "timestamp_is_known": dt.isNotNull(),
        "timestamp_is_not_before_floor": dt >= F.lit(settings.timestamp_floor).cast("timestamp"),
        "timestamp_is_not_in_future": dt <= latest,
    }
    # A message that cannot be read has no fields: that says it all, and their rules would only repeat it.
    readable = F.col("_error").isNull()
    rules = {"message_is_readable": readable, **{name: valid | ~readable for name, valid in rules.items()}}
    return [Check(name, valid, "warn" if name in settings.warn else "reject") for name, valid in rules.items()]
