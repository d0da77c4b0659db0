"""Storage: the layout of tables, and how long they keep rows and files."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_settings import NoDecode

from fraudlake.times.durations import Duration
from fraudlake.values import Size, from_json, size_in_bytes


def _row_retention(value: object) -> object:
    """Read limits by table, as a table or as JSON."""
    return from_json(value, '{"silver_transactions": "400 days"}')


RowRetention = Annotated[
    dict[str, Annotated[Duration, Field(ge=timedelta(days=1))]], NoDecode, BeforeValidator(_row_retention)
]
_IDLE = timedelta(days=7)


class Storage(BaseModel):
    """How tables are stored."""

    clustering: Literal["zorder", "liquid"] = Field(
        "zorder", description="Layout of new tables: ZORDER by account in date partitions, or liquid clustering."
    )
    target_file_size: Size = Field(
        "512k", description="Approximate size of the files that optimize writes, such as 512k or 128m."
    )
    cluster_growth: float = Field(
        0.2, ge=0, description="Share by which a day must grow before optimize clusters it again; 0: by any row."
    )
    retention: Duration = Field(
        timedelta(days=7), ge=timedelta(0), description="How long optimize keeps files that tables no longer use."
    )

    row_retention: RowRetention = Field(
        {}, description='How long tables keep rows, in event time, as JSON: {"silver_transactions": "400d", …}.'
    )
    max_idle: Duration | None = Field(
        None,
        description="How old the newest transaction and commit may be when optimize removes rows or files: 7 days, or "
        "the shortest limit of row_retention. A clock that is ahead makes them older.",
    )

    @property
    def target_file_bytes(self) -> int:
        """Target size of the files that optimize writes, in bytes."""
        return size_in_bytes(self.target_file_size)

    @property
    def longest_idle(self) -> timedelta:
        """The setting ``max_idle``."""
        return self.max_idle or min([_IDLE, *self.row_retention.values()])
