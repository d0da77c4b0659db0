"""Review: makes, checks and writes the events of ``silver_review_events``: who took an item, who decided on it, when.

A writer reads all earlier events, checks that its event is allowed after them, and gives it the next number. Delta
accepts one event per number (:meth:`fraudlake.lake.store.Store.insert_all`), so two analysts never hold the same item,
whatever their clocks say. An item's time never goes back: each event is later than the item's event before it.

A verdict covers payments: an analyst marks those that are fraud, and the others that it covers are genuine.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import conflict
from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake.text.counts import counted
from fraudlake.text.sql_text import one_of
from fraudlake.values import bounded
from fraudlake_desk.review import chain
from fraudlake_desk.review.event import Event, Kind, Verdict
from fraudlake_desk.review.item import Item

if TYPE_CHECKING:
    from fraudlake.lake.store import Store

SetAside = Literal["noted", "waiting", "assigned", "escalated"]
LONGEST = {"reason": 1_000, "note": 20_000, "analyst": 200, "assignee": 200}
"""The maximum lengths of the texts of an event, in characters."""
_LONGEST_WAIT = timedelta(days=366)
_ATTEMPTS = 40
_LONGEST_PAUSE = 0.5
"""Maximum seconds between two attempts to write."""
_LAST = f"SELECT max(number) FROM {SILVER_REVIEW_EVENTS.name}"
_LEAST = timedelta(microseconds=1)
_FEW = 20_000
"""Up to so many events (20 MB), all are read at once and filtered in memory."""
_MATTERS = ("opened", "merged", "separated")
_FOR_ANYBODY: dict[str, Any] = {"waits_until": None, "assignee": None, "is_escalated": False}
"""The fields of a state that a decision resets: the item neither waits nor is meant for anybody."""


class TakenError(FraudlakeError):
    """Another analyst holds the item, or it is decided."""


@dataclass(frozen=True)
class State:
    """The state of an item after its events."""

    time: datetime
    """The item's time: now, or that of its last event if that is later."""
    holder: str | None = None
    """Who has taken it; None if nobody has, or their lock has expired."""
    expires_at: datetime | None = None
    """When the holder's lock expires."""
    waits_until: datetime | None = None
    """Until when it is not offered to anybody; None: it is not waiting."""
    assignee: str | None = None
    """Who should decide; None: anybody."""
    is_escalated: bool = False
    """Whether a lead should decide."""
    last: Event | None = None
    """The last event."""
    decision: Event | None = None
    """The last verdict, which counts; None if there is none, or it was withdrawn."""
    decided: frozenset[str] = frozenset()
    """The transactions that verdicts cover."""
    agreeing: frozenset[str] = frozenset()
    """The analysts of the latest consecutive verdicts with the same labels."""
    merged: Event | None = None
    """The event that merged it into another case."""
    attached: int = 0
    """Number of attached files."""

    def is_offered(self, analyst: str, is_lead: bool) -> bool:
        """Return whether an analyst may get it as the next item; anybody may still take it by its id."""
        if self.holder is not None or self.waits_until is not None:
            return self.holder == analyst
        return self.assignee == analyst if self.assignee else is_lead or not self.is_escalated

    @property
    def wants_second_look(self) -> bool:
        """Whether one analyst alone has found fraud: on a drawn account, an error has the weight of many."""
        return self.decision is not None and bool(self.decision.fraud_ids) and len(self.agreeing) < 2

    def covers(self, item: Item) -> bool:
        """Return whether verdicts cover all of an item; a case may have got alerts since."""
        return self.decision is not None and self.decided >= set(item.transaction_ids)


@dataclass(frozen=True)
class Wanted:
    """A request to write an event."""

    item: Item
    event_id: str
    """Id of the event: see :func:`new_id`."""
    make: Callable[[State], Event]
    """Makes the event of this id from the item's state, or raises an error if the state forbids it. It is called
    again if others write events in the meantime."""


def new_id() -> str:
    """Return the id for a new event; a repeated request must use the same id, so that it is written once."""
    return uuid.uuid4().hex


def state(events: Iterable[Event], now: datetime) -> State:
    """Return the state of one item after its events, which are given in the order of their numbers."""
    so_far = State(datetime.min.replace(tzinfo=UTC))
    for event in events:
        so_far = _after(so_far, event)
    return replace(so_far, **_passed(so_far, now))


