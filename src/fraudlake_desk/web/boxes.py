"""Boxes: the first payments of an item have a box each in the form of a verdict, and all others share one or two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fraudlake_desk.web.errors import PageError
from fraudlake_desk.web.names import sha256

MOST = 500
"""Payments that have a box each: a case may have more than a form has fields, and a page of 13,000 would be 3 MB."""


@dataclass(frozen=True)
class Shared:
    """A box for several payments."""

    value: str
    """What the form sends: their positions among the payments of the item, and the hash of the ids of all of these."""
    payments: int
    is_marked: bool


def shared(payments: Sequence[Mapping[str, Any]]) -> list[Shared]:
    """Return the boxes that the payments after the first share, by ``is_marked``.

    Args:
        payments: all payments of the item, ``transaction_id, is_marked``, in an order that does not depend on marks.
    """
    hash_ = _hash(row["transaction_id"] for row in payments)
    rest = range(MOST, len(payments))
    by_mark = {mark: [at for at in rest if payments[at]["is_marked"] is mark] for mark in (True, False)}
    return [Shared(f"{_spans(places)} {hash_}", len(places), mark) for mark, places in by_mark.items() if places]


def ids(value: str, payments: Sequence[str]) -> list[str]:
    """Return the ids of the payments of a box.

    Args:
        value: what the form sends.
        payments: the ids of all payments of the item, in the order of :func:`shared`.

    Raises:
        PageError: the item has other payments than when the page was made, or this is no such value.
    """
    spans, _, hash_ = value.partition(" ")
    if hash_ != _hash(payments):
        raise PageError("its payments have changed since this page was made: load it again")
    chosen: list[str] = []
    end = 0
    try:
        for span in spans.split(","):
            first, last = map(int, span.split("-"))
            if not end <= first <= last:
                raise ValueError(span)
            end = last + 1
            chosen += payments[first:end]
    except ValueError:
        raise PageError("this is not a form of the desk") from None
    return chosen


def _hash(ids: Iterable[str]) -> str:
    return sha256("\n".join(ids))


def _spans(places: list[int]) -> str:
    """Return ascending numbers as spans, such as ``500-503,507-507``."""
    runs = [[at for _, at in run] for _, run in groupby(enumerate(places), key=lambda one: one[1] - one[0])]
    return ",".join(f"{run[0]}-{run[-1]}" for run in runs)
