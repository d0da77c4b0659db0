"""An event of the review: what a person did with an item, as a row of ``silver_review_events``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

Kind = Literal[
    "taken",
    "released",
    "verdict",
    "corrected",
    "withdrawn",
    "noted",
    "attached",
    "waiting",
    "assigned",
    "escalated",
    "opened",
    "merged",
    "separated",
    "erased",
]
Verdict = Literal["fraud", "genuine", "unsure"]
VERDICTS: tuple[Verdict, ...] = ("fraud", "genuine", "unsure")
LABELS: tuple[Verdict, ...] = ("fraud", "genuine")
"""The verdicts that label payments."""


@dataclass(frozen=True)
class Event:
    """A row of ``silver_review_events``; times in UTC."""

    event_id: str
    item_id: str
    kind: Kind
    analyst: str
    at: datetime
    account_id: str
    entity: str
    entity_key: str
    verdict: Verdict | None = None
    reason: str | None = None
    note: str | None = None
    expires_at: datetime | None = None
    assignee: str | None = None
    transaction_ids: tuple[str, ...] = ()
    fraud_ids: tuple[str, ...] = ()
    fraud_amount: float | None = None
    case_id: str | None = None
    day: date | None = None
    number: int = 0
    hash: str | None = None
    is_erased: bool | None = None
    merged_into: str | None = None
    file_name: str | None = None
    file_size: int | None = None
    file_hash: str | None = None

    @property
    def is_verdict(self) -> bool:
        """Whether it is a verdict or the correction of one."""
        return self.kind in ("verdict", "corrected")

    @property
    def is_label(self) -> bool:
        """Whether it labels payments, or withdraws their labels."""
        return self.is_verdict or self.kind == "withdrawn"

    @property
    def labels(self) -> dict[str, bool | None]:
        """The label of each transaction that it covers: true is fraud; None: no label."""
        if self.verdict not in LABELS:
            return dict.fromkeys(self.transaction_ids)
        fraud = set(self.fraud_ids)
        return {id_: id_ in fraud for id_ in self.transaction_ids}