def states(events: Iterable[Event], now: datetime, names: Mapping[str, str] | None = None) -> dict[str, State]:
    """Return the state of each item that has events.

    Args:
        events: events in the order of their numbers.
        now: the time.
        names: the current ids of items, by the ids that events may have for them, such as an alert's.

    Returns:
        The states by the current ids.
    """
    by_item: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_item[(names or {}).get(event.item_id, event.item_id)].append(event)
    return {item: state(of_item, now) for item, of_item in by_item.items()}


def _passed(before: State, now: datetime) -> dict[str, Any]:
    """Return the fields of an item's state that time changes: locks and waits expire, and its time never goes back."""
    passed: dict[str, Any] = {"time": max(before.time, now)}
    if before.waits_until is not None and passed["time"] >= before.waits_until:
        passed["waits_until"] = None
    if before.expires_at is not None and passed["time"] >= before.expires_at:
        passed |= {"holder": None, "expires_at": None}
    return passed


def _after(before: State, event: Event) -> State:
    passed = _passed(before, event.at)
    return replace(before, **passed | _changes(before, event, passed.get("holder", before.holder)), last=event)


def _changes(before: State, event: Event, holder: str | None) -> dict[str, Any]:
    """Return the fields of an item's state that an event changes."""
    if event.kind == "taken":
        # Joined cases may each have been taken before: the first analyst holds the item.
        is_first = holder in (None, event.analyst)
        return {"holder": event.analyst, "expires_at": event.expires_at, "waits_until": None} if is_first else {}
    if event.kind in ("noted", "opened"):
        return {}
    if event.kind == "attached":
        return {"attached": before.attached + 1}
    given_back: dict[str, Any] = {"holder": None, "expires_at": None}
    if event.kind in ("merged", "separated"):
        merged = event if event.kind == "merged" and event.merged_into else None
        return {**given_back, **_FOR_ANYBODY, "merged": merged}
    if event.kind == "waiting":
        return {**given_back, "waits_until": event.expires_at}
    if event.kind in ("assigned", "escalated"):
        return {**given_back, "assignee": event.assignee, "is_escalated": event.kind == "escalated"}
    if event.is_verdict:
        decided = before.decided | set(event.transaction_ids)
        agrees = before.decision is not None and before.decision.labels == event.labels
        agreeing = frozenset([event.analyst]) | (before.agreeing if agrees else frozenset())
        decision = {"decision": event, "decided": decided, "agreeing": agreeing}
        return {**given_back, **_FOR_ANYBODY, **decision}
    if event.kind == "withdrawn":
        return {**given_back, "decision": None, "decided": frozenset(), "agreeing": frozenset()}
    return given_back


def take(item: Item, before: State, analyst: str, lock: timedelta, event_id: str, is_again: bool = False) -> Event:
    """Return the event by which an analyst takes an item; the holder may take it again to extend the lock.

    Args:
        item: the item.
        before: its state.
        analyst: who takes it.
        lock: how long they hold it.
        event_id: the event's id.
        is_again: take a decided item, to correct the verdict.

    Raises:
        TakenError: another analyst holds it, or it is decided.
    """
    _require_free(item, before, analyst)
    if before.covers(item) and not is_again:
        raise TakenError(_decided(item, before))
    event = _event(item, before, "taken", analyst, event_id)
    return replace(event, expires_at=event.at + lock)


def release(item: Item, before: State, analyst: str, event_id: str, is_forced: bool = False) -> Event:
    """Return the event by which an analyst gives an item back, or, if forced, releases it from its holder.

    Raises:
        FraudlakeError: nobody holds it, or another analyst does and it is not forced.
    """
    if before.holder is None:
        raise FraudlakeError(f"nobody holds {item.item_id}")
    if not is_forced:
        _require_free(item, before, analyst)
    return _event(item, before, "released", analyst, event_id)


def decide(
    item: Item,
    before: State,
    analyst: str,
    verdict: Verdict,
    event_id: str,
    fraud: Mapping[str, float] | None = None,
    reason: str | None = None,
    note: str | None = None,
    is_correction: bool = False,
) -> Event:
    """Return the event by which an analyst decides on an item, which also releases it.

    The item need not have been taken; after the analyst's lock has expired, a verdict counts unless somebody else holds
    the item.

    Args:
        item: the item.
        before: its state.
        analyst: who decides.
        verdict: the verdict.
        event_id: the event's id.
        fraud: for a verdict of fraud, the amounts of the fraudulent payments by id, which may also be payments beyond
            the item's own; the other payments of the item are genuine.
        reason: why, in a few words.
        note: further text.
        is_correction: replace the present verdict.

    Raises:
        FraudlakeError: another analyst holds it, it is decided already, or a correction finds no verdict.
        UsageError: a verdict of fraud marks no payment, or a correction overturns a colleague's verdict without a
            reason.
    """
    _require_free(item, before, analyst)
    if before.covers(item) and not is_correction:
        raise TakenError(_decided(item, before))
    if before.decision is None and is_correction:
        raise FraudlakeError(f"nobody has decided on {item.item_id} yet, so there is nothing to correct")
    event = _event(item, before, "corrected" if is_correction else "verdict", analyst, event_id)
    event = replace(event, verdict=verdict, reason=reason or None, note=note or None)
    event = replace(event, transaction_ids=_to_label(item, before))
    if verdict == "fraud":
        event = _marked(item, event, fraud or {})
    last = before.decision
    if last and is_correction and last.analyst != analyst and last.labels != event.labels and not reason:
        raise UsageError(f"{last.analyst} decided {last.verdict} on {item.item_id}: give a reason to overturn that")
    return event


