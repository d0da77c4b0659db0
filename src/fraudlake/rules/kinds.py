"""Kinds of rule: a rule of any kind is read by its ``kind``.

A kind is a module with a model of its parameters. Its method ``compile`` checks the rule against the columns of the
lake and returns a :class:`~fraudlake.rules.compiled_rule.CompiledRule`, which evaluates rows.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag, TypeAdapter

from fraudlake.rules.pattern import PatternRule
from fraudlake.rules.small_then_large import SmallThenLargeRule
from fraudlake.rules.threshold import ThresholdRule


def _kind(rule: Any) -> str:
    """Return a rule's kind; one without is of today's only kind."""
    return str(rule.get("kind", "small_then_large") if isinstance(rule, dict) else rule.kind)


Rule = Annotated[
    Annotated[SmallThenLargeRule, Tag("small_then_large")]
    | Annotated[ThresholdRule, Tag("threshold")]
    | Annotated[PatternRule, Tag("pattern")],
    Discriminator(_kind),
]
"""A rule of any kind."""
RULE: TypeAdapter[Rule] = TypeAdapter(Rule)
"""Reads and checks a rule."""
