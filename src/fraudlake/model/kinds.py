"""Kinds of fraud: counts how many frauds of each kind a version learned, and how many of the later ones it finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fraudlake import tables
from fraudlake.model.history import account_numbers
from fraudlake.rules.kinds.model import ModelRule

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.model.classifier import Classifier
    from fraudlake.model.history import Rows
    from fraudlake.model.metrics import Flags

Alerted = Mapping[tuple[int, int], frozenset[str]]
"""The rules that alert on payments, by the number of the account and the time in microseconds."""
_NO_RULE = "no rule, "


@dataclass(frozen=True)
class Kind:
    """Frauds that a rule alerts on, or that no rule alerts on and that have the same strongest reason.

    ``learned`` are those before the test days, and ``tested`` those on them, of which ``found`` are reviewed within
    the budget.
    """

    name: str
    learned: int
    tested: int
    found: int

    @property
    def is_new(self) -> bool:
        """Whether it appeared after the training."""
        return not self.learned


def count_kinds(
    earlier: Iterable[Rows], tested: Rows, reviewed: Flags, classifier: Classifier, alerted: Alerted
) -> list[Kind]:
    """Count the frauds of each kind that the test rows have, the most frequent first.

    A fraud on which several rules alert counts for each of them.

    Args:
        earlier: the rows that the version learned from.
        tested: the test rows.
        reviewed: which of the test rows are reviewed within the budget.
        classifier: the version's classifier, fitted without the test rows.
        alerted: the rules that alert on payments.
    """
    learned: Counter[str] = Counter()
    for rows in earlier:
        learned.update(kind for _, kind in _named(rows, classifier, alerted))
    in_test: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    for row, kind in _named(tested, classifier, alerted):
        in_test[kind] += 1
        hits[kind] += int(reviewed[row])
    return [Kind(name, learned[name], number, hits[name]) for name, number in in_test.most_common()]


def read_alerted(lake: Lake) -> Alerted:
    """Read which rules alert on payments; rules of scores do not count, as they repeat what the model found."""
    alerts = lake.store.query(
        f"SELECT DISTINCT rule, account_id, timestamp FROM {tables.SILVER_ALERTS.name} "
        f"WHERE kind <> '{ModelRule.model_fields['kind'].default}'",
        tables.SILVER_ALERTS,
    )
    accounts = account_numbers(alerts["account_id"]).to_pylist()
    times = alerts["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    alerted: dict[tuple[int, int], frozenset[str]] = {}
    for account, time, rule in zip(accounts, times, alerts["rule"].to_pylist(), strict=True):
        alerted[account, time] = alerted.get((account, time), frozenset()) | {rule}
    return alerted


def _named(rows: Rows, classifier: Classifier, alerted: Alerted) -> Iterator[tuple[int, str]]:
    """Yield the index and the kinds of each fraud."""
    frauds = np.flatnonzero(rows.fraud == 1)
    features = rows.matrix(classifier.features, classifier.encodings)[frauds]
    strongest = classifier.contributions(features)[:, :-1].argmax(axis=1) if len(frauds) else frauds
    for row, feature in zip(frauds, strongest, strict=True):
        rules = alerted.get((int(rows.account[row]), int(rows.time[row])), frozenset())
        for kind in sorted(rules) or [_NO_RULE + classifier.features[feature]]:
            yield int(row), kind
