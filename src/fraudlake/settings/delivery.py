"""Delivery: the destinations of alerts, and limits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, create_model

from fraudlake.delivery.destinations import DESTINATIONS, SECRETS_LISTED
from fraudlake.text.durations import Duration
from fraudlake.values import SECRET

_GROUPS = tuple(one.settings for one in DESTINATIONS.values() if one.settings.model_fields)
if TYPE_CHECKING:
    _Destinations = BaseModel  # types know no base that is computed: a destination reads its own settings
else:
    _Destinations = create_model("_Destinations", __base__=_GROUPS)


class Delivery(_Destinations):
    """How alerts leave the lake."""

    delivery_folder: str | None = Field(
        None, description="Folder for delivered alerts as JSON lines; in a workspace a folder in a volume."
    )
    delivery_secret: str | None = Field(
        None,
        pattern=SECRET,
        description=f"In a workspace: the secret, as SCOPE/KEY, that holds {SECRETS_LISTED} as a JSON object.",
    )
    suppress_within: Duration = Field(
        timedelta(0),
        ge=timedelta(0),
        description="Deliver no alert nearer than this, in event time, to a delivered one of its account (0: deliver "
        "all).",
    )
    max_alerts_per_minute: int = Field(
        0, ge=0, description="Maximum alerts per minute of detection delivered to a destination (0: no limit)."
    )
