"""Desk: how alerts become cases, and cases the queue of a day."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, Field

from fraudlake.durations import Duration


class Desk(BaseModel):
    """What the people who look at alerts work with."""

    case_gap: Duration = Field(
        timedelta(days=1),
        gt=timedelta(0),
        description="Longest time, in event time, between an alert of a case and the next.",
    )
    queue_size: int = Field(100, ge=1, le=100_000, description="Items of the review queue of a day.")
    explore: float = Field(
        0.1, ge=0, le=1, description="Share of the queue that is drawn at random among all other accounts of the day."
    )
    review_lock: Duration = Field(
        timedelta(minutes=30), gt=timedelta(0), description="How long an item that an analyst has taken is kept."
    )
    warehouse: str | None = Field(
        None, description="In a workspace: id of the SQL warehouse that the desk reads and writes through."
    )
