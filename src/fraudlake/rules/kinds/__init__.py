"""Kinds of rule: each module of this folder defines one, and a rule's ``kind`` selects it."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from operator import or_
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Tag, TypeAdapter

from fraudlake.rules.any_rule import AnyRule

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def _kind(rule: Any) -> str:
    """Return the kind of a rule; by default small_then_large."""
    return str(rule.get("kind", "small_then_large") if isinstance(rule, dict) else rule.kind)


if TYPE_CHECKING:
    Rule = AnyRule
else:
    _KINDS = (Annotated[one, Tag(one.model_fields["kind"].default)] for one in AnyRule.__subclasses__())
    Rule = Annotated[reduce(or_, _KINDS), Discriminator(_kind)]
"""A rule of any kind."""
RULE: TypeAdapter[Rule] = TypeAdapter(Rule)
"""Reads and checks a rule."""
