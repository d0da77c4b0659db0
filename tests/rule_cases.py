"""Cases of rules: transactions of an account and the alerts that every engine raises on them, written by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.oracle import SECOND, Row


class Case(NamedTuple):
    """A rule over an account's transactions, which come in the order of their time."""

    name: str
    rule: dict[str, Any]
    transactions: list[tuple[float, float]]
    """Seconds and amount of each."""
    alerts: list[tuple[int, ...]]
    """The numbers of an alert's transactions; the last one completed it."""

    def rows(self, begin: int = 0, count: int | None = None) -> list[Row]:
        """Return the first transactions, from a time (microseconds) on, as an account of the case's name."""
        return [
            Row(self.name, begin + round(second * SECOND), amount, position=number)
            for number, (second, amount) in enumerate(self.transactions[:count])
        ]


PAIR = {"kind": "small_then_large", "name": "pair", "small_below": 1.0, "large_above": 500.0, "within": "60 s"}


def _threshold(aggregate: str, **further: Any) -> dict[str, Any]:
    kind = "few" if "transaction" in further["window"] else "last"
    return {"kind": "threshold", "name": f"{aggregate}_of_{kind}", "aggregate": aggregate, **further}


PAIRS = [
    Case("small then large", PAIR, [(0, 0.09), (30, 510)], [(0, 1)]),
    Case("large then small", PAIR, [(0, 510), (30, 0.09)], []),
    Case("one between clears the flag", PAIR, [(0, 0.02), (5, 91.5), (10, 701.83)], []),
    Case("1.00 is not small", PAIR, [(0, 1.0), (1, 600)], []),
    Case("500.00 is not large", PAIR, [(0, 0.5), (1, 500.0)], []),
    Case("next to both limits", PAIR, [(0, 0.99), (1, 500.01)], [(0, 1)]),
    Case("exactly within", PAIR, [(0, 0.5), (60, 600)], [(0, 1)]),
    Case("a millisecond more", PAIR, [(0, 0.5), (60.001, 600)], []),
    Case("at the same time", PAIR, [(0, 0.5), (0, 600)], [(0, 1)]),
    Case("a small one takes the place of a small one", PAIR, [(0, 0.5), (50, 0.6), (100, 600)], [(1, 2)]),
    Case("a large one clears the flag", PAIR, [(0, 0.5), (1, 600), (2, 700)], [(0, 1)]),
    Case("two pairs", PAIR, [(0, 0.5), (1, 600), (2, 0.5), (3, 600)], [(0, 1), (2, 3)]),
]
COUNT = _threshold("count", window="60 s", above=2)
WINDOWS = [
    Case("more than the limit", COUNT, [(0, 5), (1, 5), (2, 5), (3, 5)], [(0, 1, 2), (0, 1, 2, 3)]),
    Case("exactly as far back", COUNT, [(0, 5), (30, 5), (60, 5)], [(0, 1, 2)]),
    Case("a millisecond further back", COUNT, [(0, 5), (30, 5), (60.001, 5)], []),
    Case("of the same time", COUNT, [(0, 5), (1, 5), (1, 5)], [(0, 2, 1), (0, 1, 2)]),
    Case("sum", _threshold("sum", window="60 s", above=0.6), [(0, 0.1), (1, 0.2), (2, 0.3), (3, 0.1)], [(0, 1, 2, 3)]),
    Case("mean", _threshold("mean", window="60 s", below=5), [(0, 5), (1, 4)], [(0, 1)]),
    Case("min", _threshold("min", window="60 s", below=1), [(0, 1.0), (1, 0.99), (61.001, 3)], [(0, 1)]),
    Case("max", _threshold("max", window="60 s", above=500), [(0, 500.0), (1, 501)], [(0, 1)]),
    Case("distinct", _threshold("distinct", window="60 s", above=1), [(0, 5), (1, 5), (2, 6)], [(0, 1, 2)]),
    Case(
        "quantile",
        _threshold("quantile", quantile=0.5, window="60 s", above=5),
        [(0, 5), (1, 6), (2, 6), (3, 5)],
        [(0, 1, 2)],
    ),
    Case(
        "last", _threshold("last", window="60 s", below=1), [(0, 0.5), (1, 0.5), (2, 7), (63, 1)], [(0, 1), (0, 1, 2)]
    ),
    Case("changed", _threshold("changed", window="60 s", above=0), [(0, 5), (1, 6), (2, 6), (63, 7)], [(0, 1)]),
    Case(
        "not changed",
        _threshold("changed", name="unchanged", window="60 s", below=1),
        [(0, 5), (1, 6), (2, 6), (63, 6)],
        [(0, 1, 2)],
    ),
    Case("first", _threshold("is_first", window="60 s", above=0), [(0, 5), (60, 5), (121, 5)], [(0,), (2,)]),
    Case(
        "seconds since the first",
        _threshold("seconds_since_first", window="60 s", above=59),
        [(0, 5), (59, 5), (60, 5), (120, 5), (181, 5)],
        [(0, 1, 2), (2, 3)],
    ),
    Case(
        "seconds since the last",
        _threshold("seconds_since_last", window="60 s", below=0.5),
        [(0, 5), (1, 5), (1.499, 5), (62, 5)],
        [(0, 1, 2)],
    ),
    Case(
        "ratio to the mean",
        _threshold("ratio_to_mean", window="60 s", above=3),
        [(0, 2), (1, 4), (2, 9), (3, 15.1)],
        [(0, 1, 2, 3)],
    ),
]
COUNTED = [
    Case("last few", _threshold("sum", window="2 transactions", above=9), [(0, 5), (9000, 5), (9001, 1)], [(0, 1)]),
    Case(
        "first few", _threshold("mean", window="3 transactions", below=5), [(0, 4), (1, 7), (2, 1)], [(0,), (0, 1, 2)]
    ),
]
"""Windows of so many transactions, which may be of any age."""
EXACT = [
    Case("stddev", _threshold("stddev", window="60 s", below=1.5), [(0, 5), (1, 7), (2, 6)], [(0, 1), (0, 1, 2)]),
    Case("z-score", _threshold("z_score", window="60 s", above=2), [(0, 5), (1, 7), (2, 9), (3, 11)], [(0, 1, 2)]),
    Case(
        "z-score of logarithms",
        _threshold("z_score", logarithm=True, window="4 transactions", above=2),
        [(0, 1), (1, 10), (2, 100), (3, 500), (4, 100_000), (5, 1)],
        [(0, 1, 2), (1, 2, 3, 4)],
    ),
    Case(
        "share",
        _threshold("share", where="amount > 9", window="60 s", above=0.5),
        [(0, 5), (1, 10), (2, 10), (3, 5), (4, 10)],
        [(0, 1, 2), (0, 1, 2, 3, 4)],
    ),
    Case(
        "first of a condition",
        _threshold("is_first", where="amount > 9", window="60 s", above=0),
        [(0, 5), (1, 10), (2, 10), (3, 5)],
        [(1,)],
    ),
    Case("first of the same time", _threshold("is_first", window="60 s", above=0), [(0, 5), (0, 6)], [(1, 0)]),
    Case(
        "last of the same time",
        _threshold("last", window="60 s", above=5),
        [(0, 5), (1, 6), (1, 7), (1, 8)],
        [(0, 1, 3, 2), (0, 1, 2, 3)],
    ),
]
"""What the fast lane does not run, or sees a row at a time."""
CASES = [*PAIRS, *WINDOWS, *COUNTED]
