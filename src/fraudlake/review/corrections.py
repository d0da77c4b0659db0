"""Corrections: a verdict that overturns labels of earlier ones is asked for, if the lake needs two keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fraudlake.approvals import gate
from fraudlake.approvals.log import Proposal
from fraudlake.errors import FraudlakeError
from fraudlake.lake import chain
from fraudlake.review.event import Event
from fraudlake.tables import SILVER_TRANSACTIONS
from fraudlake.text.sql_text import one_of

if TYPE_CHECKING:
    from fraudlake.lake.store import Store

_OF_WRITING = ("event_id", "at", "number", "hash")
"""Fields of an event that it gets when it is written."""


@dataclass(frozen=True)
class Correction:
    """An event on an item, and the labels of its transactions before and after it."""

    event: Event
    before: dict[str, str | None]
    after: dict[str, str | None]

    @classmethod
    def of(cls, events: Iterable[Event], event: Event) -> Correction:
        """Compare an event with earlier ones, of all items, on its transactions."""
        before = labels(events, event.transaction_ids)
        return cls(event, before, {**before, **_words(event)} if event.is_label else before)

    @property
    def overturns(self) -> bool:
        """Whether a payment that was decided as fraud or genuine gets another label, or none."""
        return any(was is not None and self.after[name] != was for name, was in self.before.items())


def labels(events: Iterable[Event], transactions: Sequence[str]) -> dict[str, str | None]:
    """Return what events say of transactions: fraud, genuine, or None if no label counts."""
    verdicts: dict[str, str | None] = {}
    said: set[tuple[str, str]] = set()
    for event in events:
        if not event.is_label:
            continue
        for name, word in _words(event).items():
            # Unsure of one item takes no label of another one back.
            if word is not None or (event.item_id, name) in said:
                verdicts[name] = word
                said.add((event.item_id, name))
    return {name: verdicts.get(name) for name in transactions}


def _words(event: Event) -> dict[str, str | None]:
    return {
        name: None if is_fraud is None else "fraud" if is_fraud else "genuine"
        for name, is_fraud in event.labels.items()
    }


def ask(store: Store, correction: Correction) -> FraudlakeError:
    """Ask a second person for a correction; return the error that says that it waits, or why it cannot be made."""
    event = correction.event
    content = {name: value for name, value in json.loads(chain.as_json(event)).items() if name not in _OF_WRITING}
    accounts = {event.account_id, *_accounts(store, event.transaction_ids)}
    subject = f"{event.kind} verdict on {event.item_id}"
    proposal = Proposal("correction", subject, correction.before, correction.after, content, sorted(accounts))
    try:
        gate.require(store, proposal, event.analyst, event.reason)
    except FraudlakeError as waits:
        return waits
    raise AssertionError("one key is enough")


def _accounts(store: Store, transactions: Sequence[str]) -> list[str]:
    silver = SILVER_TRANSACTIONS
    of_ids = f"SELECT DISTINCT account_id FROM {silver.name} WHERE {one_of('transaction_id', transactions)}"
    return [str(name) for name in store.query(of_ids, silver)["account_id"].to_pylist()]


def event_of(arguments: dict[str, Any], **fields: Any) -> Event:
    """Return the event of a request, with the fields that it gets when it is written."""
    return chain.from_json(Event, json.dumps(arguments), **fields)
