"""Rule candidates: proposes thresholds from the columns and entities of a lake, without their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.entity import ACCOUNT
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.text import sql_text

if TYPE_CHECKING:
    from fraudlake.settings import Settings

_COUNTS = ("10 minutes", "1 hour", "1 day", "7 days")
_SUMS = ("1 hour", "1 day", "7 days")
_RATIOS = ("1 minute", "1 hour", "7 days", "30 days")
_OTHERS = ("1 hour", "1 day", "7 days")
_HABIT = "30 days"
_ONE = "1 transaction"
_NIGHT = "HOUR(dt) < 6"
WHOLE = ("count", "distinct", "is_first", "changed")
"""The aggregates that are whole numbers."""

Fields = dict[str, Any]


def candidates(settings: Settings, values: Mapping[str, Sequence[str]], large: float) -> list[ThresholdRule]:
    """Propose thresholds above 0; those of ``seconds_since_last`` are below.

    Args:
        settings: the columns and entities of the lake, and how long it keeps transactions.
        values: values of text columns that may make a condition.
        large: the amount from which an amount is large.
    """
    is_large = f"amount >= {large:g}"
    conditions = [_NIGHT, is_large, *_conditions(settings, values)]
    rules = [_rule(ACCOUNT, {"aggregate": "max", "window": _ONE, "where": where}) for where in (None, *conditions)]
    named = dict.fromkeys(["account_id", *keys(settings), *categories(settings)])
    for entity in (ACCOUNT, *settings.entities):
        key = settings.entity_columns(entity)
        others = [name for name in named if name not in key]
        rules += [_rule(entity, fields) for fields in _vary(others, is_large, conditions)]
    retention = settings.row_retention.get(tables.SILVER_TRANSACTIONS.name, timedelta.max)
    return [rule for rule in rules if (rule.duration or timedelta(0)) <= retention]


def _rule(entity: str, fields: Fields) -> ThresholdRule:
    limit = "below" if fields["aggregate"] == "seconds_since_last" else "above"
    return ThresholdRule.model_validate({"name": "candidate", "entity": entity, limit: 0, **fields})


def keys(settings: Settings) -> list[str]:
    """Return the columns of the keys of entities."""
    return list(dict.fromkeys(name for entity in settings.entities for name in settings.entity_columns(entity)))


def categories(settings: Settings) -> list[str]:
    """Return the text columns that belong to no key."""
    of_keys = keys(settings)
    return [name for name, column in settings.columns.items() if column.type == "string" and name not in of_keys]


def _conditions(settings: Settings, values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield conditions on the values of columns."""
    for name, column in settings.columns.items():
        if column.type == "boolean":
            yield sql_text.name(name)
        for value in values.get(name, ()):
            quoted = value.replace("'", "''")
            yield f"{sql_text.name(name)} = '{quoted}'"


def _vary(others: Sequence[str], is_large: str, conditions: Sequence[str]) -> Iterator[Fields]:
    for window in _COUNTS:
        for where in (None, "amount < 3", is_large):
            yield {"aggregate": "count", "window": window, "where": where}
    for window in _SUMS:
        yield {"aggregate": "sum", "window": window}
    for window in _RATIOS:
        yield {"aggregate": "ratio_to_mean", "window": window}
    yield {"aggregate": "z_score", "window": _HABIT, "logarithm": True}
    yield {"aggregate": "mean", "window": "1 hour"}
    yield {"aggregate": "seconds_since_last", "window": "1 day"}
    for where in conditions:
        yield {"aggregate": "share", "window": "7 days", "where": where}
        yield {"aggregate": "is_first", "window": _HABIT, "where": where}
    for other in others:
        for window in _OTHERS:
            yield {"aggregate": "distinct", "column": other, "window": window}
        for where in (None, is_large):
            yield {"aggregate": "changed", "column": other, "window": _HABIT, "where": where}
