"""The approvals' page: what people ask for, before and after, and the forms by which a second person decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.routing import Route

from fraudlake.approvals import gate, log
from fraudlake.approvals.request import in_words, is_same_person
from fraudlake.detection import rule_table
from fraudlake.rules.rule_set import EVALUATED, RuleSet
from fraudlake_desk import effects, rules
from fraudlake_desk.documents.letters import shown
from fraudlake_desk.web import forms
from fraudlake_desk.web.errors import PageError
from fraudlake_desk.web.names import segment
from fraudlake_desk.web.site import Site, done

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request as WebRequest
    from starlette.responses import Response

    from fraudlake.approvals.request import Request
    from fraudlake.lake.store import Store
    from fraudlake_desk.web.access import Person

_SETTLED = 50
"""Most settled requests that the page shows, the latest first."""
_DIGITS = 18
"""Most digits of a request's number."""


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def page(request: WebRequest) -> Response:
        person = request.state.person
        store = site.store_of(person)
        requests = log.read(store)
        waiting = [one for one in requests.values() if one.is_open]
        trials = _trials(store, waiting)
        settled = [one for one in reversed(requests.values()) if not one.is_open]
        return site.page(
            request,
            "approvals.html",
            page="Approvals",
            keys=gate.keys(store),
            notice=_notice(requests, request.query_params.get("done")),
            waiting=[_view(one, person, trials.get(one.number, ())) for one in waiting],
            settled=[_view(one, person) for one in settled[:_SETTLED]],
            longest=log.LONGEST["reason"],
        )

    def decided(decide: Callable[[Store, int, Person, str], Any], read: Any) -> Callable[[WebRequest], Any]:
        async def answer(request: WebRequest) -> Response:
            fields = await read(request, site.access)
            person = request.state.person
            number = _number(request.path_params["number"])
            reason = fields.get("reason", "")
            await forms.carried_out(lambda: decide(site.store_of(person), number, person, reason))
            return done(request, f"/approvals?done={number}")

        return answer

    actions = {
        "approve": decided(_approve, forms.read_of_approver),
        "reject": decided(_reject, forms.read_of_approver),
        "withdraw": decided(_withdraw, forms.read_of_asker),
    }
    posts = [Route(f"/approvals/{{number:str}}/{name}", form, methods=["POST"]) for name, form in actions.items()]
    return [Route("/approvals", page), *posts]


def _approve(store: Store, number: int, person: Person, reason: str) -> None:
    """Approve a request, and carry it out if that takes no Spark."""
    request = log.find_intact(store, number)
    action = request.event.action
    if action in effects.OF_STORE:
        gate.approve(store, number, person.name, reason, effects.find(action), store)
    else:
        gate.require_whole(request)
        log.decide(store, number, "approved", person.name, reason)


def _reject(store: Store, number: int, person: Person, reason: str) -> None:
    log.decide(store, number, "rejected", person.name, reason)


def _withdraw(store: Store, number: int, person: Person, reason: str) -> None:
    log.decide(store, number, "withdrawn", person.name, reason)


def _notice(requests: dict[int, Request], text: str | None) -> str | None:
    """Return the notice about the request that a form has decided on."""
    if not text:
        return None
    request = requests.get(_number(text))
    if request is None:
        return None
    by_command = f": 'fraudlake approvals carry-out {text}' carries it out" if request.status == "approved" else ""
    return f"Request {text} is {request.status}{by_command}."


def _number(text: str) -> int:
    """Return the number of a request in an address.

    Raises:
        PageError: it is no number of a request.
    """
    if len(text) > _DIGITS or not (text.isascii() and text.isdigit()):
        raise PageError(f"give the number of a request, not '{shown(text)}'")
    return int(text)


def _trials(store: Store, requests: Sequence[Request]) -> dict[int, list[tuple[str, str]]]:
    """Return the addresses and names of what-ifs by request: of versions of rules that it wants evaluated."""
    of_rules = [one for one in requests if one.event.action == "rules"]
    present = rules.read(store)[0] if of_rules else RuleSet(())
    trials: dict[int, list[tuple[str, str]]] = {}
    for request in of_rules:
        rows, _ = rules.readable([row for row in request.arguments.get("rows", ()) if row["status"] in EVALUATED])
        for version in map(rule_table.version_of, rows):
            limits = rules.moved_limits(present, version)
            if limits:
                address = f"/rules/{segment(version.rule.name)}/backtest?{urlencode(limits)}"
                trials.setdefault(request.number, []).append((address, str(version)))
    return trials


def _view(request: Request, person: Person, trials: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Return what the page shows of a request to a person."""
    is_own = is_same_person(request.event.person, person.name)
    return {
        "request": request,
        "events": (request.event, *request.followed),
        "changes": [(name, *in_words(before, after)) for name, before, after in request.changes],
        "trials": trials,
        "may_decide": request.status == "waiting" and not is_own and person.may_approve,
        "may_withdraw": is_own and person.may_ask,
    }
