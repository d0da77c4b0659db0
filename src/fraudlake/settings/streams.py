"""Streams: how long a stream runs, and how often."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from fraudlake.times.durations import Duration

_ADDRESS = r"(127(\.\d{1,3}){3}|localhost|\[::1\]):(\d{1,5})"


def _loopback(address: str) -> str:
    match = re.fullmatch(_ADDRESS, address)
    if match is None or int(match[3]) > 65_535:
        raise ValueError("must be a loopback address and a port, such as 127.0.0.1:9464: a collector runs next to it")
    return address


class Streams(BaseModel):
    """How the streams run."""

    trigger: Literal["available-now", "continuous"] = Field(
        "available-now", description="Process what has arrived and stop, or keep running."
    )
    interval: Duration = Field(
        timedelta(seconds=1), gt=timedelta(0), description="Time between micro-batches of a continuous stream."
    )
    metrics_address: Annotated[str, AfterValidator(_loopback)] | None = Field(
        None,
        description="Loopback address and port at which running streams serve OpenMetrics, such as 127.0.0.1:9464.",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of what is written to standard error: text for people, or a JSON object a line."
    )
