"""Streams: how long a stream runs, and how often."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, Field

from fraudlake.durations import Duration


class Streams(BaseModel):
    """How the streams run."""

    trigger: Literal["available-now", "continuous"] = Field(
        "available-now", description="Process what has arrived and stop, or keep running."
    )
    interval: Duration = Field(
        timedelta(seconds=1), gt=timedelta(0), description="Time between micro-batches of a continuous stream."
    )
