"""Detection: the order, the rules and the state of the detector."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from fraudlake.rules.kinds import Rule
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.times.durations import Duration
from fraudlake.values import from_json

_FIRST_RULE = SmallThenLargeRule(
    name="small_then_large", small_below=1.0, large_above=500.0, within=timedelta(seconds=60)
)


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
    rules: Annotated[tuple[Rule, ...], BeforeValidator(from_json)] = Field(
        (_FIRST_RULE,), description="The rules of a new lake; by default, that of Flink's tutorial."
    )
    buckets: int = Field(16, ge=1, le=4096, description="Hash buckets of accounts that hold the state.")

    @model_validator(mode="after")
    def _rules_are_consistent(self) -> Self:
        names = [rule.name for rule in self.rules]
        if len(set(names)) < len(names):
            raise ValueError(f"rules must have different names, not {names}")
        return self
