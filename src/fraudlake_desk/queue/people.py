"""People: counts the verdicts and other work of each person on some days, and the items that are still open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING

from fraudlake.review import item_state
from fraudlake.review.event import VERDICTS
from fraudlake.values import bounded

if TYPE_CHECKING:
    from fraudlake.review.event import Event
    from fraudlake.review.items import Queued
    from fraudlake.review.window import Window


@dataclass
class Work:
    """The work of a person on some days."""

    name: str
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    """Number of times they gave each verdict, corrections included."""
    fraud_amount: float = 0.0
    """Amounts of the payments that their latest verdicts on the items mark as fraud, in account currency."""
    counted_amount: float = 0.0
    """The part of it by verdicts that nobody has replaced."""
    overturned: int = 0
    """Their verdicts that a colleague's next verdict contradicts."""
    withdrawn: int = 0
    """Verdicts that they took back."""
    set_aside: int = 0
    """How often they let an item wait, assigned it, or gave it to a lead."""
    held: int = 0
    """Items that they hold now."""
    seconds: list[float] = field(default_factory=list)
    """Seconds from taking an item to the verdict on it, for each item that they took themselves."""

    @property
    def decided(self) -> int:
        """The number of verdicts."""
        return sum(self.verdicts.values())

    @property
    def median_seconds(self) -> float | None:
        """The median of :attr:`seconds`; None if they decided no item that they had taken."""
        return median(self.seconds) if self.seconds else None


@dataclass(frozen=True)
class Total:
    """The work of all people on some days, and the state of the queues of those days."""

    queued: int
    """Items of the queues."""
    open: int
    """Items without a verdict."""
    late: int
    """Items that are overdue."""
    verdicts: dict[str, int]
    """How often each verdict was given, corrections included."""
    fraud_amount: float
    """Amounts of the payments that the latest verdict on each item marks as fraud, in account currency."""
    overturned: int
    withdrawn: int
    set_aside: int
    median_seconds: float | None
    """Median seconds from taking an item to the verdict on it."""


def total(people: Iterable[Work], queued: Iterable[Queued]) -> Total:
    """Sum the work of people, and count the items of the queues of the same days."""
    people = [*people]
    queued = [one for one in queued if not one.is_repeated]
    seconds = [second for work in people for second in work.seconds]
    return Total(
        queued=len(queued),
        open=sum(not one.is_decided for one in queued),
        late=sum(one.is_late for one in queued),
        verdicts={name: sum(work.verdicts[name] for work in people) for name in VERDICTS},
        fraud_amount=bounded(sum(work.counted_amount for work in people)),
        overturned=sum(work.overturned for work in people),
        withdrawn=sum(work.withdrawn for work in people),
        set_aside=sum(work.set_aside for work in people),
        median_seconds=median(seconds) if seconds else None,
    )


def count_work(events: Iterable[Event], window: Window, now: datetime) -> list[Work]:
    """Return the work of everybody who was active on some days (UTC) or holds an item now, sorted by name.

    Args:
        events: all events in the order of their numbers.
        window: the days.
        now: the time.
    """
    by_item: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_item[event.item_id].append(event)
    people: dict[str, Work] = {}
    for of_item in by_item.values():
        _add(people, of_item, window)
        holder = item_state.state(of_item, now).holder
        if holder is not None:
            _work(people, holder).held += 1
    return sorted(people.values(), key=lambda work: work.name)


def _add(people: dict[str, Work], events: list[Event], window: Window) -> None:
    """Add the events of an item."""
    assignment: Event | None = None
    decision: Event | None = None
    amounts: dict[str, float] = {}
    counted_of: str | None = None
    for event in events:
        is_counted = window.first <= event.at.date() <= window.last
        if event.is_verdict and decision is not None and is_counted:
            is_contradicted = event.analyst != decision.analyst and event.labels != decision.labels
            _work(people, decision.analyst).overturned += is_contradicted
        if event.is_verdict and is_counted:
            work = _work(people, event.analyst)
            work.verdicts[str(event.verdict)] += 1
            amounts[event.analyst] = event.fraud_amount or 0.0
            counted_of = event.analyst
            if assignment is not None and assignment.analyst == event.analyst:
                work.seconds.append((event.at - assignment.at).total_seconds())
        if event.kind == "withdrawn" and is_counted:
            _work(people, event.analyst).withdrawn += 1
            amounts.pop(event.analyst, None)
            counted_of = None
        if event.kind in ("waiting", "assigned", "escalated") and is_counted:
            _work(people, event.analyst).set_aside += 1
        # Notes and files are part of the work between taking an item and deciding on it.
        if event.kind not in ("noted", "attached"):
            assignment = event if event.kind == "taken" else None
        if event.is_verdict or event.kind == "withdrawn":
            decision = event if event.is_verdict else None
    for name, amount in amounts.items():
        _work(people, name).fraud_amount += amount
    if counted_of is not None:
        _work(people, counted_of).counted_amount += amounts[counted_of]


def _work(people: dict[str, Work], name: str) -> Work:
    return people.setdefault(name, Work(name))
