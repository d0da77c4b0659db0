"""Queue filter: selects and sorts the items of a queue, as the query of an address says."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from fraudlake.review import cases
from fraudlake_desk.documents.letters import shown
from fraudlake_desk.web.errors import PageError

if TYPE_CHECKING:
    from fraudlake.review.items import Queued

OPEN, LATE, YOURS, HELD, WAITING, FOR_A_LEAD, DECIDED, SECOND_LOOK = STATES = (
    "open",
    "late",
    "yours",
    "held",
    "waiting",
    "for a lead",
    "decided",
    "second look",
)
_KEYS: dict[str, Callable[[Queued], Any]] = {
    "rank": lambda one: one.row["rank"],
    "state": lambda one: _state_order(one),
    "reasons": lambda one: one.row["reasons"],
    "key": lambda one: (one.row["entity"], one.row["entity_key"]),
    "amount": lambda one: one.row["amount_at_risk"],
    "probability": lambda one: one.row["probability"],
}
"""The sort keys of a queue, by the name of the order; a name with ``-`` reverses it."""
_NUMBERS = ("amount", "probability")
"""Orders that begin with the largest value."""
_TITLES = {
    "state": "state",
    "rule": "rule",
    "entity": "entity",
    "person": "person",
    "amount_from": "at risk from",
    "amount_to": "at risk to",
}


@dataclass(frozen=True)
class QueueFilter:
    """The conditions and the order from the query of an address; an empty text is not a condition."""

    state: str = ""
    """One of :data:`STATES`."""
    rule: str = ""
    entity: str = ""
    person: str = ""
    """Who holds an item, should decide on it, or has decided on it."""
    amount_from: str = ""
    amount_to: str = ""
    sort: str = ""

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> QueueFilter:
        """Return the filter of the query of an address, or of the fields of a form.

        Raises:
            PageError: a value is not valid.
        """
        chosen = cls(**{name: fields.get(name, "") for name in (*_TITLES, "sort")})
        _require("state", chosen.state, STATES)
        _require("sort", chosen.sort, [sign + name for name in _KEYS for sign in ("", "-")])
        for name in ("amount_from", "amount_to"):
            _number(name, getattr(chosen, name))
        return chosen

    @property
    def fields(self) -> dict[str, str]:
        """The fields from which :meth:`read` makes the same filter."""
        return {name: value for name, value in vars(self).items() if value}

    @property
    def is_active(self) -> bool:
        """Whether it has a condition."""
        return any(getattr(self, name) for name in _TITLES)

    @property
    def text(self) -> str:
        """The conditions, for people."""
        return ", ".join(text for text, _ in self.conditions)

    @property
    def conditions(self) -> list[tuple[str, QueueFilter]]:
        """Each condition, for people, with the filter without it."""
        return [
            (f"{title} {shown(value)}", replace(self, **{name: ""}))
            for name, title in _TITLES.items()
            if (value := getattr(self, name))
        ]

    def without_conditions(self) -> QueueFilter:
        """Return the filter with only the order."""
        return QueueFilter(sort=self.sort)

    def sorted_by(self, name: str) -> QueueFilter:
        """Return the filter sorted by a column, or in reverse if it is sorted by it already."""
        first, other = (f"-{name}", name) if name in _NUMBERS else (name, f"-{name}")
        return replace(self, sort=other if self.sort == first else first)

    def address(self, day: date | None) -> str:
        """Return the address of the queue of a day."""
        return f"/{self.query(day)}"

    def query(self, day: date | None) -> str:
        """Return the query string, with ``?``, that keeps a day and this filter; empty if there are none."""
        query = urlencode(({"day": str(day)} if day else {}) | self.fields)
        return f"?{query}" if query else ""

    def ordered(self, queued: Iterable[Queued]) -> list[Queued]:
        """Return items in the order of the filter; those without a value come last."""
        key = _KEYS[self.sort.removeprefix("-") or "rank"]
        present = [one for one in queued if key(one) is not None]
        absent = [one for one in queued if key(one) is None]
        return sorted(present, key=key, reverse=self.sort.startswith("-")) + absent

    def has(self, one: Queued, viewer: str) -> bool:
        """Return whether an item fulfils all conditions for a viewer."""
        low = _number("amount_from", self.amount_from)
        high = _number("amount_to", self.amount_to)
        return (
            (not self.state or _is_in(self.state, one, viewer))
            and self.rule in ("", *one.rules)
            and self.entity in ("", one.row["entity"])
            and self.person in ("", *people(one))
            and (low is None or one.row["amount_at_risk"] >= low)
            and (high is None or one.row["amount_at_risk"] <= high)
        )


def people(one: Queued) -> list[str]:
    """Return who holds an item, who should decide on it, and who has decided on it."""
    decision = one.state.decision
    return [name for name in (one.state.holder, one.state.assignee, decision.analyst if decision else None) if name]


def _state_order(one: Queued) -> tuple[int, str]:
    """Return the key that sorts items by state: open, then held, then decided."""
    if one.is_decided and one.state.decision:
        return 2, one.state.decision.verdict or ""
    return (1, one.state.holder) if one.state.holder else (0, "")


def _is_in(state: str, one: Queued, viewer: str) -> bool:
    if state == OPEN:
        return one.state.holder is None and not one.is_decided and not one.is_repeated
    if state == LATE:
        return one.is_late
    if state == YOURS:
        return one.state.holder == viewer
    if state == HELD:
        return one.state.holder is not None
    if state == WAITING:
        return one.state.waits_until is not None
    if state == FOR_A_LEAD:
        return one.state.is_escalated
    if state == DECIDED:
        return one.is_decided
    return one.row["kind"] == cases.DRAWN and one.state.wants_second_look


def _require(name: str, value: str, choices: Collection[str]) -> None:
    if value and value not in choices:
        raise PageError(f"{name}: there is no '{shown(value)}', but {', '.join(choices)}")


def _number(name: str, text: str) -> float | None:
    """Return a number from a text; None if it is empty."""
    try:
        value = float(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not math.isfinite(value):
        raise PageError(f"{_TITLES[name]}: give a number, not '{shown(text)}'")
    return value
