"""Plain rules: what rules of every kind raise, as a person would write it. Nothing of the package is used."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from tests import oracle
from tests.oracle import SECOND, Row

Alert = tuple[tuple[int, ...], str]
"""The positions of its rows, of a threshold's only that of the last one; and what the rule computed, as a text."""

OF_EARLIER = ("last", "changed", "is_first", "seconds_since_first", "seconds_since_last", "ratio_to_mean", "z_score")


def alerts(fields: dict[str, Any], rows: Iterable[Row]) -> Iterator[Alert]:
    """Evaluate a rule over rows in the order of their evaluation.

    A pattern is ``A B C`` (growing amounts, the first one below ``small``) or ``SMALL{n,} LARGE``.

    Args:
        fields: the rule, as the settings have it.
        rows: rows of any accounts; ``position`` distinguishes them.
    """
    if fields["kind"] == "small_then_large":
        limits = fields["small_below"], fields["large_above"], _seconds(fields["within"]) * SECOND
        for small, large in oracle.alerts(rows, *limits):
            yield (small.position, large.position), text((large.time - small.time) / SECOND)
        return
    by_account = defaultdict(list)
    for row in rows:
        by_account[row.account_id].append(row)
    for own in by_account.values():
        if fields["kind"] == "threshold":
            yield from _threshold(fields, own)
        elif fields["pattern"] == "A B C":
            yield from _growing(_number(fields["define"]["A"]), own)
        else:
            yield from _probe(fields, own)


def _threshold(fields: dict[str, Any], own: list[Row]) -> Iterator[Alert]:
    """Yield the rows beyond the limit; a condition is ``amount > NUMBER``."""
    if "where" in fields and fields["aggregate"] != "share":
        own = [row for row in own if row.amount > _number(fields["where"])]
    begin = end = 0
    for number, row in enumerate(own):
        size, unit = fields["window"].split()
        if not unit.startswith("transaction"):
            while own[begin].time < row.time - _seconds(fields["window"]) * SECOND:
                begin += 1
            while end < len(own) and own[end].time <= row.time:
                end += 1
        else:
            begin, end = max(0, number + 1 - int(size)), number + 1
        if fields["aggregate"] in OF_EARLIER:
            total = _compared(fields, row, own[begin:number])
        else:
            total = _aggregate(fields, [other.amount for other in own[begin:end]])
        if total is not None and (total > fields["above"] if "above" in fields else total < fields["below"]):
            yield (row.position,), text(total)


def _aggregate(fields: dict[str, Any], amounts: list[float]) -> float | None:
    """Aggregate all rows of a window."""
    match fields["aggregate"]:
        case "count":
            return len(amounts)
        case "sum":
            return sum(amounts)
        case "max":
            return max(amounts)
        case "distinct":
            return len(set(amounts))
        case "share":
            return sum(amount > _number(fields["where"]) for amount in amounts) / len(amounts)
        case "quantile":
            return sorted(amounts)[math.ceil(Fraction(str(fields["quantile"])) * len(amounts)) - 1]
        case "stddev":
            return _deviation(_numbers(fields, amounts))
    raise ValueError(fields["aggregate"])


def _compared(fields: dict[str, Any], row: Row, earlier: list[Row]) -> float | None:
    """Compare a row with those of its window before it."""
    aggregate = fields["aggregate"]
    if aggregate == "is_first":
        return not earlier
    if not earlier:
        return None
    match aggregate:
        case "last":
            return earlier[-1].amount
        case "changed":
            return earlier[-1].amount != row.amount
        case "seconds_since_first":
            return (row.time - earlier[0].time) / SECOND
        case "seconds_since_last":
            return (row.time - earlier[-1].time) / SECOND
    amounts = [other.amount for other in earlier]
    if aggregate == "ratio_to_mean":
        mean = statistics.mean(amounts)
        return row.amount / mean if mean else None
    own = _numbers(fields, [row.amount])
    values = _numbers(fields, amounts)
    deviation = _deviation(values)
    return (own[0] - statistics.mean(values)) / deviation if own and deviation else None


def _deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _numbers(fields: dict[str, Any], amounts: list[float]) -> list[float]:
    """Return the amounts, or the logarithms of those that have one, in millionths."""
    if not fields.get("logarithm"):
        return amounts
    return [round(math.log(amount), 6) for amount in amounts if amount > 0]


def _growing(small: float, own: list[Row]) -> Iterator[Alert]:
    for first, second, third in zip(own, own[1:], own[2:], strict=False):
        if first.amount < small and first.amount < second.amount < third.amount:
            yield (first.position, second.position, third.position), "3"


def _probe(fields: dict[str, Any], own: list[Row]) -> Iterator[Alert]:
    """Yield runs of small rows right before a large one, as many as WITHIN allows; none of a match begins another."""
    least, within = int(fields["pattern"].partition("{")[2][0]), _seconds(fields["within"]) * SECOND
    small, large = (_number(fields["define"][name]) for name in ("SMALL", "LARGE"))
    not_before = 0
    for number, row in enumerate(own):
        if row.amount > large:
            first = number
            while first > not_before and own[first - 1].amount < small and row.time - own[first - 1].time < within:
                first -= 1
            if number - first >= least:
                yield tuple(other.position for other in own[first : number + 1]), text(number - first)
                not_before = number + 1


def _number(condition: str) -> float:
    """Return the number that ends a condition."""
    return float(condition.rpartition(" ")[2])


def _seconds(duration: str) -> int:
    number, unit = duration.split()
    return int(number) * {"s": 1, "minutes": 60}[unit]


def text(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
