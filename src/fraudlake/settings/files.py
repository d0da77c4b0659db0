"""Files: how landed files are found and read."""

from __future__ import annotations

from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field, field_validator

from fraudlake.values import MOST_INT, Size


class Files(BaseModel):
    """How landed files are read."""

    max_files_per_trigger: int = Field(1000, ge=1, le=MOST_INT, description="Maximum number of files in a micro-batch.")
    max_bytes_per_trigger: Size | None = Field(
        None, description="Approximate size of a micro-batch, such as 512m or 2g."
    )
    max_value_size: Size = Field("1m", description="A file with a larger value, such as a name of 2m, is rejected.")
    landing_timezone: str = Field("UTC", description="Time zone of the JVM of Flink, which wrote the files.")
    file_events: Literal["off", "managed"] = Field(
        "off", description="How Auto Loader finds new files: by listing, or by the file events of the landing folder."
    )

    @field_validator("landing_timezone")
    @classmethod
    def _timezone_is_known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            raise ValueError("must be a time zone such as 'UTC' or 'America/New_York'") from None
        return name
