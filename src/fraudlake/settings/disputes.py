"""Disputes: how files of verdicts are written, how their payments are found, and the folder in which they land."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from fraudlake.durations import Duration
from fraudlake.values import from_json

IDS = ("transaction_id", "alert_id", "case_id")
"""The fields with an id of the lake."""
REFERENCE = "reference"
"""The field with the payment's own reference, which a declared column has, too."""
PAYMENT = ("account_id", "amount", "timestamp")
"""The fields that find a payment of which no id is known."""
NAMES = (*IDS, REFERENCE, *PAYMENT, "verdict", "analyst", "reason", "decided_at")
"""The fields that a file may have."""


def _fields(value: object) -> object:
    """Read the file's fields by their names here, as a table or as ``NAME=FIELD, …``."""
    if isinstance(value, Mapping):
        pairs = [(str(name), True, source) for name, source in value.items()]
    else:
        parts = (part.partition("=") for part in str(value).split(",") if part.strip())
        pairs = [(name.strip(), bool(is_given), source.strip()) for name, is_given, source in parts]
    for name, is_given, source in pairs:
        if not is_given or name not in NAMES:
            part = f"{name}={source}" if is_given else name
            raise ValueError(f"'{part}' is no NAME=FIELD with one of the names {', '.join(NAMES)}")
    return {name: source for name, _, source in pairs}


class Format(BaseModel):
    """How a file of verdicts is to be read, if it does not say so itself, and how its payments are found."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    map: Annotated[dict[str, str], BeforeValidator(_fields)] = Field(default={})
    """The file's fields by :data:`NAMES`; others have these names themselves."""
    verdict: Literal["fraud", "genuine"] | None = None
    """The verdict of all rows."""
    reference: str | None = None
    """The declared column that has the payments' own references."""
    tolerance: Duration = Field(default=timedelta(0), ge=timedelta(0))
    """How far ``timestamp`` may be from the time of the payment that it finds."""
    encoding: str | None = None
    """That of a CSV file; by default UTF-8, or UTF-16 if the file begins with its mark."""
    date_pattern: str | None = None
    """The pattern of ``decided_at``, as ``strptime`` has it; by default ISO 8601. Times without a zone are UTC."""
    timestamp_pattern: str | None = None
    """The pattern of ``timestamp``; by default that of ``decided_at``."""


class DisputeFolder(Format):
    """A folder of files in one format."""

    folder: Path
    """The folder, on this machine or in a volume."""


def _folder(value: object) -> object:
    """Read a folder with its format as a table or as JSON; an empty text is none."""
    return from_json(value, '{"folder": "disputes"}') if value else None


class Disputes(BaseModel):
    """Where dispute files land."""

    disputes: Annotated[DisputeFolder | None, NoDecode, BeforeValidator(_folder)] = Field(
        None, description='Folder of dispute files, and their format, as JSON: {"folder": …, "verdict": "fraud", …}.'
    )
