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


_BY_KIND = {str(one.model_fields["kind"].default): one for one in AnyRule.__subclasses__()}
KINDS = {kind: tuple(one.model_fields) for kind, one in _BY_KIND.items()}
"""The names of the fields of each kind."""

if TYPE_CHECKING:
    Rule = AnyRule
else:
    Rule = Annotated[reduce(or_, (Annotated[one, Tag(kind)] for kind, one in _BY_KIND.items())), Discriminator(_kind)]
"""A rule of any kind."""
RULE: TypeAdapter[Rule] = TypeAdapter(Rule)
"""Reads and checks a rule."""
