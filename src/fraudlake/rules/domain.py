"""Domain: the values that a column may have, so that conditions can be compared without any rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

Value = float | int | str | bool
Kind = Literal["number", "whole", "text", "boolean", "opaque"]

OTHER = "other"
"""The text of an example that may be any text but some."""


@dataclass(frozen=True)
class Domain:
    """Values of a column: those of an interval, or of a set, without some; and perhaps null, and NaN.

    An ``opaque`` one has the results of a condition that is not looked into: True, False and null.
    """

    kind: Kind
    is_null: bool = True
    """Whether null is among them."""
    is_nan: bool = False
    low: float = -math.inf
    high: float = math.inf
    is_low_open: bool = True
    """Whether the interval begins after ``low``."""
    is_high_open: bool = True
    included: frozenset[Value] | None = None
    """The only values; None: any."""
    excluded: frozenset[Value] = frozenset()

    @classmethod
    def whole(cls, kind: Kind) -> Domain:
        """Return all values of a kind."""
        included = frozenset({True, False}) if kind in ("boolean", "opaque") else None
        return cls(kind, is_nan=kind == "number", included=included)

    @property
    def has_values(self) -> bool:
        """Whether it has a value that is neither null nor NaN."""
        return self.example() is not None

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing at all."""
        return not (self.is_null or self.is_nan or self.has_values)

    def both(self, other: Domain) -> Domain:
        """Return what is in both."""
        low, is_low_open = max((self.low, self.is_low_open), (other.low, other.is_low_open))
        high, is_not_open = min((self.high, not self.is_high_open), (other.high, not other.is_high_open))
        sets = [one.included for one in (self, other) if one.included is not None]
        return replace(
            self,
            is_null=self.is_null and other.is_null,
            is_nan=self.is_nan and other.is_nan,
            low=low,
            is_low_open=is_low_open,
            high=high,
            is_high_open=not is_not_open,
            included=frozenset.intersection(*sets) if sets else None,
            excluded=self.excluded | other.excluded,
        )

    def example(self) -> Value | None:
        """Return one of its values, neither null nor NaN; None if it has none."""
        if self.included is not None:
            left = sorted((one for one in self.included - self.excluded if self._is_within(one)), key=str)
            return left[0] if left else None
        if self.kind == "text":
            return next(text for n in range(len(self.excluded) + 1) if (text := OTHER + "_" * n) not in self.excluded)
        if self.kind == "whole":
            return self._whole_example()
        return self._number_example()

    def _whole_example(self) -> int | None:
        first = None
        last = None
        if math.isfinite(self.low):
            first = math.floor(self.low) + 1 if self.is_low_open else math.ceil(self.low)
        if math.isfinite(self.high):
            last = math.ceil(self.high) - 1 if self.is_high_open else math.floor(self.high)
        if first is None:
            first = 0 if last is None else min(last, 0) - len(self.excluded)
        tried = range(first, first + len(self.excluded) + 1)
        left = (number for number in tried if number not in self.excluded and (last is None or number <= last))
        return next(left, None)

    def _number_example(self) -> float | None:
        if self.low > self.high or (self.low == self.high and (self.is_low_open or self.is_high_open)):
            return None
        if self.low == self.high:
            return None if self.low in self.excluded else self.low
        # More candidates than values that are excluded.
        low, high = self.low, self.high
        if not math.isfinite(low):
            low = min(high, 0.0) - 1.0 if math.isfinite(high) else 0.0
        if not math.isfinite(high):
            high = max(low, 0.0) + 1.0
        parts = len(self.excluded) + 2
        tried = [low + (high - low) * part / parts for part in range(1, parts)]
        left = (number for number in (*tried, *self._next_numbers()) if number not in self.excluded)
        return next((number for number in left if math.isfinite(number) and self._is_within(number)), None)

    def _next_numbers(self) -> Iterator[float]:
        """Return the numbers next to a limit, one more than are excluded: huge or close limits have none between."""
        start, end = (self.low, math.inf) if math.isfinite(self.low) else (self.high, -math.inf)
        number = float(start)
        for _ in range(len(self.excluded) + 2):
            yield number
            number = math.nextafter(number, end)

    def _is_within(self, value: Value) -> bool:
        if isinstance(value, str | bool):
            return True
        if self.kind == "whole" and value != math.floor(value):
            return False
        is_above = value >= self.low if not self.is_low_open else value > self.low
        is_below = value <= self.high if not self.is_high_open else value < self.high
        return is_above and is_below
