"""Quality: which rows of bronze are quarantined, and which only warn."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_settings import NoDecode

from fraudlake.times.durations import Duration
from fraudlake.values import Day

MAY_WARN = (
    "amount_is_positive",
    "amount_is_plausible",
    "timestamp_is_not_in_seconds",
    "timestamp_is_not_in_milliseconds",
    "timestamp_is_not_in_microseconds",
    "timestamp_is_not_in_nanoseconds",
    "timestamp_is_not_before_floor",
    "timestamp_is_not_in_future",
)
"""The quality rules that may be set to only warn; the steps after silver rely on all others."""


def _warnings(value: object) -> object:
    """Read a list of rule names, or one text with commas between them."""
    names = [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
    for name in names if isinstance(names, list | tuple) else ():
        if name not in MAY_WARN:
            raise ValueError(f"'{name}' cannot be a warning: only {', '.join(MAY_WARN)} can")
    return names


class Quality(BaseModel):
    """How rows are checked."""

    timestamp_floor: Day = Field(
        "1970-01-01",
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
        description="A transaction before this day (UTC) is quarantined.",
    )
    max_ahead: Duration = Field(
        timedelta(days=1), ge=timedelta(0), description="A transaction that is further in the future is quarantined."
    )
    max_amount: float = Field(
        1e12, gt=0, allow_inf_nan=False, description="A larger amount, in account currency, is not plausible."
    )
    warn: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_warnings)] = Field(
        ("amount_is_plausible",),
        description=f"Rules that only warn, with commas between: any of {', '.join(MAY_WARN)}.",
    )
