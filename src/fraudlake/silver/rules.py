"""Quality rules: what a bronze row must fulfil to be a transaction; a broken rule rejects the row, or only warns."""

from __future__ import annotations

from collections.abc import Callable
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
_MESSAGE_IS_READABLE = "message_is_readable"
_VALID: dict[str, Callable[[Settings, Column], Column]] = {
    "account_is_named": lambda settings, clock: F.coalesce(F.length(F.trim("accountId")) > 0, F.lit(False)),
    "amount_is_known": lambda settings, clock: F.col("amount").isNotNull() & ~F.isnan("amount"),
    "amount_is_finite": lambda settings, clock: F.isnan("amount") | (F.abs("amount") < F.lit(float("inf"))),
    "amount_is_positive": lambda settings, clock: F.col("amount") > 0,
    "timestamp_is_known": lambda settings, clock: F.col("dt").isNotNull(),
    "timestamp_is_not_before_floor": lambda settings, clock: (
        F.col("dt") >= F.lit(settings.timestamp_floor).cast("timestamp")
    ),
    "timestamp_is_not_in_future": lambda settings, clock: (
        F.col("dt") <= clock + F.make_dt_interval(secs=F.lit(settings.max_ahead.total_seconds()))
    ),
}
"""When a row fulfils a rule, by the rule's name: a condition under the settings and the current time."""
REASONS = (_MESSAGE_IS_READABLE, *_VALID, PLACE_IS_NEW, TRANSACTION_IS_NEW, LATE)
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
    # A message that cannot be read has no fields. It breaks one rule only: the others would add nothing.
    is_readable = F.col("_error").isNull()
    valid = {name: condition(settings, clock) | ~is_readable for name, condition in _VALID.items()}
    valid = {_MESSAGE_IS_READABLE: is_readable, **valid}
    return [QualityRule(name, column, "warn" if name in settings.warn else "reject") for name, column in valid.items()]
