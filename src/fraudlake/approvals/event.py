"""An event of the approvals: who asked for what, agreed or carried it out, as a row of ``silver_approval_events``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Kind = Literal["requested", "approved", "rejected", "withdrawn", "carried out"]
Action = Literal["rules", "promotion", "forget", "restore", "correction", "definition", "list"]


@dataclass(frozen=True)
class Event:
    """A row of ``silver_approval_events``; times in UTC."""

    event_id: str
    kind: Kind
    request: int
    """Number of the event that asked."""
    person: str
    at: datetime
    reason: str | None = None
    action: Action | None = None
    subject: str | None = None
    before: str | None = None
    after: str | None = None
    arguments: str | None = None
    account_ids: tuple[str, ...] = ()
    number: int = 0
    hash: str | None = None
    is_erased: bool | None = None
