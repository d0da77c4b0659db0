"""Quality rules: conditions on bronze rows; a row that breaks one is rejected, or only gets a warning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from fraudlake.times import epochs

if TYPE_CHECKING:
    from pyspark.sql import Column

    from fraudlake.settings import Settings

POSITION_IS_NEW = "position_is_new"
TRANSACTION_IS_NEW = "transaction_is_new"
LATE = "late"
FORGOTTEN = "forgotten"
"""Reasons that do not depend on the row alone.

Its source position, or its id, is stored already; or it came too late for the detector, and is in silver, too; or its
account was forgotten, and only its source position is left.
"""
REPEATED_POSITION = (POSITION_IS_NEW, "place_is_new")
"""Reasons of rows with a repeated source position; the second name is from older lakes."""
_MESSAGE_IS_READABLE = "message_is_readable"
Condition = Callable[["Settings", "Column"], "Column"]
"""Returns the condition that a row fulfils a rule, given the settings and the current time."""
# All but separators, control and format characters (zero-width blanks, byte order marks), and letters without ink.
_INK = "[^\\p{Z}\\p{Cc}\\p{Cf}\u034f\u115f\u1160\u2800\u3164\uffa0]"


def is_blank(text: str) -> Column:
    """Return whether a column is null, or a text without a visible character."""
    # Few texts need the regular expression: others begin with a character of ASCII that is visible.
    is_plain = (F.col(text) >= "!") & (F.col(text) < "\x7f")
    return ~F.coalesce(is_plain | F.col(text).rlike(_INK), F.lit(False))


def _is_not_in(unit: str, settings: Settings, clock: Column) -> Column:
    return ~_is_misfit(epochs.mark(unit))


def _is_misfit(name: str) -> Column:
    return F.coalesce(F.array_contains("_misfits", name), F.lit(False))


_VALID: dict[str, Condition] = {
    "account_is_named": lambda settings, clock: ~is_blank("accountId"),
    "amount_is_known": lambda settings, clock: F.col("amount").isNotNull() & ~F.isnan("amount"),
    "amount_is_finite": lambda settings, clock: F.isnan("amount") | (F.abs("amount") < F.lit(float("inf"))),
    "amount_is_positive": lambda settings, clock: F.col("amount") > 0,
    # Infinities and NaN break only the rules above.
    "amount_is_plausible": lambda settings, clock: (
        ~(F.col("amount") > settings.max_amount) | (F.col("amount") == F.lit(float("inf"))) | F.isnan("amount")
    ),
    # The calendar's first and last day stand for an unknown time, as .NET's DateTime.MinValue does.
    "timestamp_is_known": lambda settings, clock: (
        F.col("dt").isNotNull() & (F.col("dt") >= _time("0001-01-02")) & (F.col("dt") < _time("9999-12-31"))
    ),
    **{f"timestamp_is_not_in_{unit}": partial(_is_not_in, unit) for unit in epochs.UNITS},
    "timestamp_is_not_before_floor": lambda settings, clock: F.col("dt") >= _time(settings.timestamp_floor),
    "timestamp_is_not_in_future": lambda settings, clock: (
        F.col("dt") <= clock + F.make_dt_interval(secs=F.lit(settings.max_ahead.total_seconds()))
    ),
}
"""The rules of every lake, by name."""


def _time(text: str) -> Column:
    return F.lit(text).cast("timestamp")


def reasons(settings: Settings) -> tuple[str, ...]:
    """Return all reasons for which a row can be in quarantine: the rules of :func:`of`, and the reasons above."""
    return (_MESSAGE_IS_READABLE, *_conditions(settings), POSITION_IS_NEW, TRANSACTION_IS_NEW, LATE, FORGOTTEN)


def _conditions(settings: Settings) -> dict[str, Condition]:
    """Return the rules of this lake: those of every lake, and those of the columns that the settings declare."""
    conditions = dict(_VALID)
    for name, column in settings.columns.items():
        conditions[f"{name}_fits"] = partial(_fits, name)
        if not column.nullable:
            conditions[f"{name}_is_given"] = partial(_is_given, name)
    return conditions


def _fits(name: str, settings: Settings, clock: Column) -> Column:
    # `_rescued_data` cannot tell: rows from before the declaration have the field there, too.
    return ~_is_misfit(name)


def _is_given(name: str, settings: Settings, clock: Column) -> Column:
    return F.col(name).isNotNull() | ~_fits(name, settings, clock)


@dataclass(frozen=True)
class QualityRule:
    """A condition with a name: a row fulfils the rule if ``valid`` is true or null."""

    name: str
    valid: Column
    severity: Literal["reject", "warn"]


def make_rules(settings: Settings, clock: Column) -> list[QualityRule]:
    """Return the rules on single rows. A null value breaks only the rule that forbids nulls.

    Args:
        settings: the bounds, the declared columns, and the names of the rules that only warn.
        clock: the current time for the rules; ``timestamp_is_not_in_future`` adds ``max_ahead`` to it.
    """
    # A message that cannot be read has no fields. It breaks only one rule, since the others would be noise.
    is_readable = F.col("_error").isNull()
    valid = {name: condition(settings, clock) | ~is_readable for name, condition in _conditions(settings).items()}
    valid = {_MESSAGE_IS_READABLE: is_readable, **valid}
    return [QualityRule(name, column, "warn" if name in settings.warn else "reject") for name, column in valid.items()]
