"""Gate: what needs a second key becomes a request, which takes effect once another person has approved it.

Each gated action calls :func:`require` in the one place where it would take effect, with the state before and after. An
:class:`Effect` carries out the approved request: only on the state on which it was asked, and once. For another action,
name it in :data:`fraudlake.approvals.event.Action`, give its module an ``EFFECT`` that :mod:`fraudlake_desk.effects`
lists, and ask where it would take effect, as :mod:`fraudlake_desk.lists` does::

    proposal = Proposal("list", f"{len(keys)} keys of {name}", {"keys": 0}, {"keys": len(keys)}, arguments)
    gate.require(store, proposal, author, reason)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.approvals import log
from fraudlake.approvals import request as requests
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake.definition import Recorded
from fraudlake.process import host

if TYPE_CHECKING:
    from fraudlake.approvals.log import Proposal
    from fraudlake.approvals.request import Request
    from fraudlake.lake.store import Store


class WaitingError(FraudlakeError):
    """Nothing was changed: a request waits for a second person."""

    def __init__(self, message: str, number: int) -> None:
        """Keep the number of the request."""
        super().__init__(message)
        self.number = number


@dataclass(frozen=True)
class Effect:
    """How approved requests of an action take effect.

    Both functions take the lake, or its store if that is enough. ``state`` returns the present state in the form of
    :attr:`Request.before`; ``carry_out`` makes it that of :attr:`Request.after`, and may be repeated after a crash.
    """

    state: Callable[[Any, Request], dict[str, Any]]
    carry_out: Callable[[Any, Request], None]


def keys(store: Store) -> int:
    """Return how many people must agree: as the lake has recorded it, however old the store is."""
    recorded = Recorded.of(store.rows(tables.SILVER_DEFINITION).to_pylist()).values
    return int(recorded.get("approvals", store.settings.approvals))


def require(store: Store, proposal: Proposal, person: str | None, reason: str | None) -> None:
    """Return if one key is enough; otherwise write a request.

    Args:
        store: the lake's tables.
        proposal: what is asked for.
        person: who asks; None: the signed-in user.
        reason: why.

    Raises:
        WaitingError: the request waits for a second person.
        UsageError: the request has no reason.
    """
    if keys(store) < 2:
        return
    request = log.ask(store, proposal, person or store.user_name(), reason)
    raise WaitingError(
        f"{proposal.subject}: request {request.number} waits for a second person, and nothing has changed: another "
        f"person approves it at the desk, or with 'fraudlake approvals approve {request.number}'",
        request.number,
    )


def person_of(store: Store, name: str | None) -> str:
    """Return the name under which somebody acts; with two keys it is that of the signed-in user.

    Raises:
        UsageError: two keys are needed, and another name is given.
    """
    if keys(store) < 2:
        return name or host.user_name()
    signed_in = store.user_name()
    if name is not None and not requests.is_same_person(name, signed_in):
        raise UsageError(f"{name} is not signed in, {signed_in} is: with two keys, nobody acts under another name")
    return signed_in


def approve(store: Store, number: int, person: str, reason: str | None, effect: Effect, place: Any) -> Request:
    """Approve a request and carry it out; a repeated call completes one that was killed in between.

    Args:
        store: the lake's tables.
        number: the request.
        person: who approves.
        reason: why.
        effect: carries it out.
        place: the lake, or its store if that is enough for the effect.

    Raises:
        UsageError: the request is the person's own, is settled already, or its subject has changed since.
        FraudlakeError: ``forget`` has erased it; or it could not be carried out, and stays approved.
    """
    request = log.find_intact(store, number)
    approval = request.approval
    is_repeated = approval is not None and requests.is_same_person(approval.person, person)
    if not (is_repeated and request.status == "approved"):
        refused = requests.refusal(request, "approved", person)
        if refused:
            raise UsageError(refused)
        require_whole(request)
        _require_unchanged(effect.state(place, request), request)
        log.decide(store, number, "approved", person, reason)
    return carry_out(store, number, person, effect, place)


def carry_out(store: Store, number: int, person: str, effect: Effect, place: Any) -> Request:
    """Carry out an approved request, once.

    Raises:
        UsageError: it is not approved, is carried out already, or its subject has changed since.
        FraudlakeError: somebody has tampered with the events, ``forget`` has erased it, or the effect failed.
    """
    request = log.find_intact(store, number)
    refused = requests.refusal(request, "carried out", person)
    if refused:
        raise UsageError(refused)
    require_whole(request)
    present = effect.state(place, request)
    if present != request.after:
        _require_unchanged(present, request)
    effect.carry_out(place, request)
    return log.decide(store, number, "carried out", person, None)


def require_whole(request: Request) -> None:
    """Refuse a request that ``forget`` has erased.

    Raises:
        FraudlakeError: it is erased.
    """
    if request.event.is_erased:
        raise FraudlakeError(
            f"request {request.number} named an account that was forgotten, and is erased: repeat the command that "
            "asked, and reject or withdraw this one"
        )


def _require_unchanged(present: dict[str, Any], request: Request) -> None:
    """Refuse a request whose subject has changed.

    Raises:
        UsageError: it has, with the first difference.
    """
    for name, was, is_now in requests.differences(request.before, present):
        before, now, _ = requests.in_words(was, is_now)
        raise UsageError(
            f"request {request.number} was asked when {name} was {before}, and now it is {now}: look at it, and ask "
            "again"
        )
