"""Event log: reads the events of ``silver_review_events``, and writes checked ones after all others.

A writer reads all earlier events, checks that its event is allowed after them, and gives it the next number. Delta
accepts one event per number (:meth:`fraudlake.lake.store.Store.insert_all`), so two analysts never hold the same item,
whatever their clocks say.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.approvals import gate
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import chain
from fraudlake.review import corrections
from fraudlake.review.corrections import Correction
from fraudlake.review.event import LABELS, Event
from fraudlake.review.item import Item
from fraudlake.review.item_state import State, state
from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake.text.counts import counted
from fraudlake.text.sql_text import one_of, value

if TYPE_CHECKING:
    from fraudlake.lake.store import Store

LONGEST = {"reason": 1_000, "note": 20_000, "analyst": 200, "assignee": 200}
"""The maximum lengths of the texts of an event, in characters."""
_LAST = f"SELECT max(number) FROM {SILVER_REVIEW_EVENTS.name}"
_FEW = 20_000
"""Up to this number of events (20 MB) are read at once and filtered in memory."""
_FEW_PAYMENTS = 100
"""Up to this number of payments a statement names them: 2,000 take 16 s, and 5,000 overflow the stack."""
_MATTERS = ("opened", "merged", "separated")


@dataclass(frozen=True)
class Wanted:
    """A request to write an event."""

    item: Item
    event_id: str
    """Id of the event: see :func:`new_id`."""
    make: Callable[[State], Event]
    """Makes the event of this id from the item's state, or raises an error if the state forbids it. It is called
    again if others write events in the meantime."""
    is_agreed: bool = False
    """Whether a second person has agreed to it, if it is a correction."""


def new_id() -> str:
    """Return the id for a new event; a repeated request must use the same id, so that it is written once."""
    return uuid.uuid4().hex


def record(
    store: Store, item: Item, event_id: str, make: Callable[[State], Event], now: datetime | None = None
) -> Event:
    """Write an event after all others, and return it: see :func:`record_all`.

    Raises:
        FraudlakeError: ``make`` refuses it, or concurrent writers won every attempt.
        UsageError: a text of the event is too long, or it names no analyst.
    """
    (outcome,) = record_all(store, [Wanted(item, event_id, make)], now)
    if isinstance(outcome, FraudlakeError):
        raise outcome
    return outcome


def record_all(store: Store, wanted: Sequence[Wanted], now: datetime | None = None) -> list[Event | FraudlakeError]:
    """Write events after all others, in one commit; an existing event with a wanted id is only returned.

    If the process is killed, either all or none are written, and a repetition with the same ids writes none twice. If
    others write in the meantime, each event is checked again. If the lake needs two keys, a correction is not written,
    but asked for (:mod:`fraudlake.review.corrections`).

    Args:
        store: the lake's tables.
        wanted: the events.
        now: the time; by default this machine's.

    Returns:
        For each request the written event, or the error that refuses it.

    Raises:
        FraudlakeError: concurrent writers won every attempt.
    """
    names = sorted({name for one in wanted for name in one.item.names})
    ids = [one.event_id for one in wanted]
    condition = f"{one_of('item_id', names)} OR {one_of('event_id', ids)} OR number = ({_LAST})"

    def is_needed(rows: pa.Table) -> pa.Array:
        is_last = pc.equal(rows["number"], pc.max(rows["number"]))
        return pc.or_(pc.or_(_is_in(rows["item_id"], names), _is_in(rows["event_id"], ids)), is_last)

    def propose() -> tuple[list[Event | FraudlakeError | Correction], pa.Table | None]:
        events = chosen(store, condition, is_needed)
        written = {event.event_id: event for event in events}
        outcomes: list[Event | FraudlakeError | Correction] = []
        new: list[Event] = []
        for one in wanted:
            outcome = written.get(one.event_id) or _next(store, one, events, now)
            outcomes.append(outcome)
            if isinstance(outcome, Event) and one.event_id not in written:
                written[outcome.event_id] = outcome
                new.append(outcome)
                events.append(outcome)
        return outcomes, rows(new) if new else None

    about = wanted[0].item.item_id if len(wanted) == 1 else counted(len(wanted), "item")
    outcomes = chain.write(store, SILVER_REVIEW_EVENTS, propose, about)
    return [corrections.ask(store, one) if isinstance(one, Correction) else one for one in outcomes]


def _next(
    store: Store, wanted: Wanted, events: Sequence[Event], now: datetime | None
) -> Event | FraudlakeError | Correction:
    """Return the wanted event, numbered and hashed as the next after ``events``, or why it is not written."""
    of_item = [one for one in events if one.item_id in wanted.item.names]
    try:
        event = wanted.make(state(of_item, now or datetime.now(UTC)))
        _require_valid(event)
    except FraudlakeError as refused:
        return refused
    if event.is_label and not wanted.is_agreed and gate.keys(store) > 1:
        earlier = of_item
        if event.verdict in LABELS:
            about = {one.number: one for one in [*read_events_of_payments(store, event.transaction_ids), *events]}
            earlier = [about[number] for number in sorted(about)]
        correction = Correction.of(earlier, event)
        if correction.overturns:
            return correction
    last = events[-1] if events else None
    event = replace(event, number=last.number + 1 if last else 1)
    return replace(event, hash=chain.link(last.hash if last else None, event))


def _require_valid(event: Event) -> None:
    if not event.analyst.strip():
        raise UsageError("no analyst is named: give --analyst")
    for name, longest in LONGEST.items():
        length = len(getattr(event, name) or "")
        if length > longest:
            raise UsageError(f"the {name} has {length:,} characters, and at most {longest:,} are allowed: shorten it")


def read_events_of_items(store: Store, names: Iterable[str]) -> list[Event]:
    """Return the events of items, given by all their names, in the order of their numbers."""
    wanted = sorted(names)
    if len(wanted) > _FEW:  # a statement with so many names takes longer than to read all events
        rows = select(store)
        return as_events(rows.filter(_is_in(rows["item_id"], wanted)))
    return chosen(store, one_of("item_id", wanted), lambda rows: _is_in(rows["item_id"], wanted))


def read_events_of_payments(store: Store, payments: Collection[str]) -> list[Event]:
    """Return the events on payments, in the order of their numbers: several items may have decided on one."""
    if len(payments) > _FEW_PAYMENTS:
        wanted = set(payments)
        return [event for event in read_events(store) if wanted.intersection(event.transaction_ids)]
    named = " OR ".join(f"array_contains(transaction_ids, {value(one)})" for one in payments)
    return read(store, f"WHERE {named}") if named else []


def read_events_of_cases(store: Store) -> list[Event]:
    """Return the events that open, merge and separate cases, which are few, in the order of their numbers."""
    return chosen(store, one_of("kind", _MATTERS), lambda rows: _is_in(rows["kind"], _MATTERS))


def chosen(store: Store, condition: str, is_chosen: Callable[[pa.Table], pa.Array]) -> list[Event]:
    """Return the events that fulfil a condition, in the order of their numbers.

    If the table is small and the store caches answers, all events are read once and filtered in memory.

    Args:
        store: the lake's tables.
        condition: the condition in SQL.
        is_chosen: the same condition as a mask over rows of ``silver_review_events``.
    """
    if store.keeps_answers and _are_few(store):
        rows = select(store)
        return as_events(rows.filter(is_chosen(rows)))
    return read(store, f"WHERE {condition}")


def _are_few(store: Store) -> bool:
    last = store.query(_LAST, SILVER_REVIEW_EVENTS)[0][0].as_py()
    return last is None or last <= _FEW


def _is_in(column: pa.ChunkedArray, names: Sequence[str]) -> pa.Array:
    return pc.is_in(column, pa.array(names, pa.string()))


def read_events(store: Store) -> list[Event]:
    """Return all events, in the order of their numbers."""
    return read(store, "")


def read(store: Store, where: str) -> list[Event]:
    """Return the events that fulfil a condition in SQL, in the order of their numbers."""
    return as_events(select(store, where))


def select(store: Store, where: str = "") -> pa.Table:
    """Return the events that :func:`read` would return, as rows for :func:`as_events`."""
    statement = f"SELECT * FROM {SILVER_REVIEW_EVENTS.name} {where} ORDER BY number"
    return store.query(statement, SILVER_REVIEW_EVENTS).select([field.name for field in fields(Event)])


def as_events(rows: pa.Table) -> list[Event]:
    """Return rows as events."""
    # By columns: a page of the queue reads hundreds of events, and a dict for each row takes twice as long.
    columns = [rows[field.name].to_pylist() for field in fields(Event)]
    for number, field in enumerate(fields(Event)):
        if field.name in ("transaction_ids", "fraud_ids"):
            columns[number] = [tuple(ids or ()) for ids in columns[number]]
    return [Event(*values) for values in zip(*columns, strict=True)]


def rows(events: Iterable[Event]) -> pa.Table:
    """Return events as rows of ``silver_review_events``."""
    made = [{**asdict(event), "date": event.at.date()} for event in events]
    return pa.Table.from_pylist(made, SILVER_REVIEW_EVENTS.schema)
