"""Log: reads the events of ``silver_approval_events``, and writes allowed ones after all others."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake.approvals import request as requests
from fraudlake.approvals.event import Action, Event, Kind
from fraudlake.approvals.request import Request
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import chain
from fraudlake.tables import GOLD_FORGOTTEN, SILVER_APPROVAL_EVENTS

if TYPE_CHECKING:
    from fraudlake.lake.store import Store

LONGEST = {"reason": 1_000, "person": 200}
"""The maximum lengths of the texts of an event, in characters."""


@dataclass(frozen=True)
class Proposal:
    """What a person asks for; ``before``, ``after`` and ``arguments`` have values of JSON."""

    action: Action
    subject: str
    """What it is about, as a sentence names it."""
    before: Mapping[str, Any]
    """The state on which it is asked: it is only carried out on the same state."""
    after: Mapping[str, Any]
    """The state that it leads to, in the same form."""
    arguments: Mapping[str, Any]
    """The values with which it is carried out."""
    account_ids: Sequence[str] = ()
    """The accounts that it names: when one is forgotten, the request is erased."""


def read_events(store: Store) -> list[Event]:
    """Return all events, in the order of their numbers."""
    names = [field.name for field in fields(Event)]
    statement = f"SELECT {', '.join(names)} FROM {SILVER_APPROVAL_EVENTS.name} ORDER BY number"
    rows = store.query(statement, SILVER_APPROVAL_EVENTS).to_pylist()
    return [Event(**{**row, "account_ids": tuple(row["account_ids"] or ())}) for row in rows]


def read(store: Store) -> dict[int, Request]:
    """Return all requests, by number."""
    return requests.replay(read_events(store))[0]


def find(store: Store, number: int) -> Request:
    """Return a request.

    Raises:
        UsageError: no request has this number.
    """
    return _one(read(store), number)


def _one(by_number: Mapping[int, Request], number: int) -> Request:
    if number not in by_number:
        raise UsageError(f"there is no request {number}: 'fraudlake approvals list --all' lists them")
    return by_number[number]


def ask(store: Store, proposal: Proposal, person: str, reason: str | None, now: datetime | None = None) -> Request:
    """Write a request, unless the same one waits already, and return it.

    Raises:
        UsageError: no reason is given, or a text is too long.
    """
    before = _text(proposal.before)
    arguments = _text(proposal.arguments)

    def make(by_number: Mapping[int, Request], event_id: str, number: int) -> Event | Request:
        for one in by_number.values():
            same = (one.event.action, one.event.before, one.event.arguments) == (proposal.action, before, arguments)
            if same and one.status == "waiting":
                return one
        _require_texts(person, reason)
        event = Event(event_id, "requested", number, person, now or _now(), reason)
        event = replace(event, action=proposal.action, subject=proposal.subject)
        event = replace(event, before=before, after=_text(proposal.after))
        return replace(event, arguments=arguments, account_ids=tuple(proposal.account_ids))

    return _written(store, make, proposal.subject)


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, ensure_ascii=False)


def decide(
    store: Store, number: int, kind: Kind, person: str, reason: str | None, now: datetime | None = None
) -> Request:
    """Write an event that follows on a request, and return the request.

    Raises:
        UsageError: there is no such request, the event may not follow on it, or no reason is given.
    """

    def make(by_number: Mapping[int, Request], event_id: str, next_number: int) -> Event:
        refused = requests.refusal(_one(by_number, number), kind, person)
        if refused:
            raise UsageError(refused)
        if kind != "carried out":
            _require_texts(person, reason)
        return Event(event_id, kind, number, person, now or _now(), reason)

    return _written(store, make, f"request {number}")


def _now() -> datetime:
    """Return the time in milliseconds: not every warehouse returns microseconds, which would change the hash."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1_000 * 1_000)


def _require_texts(person: str, reason: str | None) -> None:
    if not (reason or "").strip():
        raise UsageError("a second person reads why: give a reason (--reason); nothing was written")
    for name, text in (("reason", reason or ""), ("person", person)):
        if len(text) > LONGEST[name]:
            raise UsageError(
                f"the {name} has {len(text):,} characters, and at most {LONGEST[name]:,} are allowed: shorten it"
            )


def _written(store: Store, make: Callable[[Mapping[int, Request], str, int], Event | Request], about: str) -> Request:
    """Write the event that ``make`` returns, and return its request; a request that it returns stays as it is."""
    event_id = uuid.uuid4().hex

    def propose() -> tuple[Request, pa.Table | None]:
        events = read_events(store)
        by_number, _ = requests.replay(events)
        written = next((event for event in events if event.event_id == event_id), None)
        if written is not None:
            return by_number[written.request], None
        last = events[-1] if events else None
        number = last.number + 1 if last else 1
        made = make(by_number, event_id, number)
        if isinstance(made, Request):
            return made, None
        event = replace(made, number=number)
        event = replace(event, hash=chain.link(last.hash if last else None, event))
        return requests.replay([*events, event])[0][event.request], rows([event])

    return chain.write(store, SILVER_APPROVAL_EVENTS, propose, about)


def rows(events: Iterable[Event]) -> pa.Table:
    """Return events as rows of ``silver_approval_events``."""
    made = [{**asdict(event), "date": event.at.date()} for event in events]
    return pa.Table.from_pylist(made, SILVER_APPROVAL_EVENTS.schema)


def verify(events: Sequence[Event], known: tuple[int, str] | None, may_be_erased: bool) -> chain.Verified:
    """Check that no event was removed, altered or inserted, and that each was allowed: see :func:`.chain.verify`."""
    return _verified(events, known, may_be_erased)[0]


def _verified(
    events: Sequence[Event], noted: tuple[int, str] | None, may_be_erased: bool
) -> tuple[chain.Verified, dict[int, Request]]:
    """Return what :func:`verify` does, and the requests by number."""
    verified = chain.verify(events, noted, may_be_erased)
    by_number, breaches = requests.replay(events)
    return replace(verified, faults=[*verified.faults, *breaches]), by_number


def find_intact(store: Store, number: int) -> Request:
    """Return a request, unless somebody has changed the events.

    Raises:
        UsageError: no request has this number.
        FraudlakeError: the chain is broken.
    """
    verified, by_number = _verified(read_events(store), None, store.has_rows(GOLD_FORGOTTEN))
    if verified.faults:
        raise FraudlakeError(
            f"{SILVER_APPROVAL_EVENTS.name}: {verified.faults[0]}: nothing is carried out until "
            "'fraudlake audit verify' finds no fault"
        )
    return _one(by_number, number)