def _marked(item: Item, event: Event, fraud: Mapping[str, float]) -> Event:
    """Return the event with the marked payments and their amount."""
    if not fraud:
        raise UsageError(f"nothing of {item.item_id} is marked: name the payments that are fraud")
    # For a drawn account, only payments of its day count: the draw represents that day.
    counted = [amount for id_, amount in fraud.items() if item.case_id is not None or id_ in item.transaction_ids]
    about = dict.fromkeys([*event.transaction_ids, *fraud])
    return replace(event, transaction_ids=tuple(about), fraud_ids=tuple(fraud), fraud_amount=bounded(sum(counted)))


def withdraw(item: Item, before: State, analyst: str, event_id: str, reason: str | None = None) -> Event:
    """Return the event by which an analyst withdraws the verdict on an item, which reopens it.

    Raises:
        FraudlakeError: another analyst holds it, or there is no verdict.
    """
    _require_free(item, before, analyst)
    if before.decision is None:
        raise FraudlakeError(f"there is no verdict on {item.item_id} to withdraw")
    event = _event(item, before, "withdrawn", analyst, event_id)
    return replace(event, reason=reason or None, transaction_ids=_to_label(item, before))


def _to_label(item: Item, before: State) -> tuple[str, ...]:
    """Return the transactions of an item and of earlier verdicts, since all of them get new labels."""
    return tuple(dict.fromkeys([*item.transaction_ids, *sorted(before.decided)]))


def set_aside(
    item: Item,
    before: State,
    analyst: str,
    kind: SetAside,
    event_id: str,
    reason: str | None = None,
    note: str | None = None,
    until: datetime | None = None,
    assignee: str | None = None,
) -> Event:
    """Return the event by which an analyst sets an item aside without a verdict, which releases it.

    A note changes nothing else, and is allowed even if another analyst holds the item or it is decided.

    Args:
        item: the item.
        before: its state.
        analyst: who does it.
        kind: ``noted``; or the item is offered to nobody for a time (``waiting``), to one person (``assigned``), or to
            leads (``escalated``) only.
        event_id: the event's id.
        reason: why; required except for a note.
        note: further text.
        until: the time at which the waiting ends.
        assignee: the person who should decide.

    Raises:
        FraudlakeError: another analyst holds it, or it is decided.
        UsageError: a required argument is missing, or ``until`` is in the past or more than a year away.
    """
    event = _event(item, before, kind, analyst, event_id)
    event = replace(event, reason=reason or None, note=note or None)
    if kind == "noted":
        if not (reason or note):
            raise UsageError(f"there is no note on {item.item_id} to save: write one")
        return event
    _require_free(item, before, analyst)
    if before.covers(item):
        raise TakenError(_decided(item, before))
    if not reason:
        raise UsageError(f"give a reason why {item.item_id} is set aside: nothing was written")
    if kind == "waiting" and not (until and timedelta() < until - before.time <= _LONGEST_WAIT):
        raise UsageError(f"give a day of the next twelve months until which {item.item_id} waits: nothing was written")
    if kind == "assigned" and not (assignee or "").strip():
        raise UsageError(f"name the person who decides on {item.item_id}: nothing was written")
    return replace(
        event, expires_at=until if kind == "waiting" else None, assignee=assignee if kind == "assigned" else None
    )


