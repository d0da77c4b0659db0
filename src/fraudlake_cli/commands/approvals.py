"""Commands for two keys: approvals list, show, approve, reject, withdraw and carry-out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fraudlake_cli.app import App, cli, options, person_of

if TYPE_CHECKING:
    from fraudlake.approvals.event import Kind
    from fraudlake.approvals.gate import Effect
    from fraudlake.approvals.request import Request
    from fraudlake.lake.store import Store

_number = click.argument("number", type=click.IntRange(min=1), metavar="REQUEST")
_reason = click.option("--reason", required=True, help="Why, in a few words.")


@cli.group(example="fraudlake approvals list")
def approvals() -> None:
    """Agree to what others ask for, if the lake needs two people.

    You act as the signed-in user of the workspace, or as this system's user.
    """


@approvals.command(name="list", example="fraudlake approvals list --all")
@click.option("--all", "is_all", is_flag=True, help="Include requests that are settled.")
@options("warehouse")
@click.pass_obj
def list_(app: App, /, is_all: bool, **flags: str | None) -> None:
    """List the requests that wait, or are approved and not carried out, the oldest first."""
    from fraudlake.approvals import log

    requests = [one for one in log.read(app.open_store(**flags)).values() if is_all or one.is_open]
    listed = {"requests": [_as_dict(one) for one in requests]}
    app.say(listed, "\n".join(map(_line, requests)) or "no request waits; add --all to see settled ones")


@approvals.command(example="fraudlake approvals show 7")
@_number
@options("warehouse")
@click.pass_obj
def show(app: App, /, number: int, **flags: str | None) -> None:
    """Show what REQUEST changes, before and after, and who did what about it."""
    from fraudlake.approvals import log
    from fraudlake.approvals.request import in_words

    request = log.find(app.open_store(**flags), number)
    changes = []
    for name, old, new in request.changes:
        before, after, same = in_words(old, new)
        changes += [name, f"  before  {before}", f"  after   {after}", *([f"  stays   {same}"] if same else [])]
    events = [
        f"{event.at:%Y-%m-%d %H:%M:%S}  {event.kind} by {event.person}{f': {event.reason}' if event.reason else ''}"
        for event in (request.event, *request.followed)
    ]
    app.say(_as_dict(request), "\n".join([_line(request), *changes, *events]))


@approvals.command(example="fraudlake approvals approve 7 --reason 'the backtest is right'")
@_number
@_reason
@options("warehouse")
@click.pass_obj
def approve(app: App, /, number: int, reason: str, **flags: str | None) -> None:
    """Agree to REQUEST, and carry it out at once; it must be another person's.

    It is refused if what it changes has changed since it was asked. Repeat the command if it was killed.
    """
    from fraudlake.approvals import gate

    store = app.open_store(**flags)
    effect, place = _effect(app, store, number, flags)
    request = gate.approve(store, number, person_of(store, None), reason, effect, place)
    _say(app, request)


@approvals.command("carry-out", example="fraudlake approvals carry-out 7")
@_number
@options("warehouse")
@click.pass_obj
def carry_out(app: App, /, number: int, **flags: str | None) -> None:
    """Carry out REQUEST, which was approved before: at the desk, or by a command that was killed."""
    from fraudlake.approvals import gate

    store = app.open_store(**flags)
    effect, place = _effect(app, store, number, flags)
    _say(app, gate.carry_out(store, number, person_of(store, None), effect, place))


@approvals.command(example="fraudlake approvals reject 7 --reason 'too many alerts'")
@_number
@_reason
@options("warehouse")
@click.pass_obj
def reject(app: App, /, number: int, reason: str, **flags: str | None) -> None:
    """Refuse REQUEST, which must be another person's; its author may ask again."""
    _decide(app, number, "rejected", reason, flags)


@approvals.command(example="fraudlake approvals withdraw 7 --reason 'no longer needed'")
@_number
@_reason
@options("warehouse")
@click.pass_obj
def withdraw(app: App, /, number: int, reason: str, **flags: str | None) -> None:
    """Take your own REQUEST back, before it is carried out."""
    _decide(app, number, "withdrawn", reason, flags)


def _decide(app: App, number: int, kind: Kind, reason: str, flags: dict[str, str | None]) -> None:
    from fraudlake.approvals import log

    store = app.open_store(**flags)
    _say(app, log.decide(store, number, kind, person_of(store, None), reason))


def _effect(app: App, store: Store, number: int, flags: dict[str, str | None]) -> tuple[Effect, Any]:
    """Return what carries out a request, and the lake or the store that it takes."""
    from fraudlake.approvals import log
    from fraudlake_desk import effects

    action = log.find(store, number).event.action
    assert action is not None
    return effects.find(action), store if action in effects.OF_STORE else app.open(**flags)


def _say(app: App, request: Request) -> None:
    app.say(_as_dict(request), f"request {request.number} is {request.status}: {request.event.subject or 'erased'}")


def _line(request: Request) -> str:
    event = request.event
    return (
        f"{request.number:>4}  {request.status:<11}  {event.subject or 'erased'}; {event.person}, "
        f"{event.at:%Y-%m-%d %H:%M}: {event.reason or 'erased'}"
    )


def _as_dict(request: Request) -> dict[str, Any]:
    shown = {"request": request.number, "status": request.status}
    parts = {name: getattr(request, name) for name in ("before", "after", "arguments")}
    return {**shown, **asdict(request.event), **parts, "followed": [asdict(event) for event in request.followed]}
