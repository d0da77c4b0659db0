"""Disputes: the format of verdict files, how to find the payments in them, and the folder in which they land."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from fraudlake.times.durations import Duration
from fraudlake.values import from_json

IDS = ("transaction_id", "alert_id", "case_id")
"""The fields with an id of the lake."""
REFERENCE = "reference"
"""The field with the payment's own reference, which is also in a declared column."""
PAYMENT = ("account_id", "amount", "timestamp")
"""The fields that identify a payment without an id."""
NAMES = (*IDS, REFERENCE, *PAYMENT, "verdict", "analyst", "reason", "decided_at")
"""The fields that a file may have."""


def _fields(value: object) -> object:
    """Read a mapping of :data:`NAMES` to the file's fields, as a table or as ``NAME=FIELD, …``."""
    if isinstance(value, Mapping):
        pairs = [(str(name), True, source) for name, source in value.items()]
    else:
        parts = (part.partition("=") for part in str(value).split(",") if part.strip())
        pairs = [(name.strip(), bool(is_given), source.strip()) for name, is_given, source in parts]
    for name, is_given, source in pairs:
        if not is_given or name not in NAMES:
            part = f"{name}={source}" if is_given else name
            raise ValueError(f"'{part}' is not NAME=FIELD with one of the names {', '.join(NAMES)}")
    return {name: source for name, _, source in pairs}


class Format(BaseModel):
    """How to read a file of verdicts, as far as the file does not say so itself, and how to find its payments."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    map: Annotated[dict[str, str], BeforeValidator(_fields)] = Field(default={})
    """The file's fields by :data:`NAMES`; fields that are not mapped have these names themselves."""
    verdict: Literal["fraud", "genuine"] | None = None
    """The verdict of all rows."""
    reference: str | None = None
    """The declared column with the payments' own references."""
    tolerance: Duration = Field(default=timedelta(0), ge=timedelta(0))
    """The largest difference between ``timestamp`` and the time of the payment that it identifies."""
    encoding: str | None = None
    """The encoding of a CSV file; by default UTF-8, or UTF-16 if the file begins with its byte order mark."""
    date_pattern: str | None = None
    """The pattern of ``decided_at`` for ``strptime``; by default ISO 8601. Times without a zone are UTC."""
    timestamp_pattern: str | None = None
    """The pattern of ``timestamp``; by default that of ``decided_at``."""


class DisputeFolder(Format):
    """A folder of files in one format."""

    folder: Path
    """The folder, on this machine or in a volume."""


def _folder(value: object) -> object:
    """Read a folder with its format, as a table or as JSON; an empty text means no folder."""
    return from_json(value, '{"folder": "disputes"}') if value else None


class Disputes(BaseModel):
    """Where dispute files land."""

    disputes: Annotated[DisputeFolder | None, NoDecode, BeforeValidator(_folder)] = Field(
        None, description='Folder of dispute files, and their format, as JSON: {"folder": …, "verdict": "fraud", …}.'
    )
