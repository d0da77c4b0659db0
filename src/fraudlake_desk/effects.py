"""Effects: finds the function that carries out an approved request, by its action."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fraudlake.approvals.event import Action
    from fraudlake.approvals.gate import Effect

OF_STORE: dict[Action, str] = {
    "rules": "fraudlake.detection.rule_table",
    "correction": "fraudlake_desk.review.corrections",
    "list": "fraudlake_desk.lists",
}
"""Modules whose effects take the lake's store: the desk carries them out itself."""
_OF_LAKE: dict[Action, str] = {
    "definition": "fraudlake.approvals.lowering",
    "promotion": "fraudlake.model.champion",
    "restore": "fraudlake.operations.restore",
    "forget": "fraudlake.forget.removal",
}
"""Modules whose effects take the open lake, and load pyspark."""


def find(action: Action) -> Effect:
    """Return the effect of an action."""
    effect: Effect = import_module((OF_STORE | _OF_LAKE)[action]).EFFECT
    return effect