def relate(
    item: Item,
    before: State,
    analyst: str,
    kind: Literal["opened", "merged", "separated"],
    event_id: str,
    reason: str | None,
    into: Item | None = None,
    of_into: State | None = None,
) -> Event:
    """Return the event that opens a case by hand, merges it into another one, or separates it again.

    Args:
        item: the case.
        before: its state.
        analyst: who does it.
        kind: which of the three.
        event_id: the event's id.
        reason: why; it must be given.
        into: the other case.
        of_into: the other case's state.

    Raises:
        FraudlakeError: another analyst holds one of the cases.
        UsageError: no reason is given.
    """
    if not (reason or "").strip():
        raise UsageError(f"give a reason why the case is {kind}: nothing was written")
    if kind != "separated":
        _require_free(item, before, analyst)
    if into is not None and of_into is not None:
        _require_free(into, of_into, analyst)
    event = _event(item, before, kind, analyst, event_id)
    return replace(event, reason=reason, merged_into=into.item_id if into else None)


def attach(
    item: Item,
    before: State,
    analyst: str,
    event_id: str,
    file_name: str,
    file_size: int,
    file_hash: str,
    note: str | None = None,
) -> Event:
    """Return the event by which an analyst attaches a file; like a note, it is always allowed."""
    event = _event(item, before, "attached", analyst, event_id)
    return replace(event, file_name=file_name, file_size=file_size, file_hash=file_hash, note=note or None)


def _event(item: Item, before: State, kind: Kind, analyst: str, event_id: str) -> Event:
    return Event(
        event_id,
        item.item_id,
        kind,
        analyst,
        max(before.time, before.last.at + _LEAST) if before.last else before.time,
        item.account_id,
        item.entity,
        item.entity_key,
        transaction_ids=item.transaction_ids,
        case_id=item.case_id,
        day=item.day,
    )


def _require_free(item: Item, before: State, analyst: str) -> None:
    if before.merged is not None and before.merged.number > item.as_of:
        raise TakenError(f"{before.merged.analyst} has merged {item.item_id} into {before.merged.merged_into}")
    if before.holder not in (None, analyst):
        raise TakenError(
            f"{before.holder} holds {item.item_id} until {before.expires_at:%Y-%m-%d %H:%M:%S} UTC: if a clock was "
            f"ahead, free it with 'fraudlake review release {item.item_id} --force'"
        )


def _decided(item: Item, before: State) -> str:
    last = before.decision
    assert last is not None
    return (
        f"{last.analyst} decided on {item.item_id} at {last.at:%Y-%m-%d %H:%M:%S} UTC: {last.verdict}; a correction "
        "replaces a verdict"
    )


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
    others write in the meantime, each event is checked again.

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

    for attempt in range(_ATTEMPTS + 1):
        if attempt > 1:  # the first retry usually finds that its own events were written
            conflict.pause(_LONGEST_PAUSE)
        events = chosen(store, condition, is_needed)
        written = {event.event_id: event for event in events}
        outcomes = []
        new: list[Event] = []
        for one in wanted:
            outcome = written.get(one.event_id) or _next(one, events, now)
            outcomes.append(outcome)
            if isinstance(outcome, Event) and one.event_id not in written:
                written[outcome.event_id] = outcome
                new.append(outcome)
                events.append(outcome)
        if not new:
            return outcomes
        if attempt == _ATTEMPTS:  # this time only check whether the last attempt was written
            break
        try:
            store.insert_all(SILVER_REVIEW_EVENTS, rows(new), "number")
        except Exception as error:
            if not conflict.is_conflict(error):
                raise
    about = wanted[0].item.item_id if len(wanted) == 1 else counted(len(wanted), "item")
    raise FraudlakeError(f"others write events all the time, and nothing was written about {about}: try again")


def _next(wanted: Wanted, events: Sequence[Event], now: datetime | None) -> Event | FraudlakeError:
    """Return the wanted event, numbered and hashed as the next after ``events``, or the error that refuses it."""
    of_item = [one for one in events if one.item_id in wanted.item.names]
    try:
        event = wanted.make(state(of_item, now or datetime.now(UTC)))
        _require_valid(event)
    except FraudlakeError as refused:
        return refused
    last = events[-1] if events else None
    event = replace(event, number=last.number + 1 if last else 1)
    return replace(event, hash=chain.link(last.hash if last else None, event))


def _require_valid(event: Event) -> None:
    if not event.analyst.strip():
        raise UsageError("no analyst is named: give --analyst")
    for name, longest in LONGEST.items():
        given = len(getattr(event, name) or "")
        if given > longest:
            raise UsageError(f"the {name} has {given:,} characters, and at most {longest:,} are allowed: shorten it")


def read_events_of_items(store: Store, names: Iterable[str]) -> list[Event]:
    """Return the events of items, given by all their names, in the order of their numbers."""
    wanted = sorted(names)
    return chosen(store, one_of("item_id", wanted), lambda rows: _is_in(rows["item_id"], wanted))


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
