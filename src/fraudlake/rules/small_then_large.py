"""The kind ``small_then_large``: a small transaction, immediately followed by a large one, raises an alert."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fraudlake.durations import Duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fraudlake.match_recognize.expressions import Column
    from fraudlake.rules.pattern import CompiledPattern


class SmallThenLargeRule(BaseModel):
    """A small transaction, immediately followed by a large one of the same account, is fraud."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["small_then_large"] = "small_then_large"
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    small_below: float = Field(gt=0)
    large_above: float = Field(gt=0)
    within: Duration = Field(gt=timedelta(0))

    @model_validator(mode="after")
    def _small_is_below_large(self) -> SmallThenLargeRule:
        if self.small_below > self.large_above:
            raise ValueError(f"small_below ({self.small_below:g}) must not exceed large_above ({self.large_above:g})")
        return self

    def compile(self, columns: Mapping[str, Column]) -> CompiledPattern:
        """Return the rule as the pattern that it is; in a stream, the detector's arrays give the same alerts."""
        from fraudlake.rules.pattern import PatternRule

        # The detector's bound is part of the time, a pattern's WITHIN is not: the condition has it.
        milliseconds = round(self.within.total_seconds() * 1000)
        within = f"LARGE.dt <= SMALL.dt + INTERVAL '{milliseconds / 1000:.3f}' SECOND"
        define = {
            "SMALL": f"SMALL.amount < {self.small_below!r}",
            "LARGE": f"LARGE.amount > {self.large_above!r} AND {within}",
        }
        measures = {"seconds_between": "TIMESTAMPDIFF(MILLISECOND, SMALL.dt, LARGE.dt) / 1000.0"}
        pair = PatternRule(name=self.name, pattern="SMALL LARGE", define=define, measures=measures)
        return replace(pair.compile(columns), look_back=self.within)
