"""Detection: the order, the rules and the state of the detector."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from fraudlake.rules.kinds import Rule
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.text.durations import Duration
from fraudlake.values import from_json


class Detection(BaseModel):
    """How alerts are raised."""

    ordering: Literal["arrival", "event_time"] = Field(
        "arrival", description="Order in which the detector processes rows: as they arrive, or in event time."
    )
    max_out_of_orderness: Duration = Field(
        timedelta(seconds=10),
        ge=timedelta(0),
        description="In event_time order: how much older than the newest event time a row may be without being late.",
    )
    small_below: float = Field(1.0, gt=0, description="A transaction below this amount is small.")
    large_above: float = Field(500.0, gt=0, description="A transaction above this amount is large.")
    within: Duration = Field(
        timedelta(seconds=60), gt=timedelta(0), description="Longest time from the small transaction to the large one."
    )
    rules: Annotated[tuple[Rule, ...], BeforeValidator(from_json)] = Field(
        (), description="Several rules at once; those of kind small_then_large replace the three settings above."
    )
    buckets: int = Field(16, ge=1, le=4096, description="Hash buckets of accounts that hold the state.")

    @property
    def active_rules(self) -> tuple[SmallThenLargeRule, ...]:
        """The small-then-large rules: those of ``rules``, or the one that the three separate settings define."""
        return tuple(rule for rule in self.rules if isinstance(rule, SmallThenLargeRule)) or (
            SmallThenLargeRule(
                name="small_then_large",
                small_below=self.small_below,
                large_above=self.large_above,
                within=self.within,
            ),
        )

    @property
    def known_rules(self) -> tuple[Rule, ...]:
        """The rules of all kinds, whose names commands accept."""
        others = (rule for rule in self.rules if not isinstance(rule, SmallThenLargeRule))
        return (*self.active_rules, *others)

    @model_validator(mode="after")
    def _rules_are_consistent(self) -> Self:
        names = [rule.name for rule in self.known_rules]
        if len(set(names)) < len(names):
            raise ValueError(f"rules must have different names, not {names}")
        return self
