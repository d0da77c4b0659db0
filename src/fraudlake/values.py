"""Values: types that parse and check texts which several settings have in common, such as sizes and days."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from datetime import date
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

NAME = r"^[\w-]+$"
TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
SECRET = r"^[\w.@-]+/[\w.@-]+$"  # noqa: S105
MOST_INT = 2**31 - 1
MOST_LONG = 2**63 - 1
BASE_AMOUNT = "base_amount"
"""The column of ``silver_transactions`` with amounts in the base currency, in a lake with the setting ``currency``."""
MOST_AMOUNT = 1e12
"""Amounts are clipped to this size (of either sign, in account currency) in figures, so that no sum overflows."""


def size_in_bytes(text: str) -> int:
    """Read a size such as ``512m``, for settings of Spark that accept only a number of bytes."""
    return int(text.rstrip("kmgt")) << 10 * " kmgt".index(text[-1] if text[-1] in "kmgt" else " ")


def _size(text: str) -> str:
    """Check a size."""
    if not re.fullmatch("[1-9][0-9]{0,18}[kmgt]?", text) or size_in_bytes(text) > MOST_LONG:
        raise ValueError("must be a size such as '512k', '128m' or '2g'")
    return text


Size = Annotated[str, AfterValidator(_size)]


def _day(text: str) -> str:
    """Check a day."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("must be a day such as '2026-03-07'") from None


Day = Annotated[str, AfterValidator(_day)]


def _topic(name: str) -> str:
    """Check Kafka's rules for names of topics, other than those for characters."""
    if name in (".", ".."):
        raise ValueError("must be a name that Kafka allows, not '.' or '..'")
    return name


Topic = Annotated[str, AfterValidator(_topic)]


def accounts_a_day(value: object) -> int | None:
    """Read a budget such as ``"100 accounts a day"``; return None for anything else."""
    match = re.fullmatch(r"\s*([1-9]\d{0,8}) accounts? a day\s*", str(value))
    return int(match[1]) if match else None


def _threshold(value: object) -> object:
    """Read a probability, or a budget such as ``"100 accounts a day"``."""
    accounts = accounts_a_day(value)
    if accounts is not None:
        return f"{accounts} accounts a day"
    try:
        probability = float(str(value))
    except ValueError:
        probability = math.nan
    if 0 < probability < 1:
        return probability
    wrong = "must be a probability" if math.isnan(probability) else "input should be less than 1"
    wrong = "input should be greater than 0" if probability <= 0 else wrong
    raise ValueError(f"{wrong}, or a budget such as '100 accounts a day'")


Threshold = Annotated[float | str, BeforeValidator(_threshold)]
"""A probability, or a budget: a number of accounts a day."""


def from_json(value: object, example: str | None = None) -> object:
    """Return the value of a setting, parsed from JSON if a flag or the environment gives it as text.

    Raises:
        ValueError: the text is not JSON.
    """
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise ValueError(f"must be JSON such as {example}" if example else "must be JSON") from None


def flattened(options: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """Return options by their full names; a TOML file may write ``a.b = 1`` as nested tables."""
    flat = []
    for name, value in options.items():
        flat += flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return flat


def summed_amount(columns: Collection[str]) -> str:
    """Return, in SQL, the amount by which sums add transactions that have these columns.

    It is in the base currency if there is one, where a transaction without a rate adds nothing.
    """
    return f"coalesce({BASE_AMOUNT}, 0.0)" if BASE_AMOUNT in columns else "amount"


def bounded(amount: float) -> float:
    """Return an amount clipped to :data:`MOST_AMOUNT`, so that sums of amounts stay finite."""
    return max(-MOST_AMOUNT, min(amount, MOST_AMOUNT))
