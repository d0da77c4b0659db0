"""The kind ``small_then_large``: a small transaction, immediately followed by a large one, raises an alert.

The predicates use only operators, so they accept plain numbers, arrays, Spark columns and SQL terms alike. The
detector, the fast lane, gold's counts and the rule as a pattern are all built from them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from fraudlake.entity import NO_ENTITIES, Entities
from fraudlake.errors import UsageError
from fraudlake.rules import rule_lists
from fraudlake.rules.any_rule import AnyRule
from fraudlake.times.durations import Duration, microseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fraudlake.rules.kinds.pattern import CompiledPattern
    from fraudlake_patterns.expressions import Column


ROLES = ("SMALL", "LARGE")
"""The names of an alert's transactions in its evidence."""
MEASURE = "seconds_between"
"""The measure: the event time from the small transaction to the large one, negative if the large one is earlier."""


class SmallThenLargeRule(AnyRule):
    """A small transaction, immediately followed by a large one of the same entity, is fraud."""

    kind: Literal["small_then_large"] = "small_then_large"
    small_below: float = Field(gt=0)
    large_above: float = Field(gt=0)
    within: Duration = Field(gt=timedelta(0))

    @model_validator(mode="after")
    def _small_is_below_large(self) -> SmallThenLargeRule:
        if self.small_below > self.large_above:
            raise ValueError(f"small_below ({self.small_below:g}) must not exceed large_above ({self.large_above:g})")
        return self

    @property
    def limits(self) -> dict[str, float]:
        """The limits of the small and of the large amount."""
        return {"small_below": self.small_below, "large_above": self.large_above}

    def compared(self, measures: Mapping[str, Any], amounts: Sequence[float]) -> dict[str, float]:
        """Return the small and the large amount."""
        return {"small_below": amounts[0], "large_above": amounts[-1]}

    def is_small(self, amount: Any) -> Any:
        """Return whether amounts are small."""
        return amount < self.small_below

    def is_large(self, amount: Any) -> Any:
        """Return whether amounts are large."""
        return amount > self.large_above

    def is_raised(self, small: Any, large: Any) -> Any:
        """Return whether transactions of an entity, ``large`` immediately after ``small``, raise an alert.

        Each is a mapping or a Spark struct with ``amount`` and ``time`` (microseconds). In the order of arrival the
        large one may have the earlier time; it raises an alert within the same bound.
        """
        gap = large["time"] - small["time"]
        within = microseconds(self.within)
        return self.is_small(small["amount"]) & self.is_large(large["amount"]) & (gap <= within) & (gap >= -within)

    def compile(self, columns: Mapping[str, Column], entities: Entities = NO_ENTITIES) -> CompiledPattern:
        """Compile the rule as a pattern; in a stream, the detector's arrays give the same alerts."""
        from sqlglot import exp

        from fraudlake.rules.kinds.pattern import CompiledPattern, PatternRule

        small, large = (exp.column("amount", table=name) for name in ROLES)
        # The detector's bound is inclusive, but a pattern's WITHIN is exclusive: a condition has the bound.
        milliseconds = round(self.within.total_seconds() * 1000)
        within = f"LARGE.dt <= SMALL.dt + INTERVAL '{milliseconds / 1000:.3f}' SECOND"
        define = {
            "SMALL": self.is_small(small).sql(),
            "LARGE": f"{self.is_large(large).sql()} AND {within}",
        }
        measures = {MEASURE: "TIMESTAMPDIFF(MILLISECOND, SMALL.dt, LARGE.dt) / 1000.0"}
        lists = self.resolve_lists(columns, entities, [column.name for column in self.key(columns, entities)])
        if further := rule_lists.further_columns(lists):
            raise UsageError(
                f"{self.name}: rules of the kind {self.kind} keep no {min(further)}: name lists of {self.entity} or of "
                "account, or write the rule as a pattern"
            )
        pair = PatternRule(
            name=self.name, entity=self.entity, pattern=" ".join(ROLES), define=define, measures=measures
        )
        query = pair.compile(columns, entities).query
        selected = tuple(output for output in query.select if output.name == MEASURE)
        return CompiledPattern(replace(query, select=selected), self.within)
