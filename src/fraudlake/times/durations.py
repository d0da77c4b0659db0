"""Durations: parses and formats time spans such as ``10 seconds``, and windows of a time span or of transactions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_LONGEST = timedelta(days=36_500)
_SECONDS = {"ms": 0.001, "millisecond": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60}
_SECONDS |= {"h": 3600, "hour": 3600, "d": 86400, "day": 86400}


def _duration(value: object) -> object:
    """Read ``"10 seconds"``, ``"500 ms"`` or a bare number of seconds."""
    if isinstance(value, timedelta):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(value).lower())
    unit = (match[2] or "s") if match else ""
    seconds = _SECONDS.get(unit) or _SECONDS.get(unit.removesuffix("s"))
    if match is None or seconds is None:
        raise ValueError("must be a duration such as '10 seconds', '500 ms' or '2 hours'")
    if float(match[1]) * seconds > _LONGEST.total_seconds():
        raise ValueError(f"must not be longer than {_LONGEST.days} days")
    return timedelta(seconds=float(match[1]) * seconds)


def _window(value: object) -> object:
    """Read a duration or ``"20 transactions"``; a bare number could mean seconds or transactions."""
    if isinstance(value, timedelta) and value > timedelta(0):
        return value
    window = str(value).strip()
    if match := re.fullmatch(r"([1-9]\d{0,8}) transactions?", window):
        return int(match[1])
    if re.fullmatch(r"[\d.]*[1-9][\d.]*\s*[A-Za-z]+", window):
        return _duration(window)
    raise ValueError("must be a duration such as '10 minutes', or a number such as '20 transactions'")


def microseconds(duration: timedelta) -> int:
    """Return a time span in whole microseconds."""
    return duration // timedelta(microseconds=1)


def text(duration: timedelta) -> str:
    """Format a time span as a person would write it, such as ``10 seconds``."""
    for unit in ("day", "hour", "minute"):
        number, rest = divmod(duration, timedelta(seconds=_SECONDS[unit]))
        if number and not rest:
            return f"{number} {unit}{'s' * (number > 1)}"
    return f"{duration.total_seconds():g} second{'s' * (duration != timedelta(seconds=1))}"


def _text(duration: timedelta) -> str:
    return f"{duration.total_seconds():f}".rstrip("0").rstrip(".") + " s"


def _window_text(window: timedelta | int) -> str:
    return _text(window) if isinstance(window, timedelta) else f"{window} transaction{'s' * (window > 1)}"


Duration = Annotated[timedelta, BeforeValidator(_duration), PlainSerializer(_text)]
Window = Annotated[timedelta | int, BeforeValidator(_window), PlainSerializer(_window_text)]
"""A duration, or a number of transactions."""
