"""Lowering: that one key is enough again takes effect when a second person agrees, as everything else does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fraudlake.approvals import gate
from fraudlake.approvals.gate import Effect
from fraudlake.approvals.log import Proposal
from fraudlake.errors import FraudlakeError
from fraudlake.lake import definition
from fraudlake.lake.definition import Change

if TYPE_CHECKING:
    from fraudlake.approvals.request import Request
    from fraudlake.lake import Lake
    from fraudlake.lake.store import Store


def require(store: Store, approvals: int, change: Change, is_asked: bool) -> None:
    """Return if the number of keys stays or grows.

    Args:
        store: the lake's tables.
        approvals: the number of keys from now on.
        change: who wants it, and why.
        is_asked: write a request otherwise; if false, only say that it would be written.

    Raises:
        WaitingError: a second person must agree, and is asked.
        FraudlakeError: a second person must agree, and is not asked.
    """
    present = gate.keys(store)
    if approvals >= present:
        return
    if not is_asked:
        raise FraudlakeError("approvals: a second person must agree to that: add --yes to ask for it")
    before = {"approvals": present}
    after = {"approvals": approvals}
    gate.require(store, Proposal("definition", "approvals", before, after, after), change.author, change.reason)


def _state(lake: Lake, request: Request) -> dict[str, Any]:
    return {"approvals": gate.keys(lake.store)}


def _carry_out(lake: Lake, request: Request) -> None:
    """Record the approved number of keys, unless that was done before."""
    if _state(lake, request) == request.after:
        return
    change = Change(request.event.person, request.event.reason)
    if not definition.write(lake, request.after, definition.read(lake), change):
        raise FraudlakeError(f"another command has changed the definition of {lake.name} meanwhile: run this one again")


EFFECT = Effect(_state, _carry_out)
"""How an approved number of keys takes effect, in a lake."""
