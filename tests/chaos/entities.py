"""Entities: what the lakes of the harness declare, and what their rules and features by entity must say.

Nothing of the package is used.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.detection import plain_rules
from tests.oracle import MINUTE, Row

COLUMNS = {"merchant_id": {"from": "merchantId", "type": "string"}}
ENTITIES: dict[str, Any] = {"merchant": "merchant_id", "account_at_merchant": ["account_id", "merchant_id"]}
FEATURES = [
    {"name": "merchant_count", "entity": "merchant", "aggregate": "count", "window": "1 hour"},
    {"name": "merchant_fraud", "entity": "merchant", "aggregate": "fraud_count", "window": "6 hours"},
    {
        "name": "merchant_accounts",
        "entity": "merchant",
        "aggregate": "distinct",
        "column": "account_id",
        "window": "1 hour",
    },
    {
        "name": "spent_there",
        "entity": "account_at_merchant",
        "aggregate": "sum",
        "column": "amount",
        "window": "90 days",
    },
]
RULES = """
[[rules]]
kind = "small_then_large"
name = "merchant_pair"
entity = "merchant"
small_below = 1.0
large_above = 500.0
within = "60 s"

[[rules]]
kind = "threshold"
name = "dear"
entity = "account_at_merchant"
aggregate = "sum"
window = "3 transactions"
above = 1000

[[rules]]
kind = "pattern"
name = "probe"
entity = "merchant"
pattern = "SMALL{2,} LARGE"
define = { SMALL = "SMALL.amount < 1", LARGE = "LARGE.amount > 500" }
within = "3 minutes"
skip = "PAST LAST ROW"
"""


class Paid(NamedTuple):
    """A valid transaction; ``label`` is Flink's verdict."""

    row: Row
    merchant: str | None
    label: bool

    def key(self, entity: str) -> str | tuple[str, str] | None:
        """Its key; None if it has none."""
        if self.merchant is None or entity == "merchant":
            return self.merchant
        return self.row.account_id, self.merchant


class Alert(NamedTuple):
    """An alert: its rule, its key, the number of the row that completed it and its evidence."""

    rule: str
    key: str | tuple[str, str] | None
    evidence: tuple[Row, ...]
    """Its rows, of a threshold only the last one."""


def alerts(paid: list[Paid]) -> Iterator[Alert]:
    """Evaluate :data:`RULES` over transactions in the order of their evaluation."""
    for fields in tomllib.loads(RULES)["rules"]:
        keys = [one.key(fields["entity"]) for one in paid]
        rows = [
            one.row._replace(account_id=key, position=number)
            for number, (one, key) in enumerate(zip(paid, keys, strict=True))
            if key is not None
        ]
        for numbers, _ in plain_rules.alerts(fields, rows):
            yield Alert(fields["name"], keys[numbers[-1]], tuple(paid[number].row for number in numbers))


def features(paid: Iterable[Paid]) -> Iterator[tuple[Any, ...]]:
    """Return source, position and :data:`FEATURES` of transactions in the order of event time."""
    before: dict[Any, list[Paid]] = defaultdict(list)
    for one in paid:
        row, merchant, pair = one.row, one.key("merchant"), one.key("account_at_merchant")
        place = row.source, row.position
        if merchant is None:
            yield *place, None, None, None, None
            continue
        hour, six_hours = since(before[merchant], row, MINUTE, 60), since(before[merchant], row, 10 * MINUTE, 36)
        accounts = {other.row.account_id for other in hour}
        spent = round(sum(other.row.amount for other in before[pair]), 4)
        yield *place, len(hour), sum(other.label for other in six_hours), len(accounts), spent
        before[merchant].append(one)
        before[pair].append(one)


def since(earlier: list[Paid], row: Row, tile: int, tiles: int) -> list[Paid]:
    """Return those in the window of a row: so many tiles of so many microseconds, that of the row included."""
    begin = (row.time // tile - tiles + 1) * tile
    return [one for one in earlier if one.row.time >= begin]
