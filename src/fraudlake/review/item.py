"""An item of the review: what an analyst decides on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from fraudlake.entity import ACCOUNT

if TYPE_CHECKING:
    from fraudlake.review.window import Window


@dataclass(frozen=True)
class Item:
    """The unit of review: a case, or an account of a day that was drawn at random."""

    item_id: str
    """The ``case_id`` of a case, or the id that the queue gave to a drawn account."""
    case_id: str | None
    entity: str
    entity_key: str
    account_id: str
    transaction_ids: tuple[str, ...]
    """The transactions that a verdict covers."""
    names: frozenset[str]
    """Every id that names it; for a case, the ids of its alerts."""
    day: date | None = None
    """The day of the queue that it is from."""
    about: Window | None = None
    """The days of its alerts, or the day for which it was drawn."""
    parts: tuple[Item, ...] = ()
    """If others were merged into the case: the case without them, then the others."""
    as_of: int = 0
    """Number of the last merge or separation that it reflects."""

    @property
    def all_names(self) -> frozenset[str]:
        """Its names, and those of its parts."""
        return self.names.union(*(part.names for part in self.parts))

    @property
    def has_accounts(self) -> bool:
        """Whether its payments may be of several accounts."""
        return any((one.entity, one.entity_key) != (ACCOUNT, self.account_id) for one in self.parts or (self,))
