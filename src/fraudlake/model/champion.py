"""Champion: makes a version of the model the one that scores, or asks a second person for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.approvals import gate, log
from fraudlake.approvals.gate import Effect
from fraudlake.approvals.log import Proposal
from fraudlake.model import published
from fraudlake.model.registry import Registry

if TYPE_CHECKING:
    from fraudlake.approvals.request import Request
    from fraudlake.lake import Lake
    from fraudlake.model.published import Model
    from fraudlake.model.registry import Version


def make_champion(lake: Lake, registry: Registry, number: str, reason: str | None) -> Version:
    """Make a version the champion. It is loaded first, so a version that cannot be used is never promoted.

    Raises:
        WaitingError: a second person must agree.
        FraudlakeError: the version cannot be used.
    """
    loaded = registry.load(number)
    _require_agreement(lake, registry, number, reason, is_rollback=False)
    version = registry.promote(number)
    publish(lake, loaded)
    return version


def roll_back(lake: Lake, reason: str | None) -> Version:
    """Make the champion's predecessor the champion again.

    Raises:
        WaitingError: a second person must agree.
        FraudlakeError: the champion replaced none, or the version that it replaced cannot be used.
    """
    registry = Registry.of(lake)
    number = registry.replaced().number
    loaded = registry.load(number)
    _require_agreement(lake, registry, number, reason, is_rollback=True)
    version = registry.rollback()
    publish(lake, loaded)
    return version


def publish(lake: Lake, champion: Model) -> None:
    """Publish the champion for micro-batches, unless it is the latest that was published."""
    if not published.is_champion(lake.store.rows(tables.GOLD_MODELS), champion):
        lake.writer(tables.GOLD_MODELS).write(published.row(champion, datetime.now(UTC)), "append")


def _require_agreement(lake: Lake, registry: Registry, number: str, reason: str | None, is_rollback: bool) -> None:
    arguments = {"version": number, "is_rollback": is_rollback}
    proposal = Proposal("promotion", f"model version {number}", _champion(registry), {"champion": number}, arguments)
    gate.require(lake.store, proposal, None, reason and reason[: log.LONGEST["reason"]])


def _champion(registry: Registry) -> dict[str, Any]:
    champion = registry.champion()
    return {"champion": None if champion is None else champion.number}


def _state(lake: Lake, request: Request) -> dict[str, Any]:
    return _champion(Registry.of(lake))


def _carry_out(lake: Lake, request: Request) -> None:
    """Make the version of a request the champion, unless that was done before, and publish it."""
    registry = Registry.of(lake)
    loaded = registry.load(request.arguments["version"])
    if _champion(registry) != request.after:
        if request.arguments["is_rollback"]:
            registry.rollback()
        else:
            registry.promote(request.arguments["version"])
    publish(lake, loaded)


EFFECT = Effect(_state, _carry_out)
"""How approved promotions and rollbacks take effect, in a lake."""
