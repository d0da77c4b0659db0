"""Features: declares the figures of a transaction that models learn from, and lists those that every lake has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter, model_serializer

from fraudlake.entity import ACCOUNT
from fraudlake.times import durations

PLACEHOLDER = r"\{(?::\.\df)?\}"
"""The pattern of the placeholder for the value in a text: ``{}``, or ``{:.1f}`` for a decimal."""
_SIZES = (86_400, 3600, 600, 60, 1)
"""The lengths of tiles, in seconds."""
_LEAST_TILES = 24
EVER = timedelta(days=6_000_000)
"""The window of all transactions before: two tiles, which meet in 1970 and have room for every year that a lake can."""
_DURATION: TypeAdapter[timedelta] = TypeAdapter(durations.Duration)


def _window_of(value: object) -> timedelta:
    """Read ``"ever"`` or a duration."""
    return EVER if value == "ever" else _DURATION.validate_python(value)


def _window_text(window: timedelta) -> str:
    return "ever" if window == EVER else str(_DURATION.dump_python(window))


FeatureWindow = Annotated[timedelta, BeforeValidator(_window_of), PlainSerializer(_window_text)]
"""The length of a window: a duration such as ``"7 days"``, or ``"ever"``."""


class Feature(BaseModel):
    """A figure of an entity's earlier transactions, or a value of the transaction itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    entity: str = ACCOUNT
    aggregate: str | None = None
    """What is computed from the transactions of the window; None for an expression."""
    expression: str | None = None
    """SQL that computes the feature from other features, from columns, and from the time of the transaction."""
    column: str | None = None
    where: str | None = None
    """A condition in SQL; other transactions are not counted. A ``share`` counts those that fulfil it among all."""
    logarithm: bool = False
    """Whether a deviation is that of the logarithm of the values."""
    quantile: float | None = Field(default=None, gt=0, lt=1)
    """The share of the values that are not above a ``quantile``."""
    window: FeatureWindow | None = Field(default=None, gt=timedelta(0))
    """The length of the window of transactions that are counted."""
    delay: durations.Duration = Field(default=timedelta(0), ge=timedelta(0))
    """How long before the transaction the window ends."""
    text: str | None = None
    """A sentence for explanations, with a :data:`PLACEHOLDER` for the value."""

    @model_serializer(mode="wrap")
    def _short(self, serialize: Callable[[Feature], dict[str, Any]]) -> dict[str, Any]:
        """Leave out fields with their defaults."""
        fields = type(self).model_fields
        return {name: value for name, value in serialize(self).items() if getattr(self, name) != fields[name].default}

    @property
    def size(self) -> int:
        """The length of its tiles in seconds: the largest that fits into the window at least 24 times."""
        window = self.window or timedelta(0)
        if window == EVER:
            return int(EVER.total_seconds()) // 2
        return next((size for size in _SIZES if window >= _LEAST_TILES * timedelta(seconds=size)), _SIZES[-1])

    @property
    def tiles(self) -> int:
        """The number of tiles from the end of its delay to the beginning of its window."""
        size = timedelta(seconds=self.size)
        return -(-(self.window or timedelta(0)) // size) - (-self.delay // size)

    @property
    def meaning(self) -> str:
        """A short description."""
        if self.expression is not None:
            return " ".join(self.expression.split())
        what = f"{self.aggregate}"
        if self.quantile is not None:
            what = f"{self.quantile:g} {what}"
        if self.column is not None:
            what = f"{what} of {'the logarithm of ' if self.logarithm else ''}{self.column}"
        if self.window is None:
            return what
        within = "ever" if self.window == EVER else f"in {durations.text(self.window)}"
        delayed = f", up to {durations.text(self.delay)} before it" if self.delay else ""
        condition = f" where {' '.join(self.where.split())}" if self.where else ""
        return f"{what} of its {self.entity}{condition} {within}{delayed}"

    @property
    def sentence(self) -> str:
        """Its text, or one generated from its meaning."""
        return self.text or f"the {self.meaning} is {{}}"


def _own(name: str, aggregate: str, text: str, column: str | None = None, window: timedelta | None = None) -> Feature:
    return Feature(name=name, aggregate=aggregate, column=column, window=window, text=text)


_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
OWN = (
    _own("amount", "value", "the amount is {:.2f}", "amount"),
    _own("hour_of_day", "hour", "it is in hour {:.0f} of the day (UTC)"),
    _own("previous_amount", "last", "the account's payment before it was {:.2f}", "amount", _DAY),
    _own(
        "seconds_since_previous",
        "seconds_since_last",
        "it comes {:.1f} s after the account's payment before it",
        window=_DAY,
    ),
    _own("count_minute", "count", "the account made {:.0f} payments in the minute before it", window=_MINUTE),
    _own("sum_minute", "sum", "the account paid {:.2f} in the minute before it", "amount", _MINUTE),
    _own("count_hour", "count", "the account made {:.0f} payments in the hour before it", window=_HOUR),
    _own("sum_hour", "sum", "the account paid {:.2f} in the hour before it", "amount", _HOUR),
    _own("count_day", "count", "the account made {:.0f} payments in the day before it", window=_DAY),
    _own("sum_day", "sum", "the account paid {:.2f} in the day before it", "amount", _DAY),
    _own("amount_to_usual", "ratio_to_usual", "the amount is {:.1f} times the account's usual amount", "amount"),
    _own("hours_from_usual", "hours_to_usual", "it is {:.1f} hours from the account's usual time of day"),
)
"""The features of every lake; ``features/account_features.py`` computes them, and docs/how-to/model.md defines each."""
