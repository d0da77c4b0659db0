"""Late: the items of all queues that have been open for longer than the setting ``review_limit``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from fraudlake.review import cases, items, opened
from fraudlake.tables import GOLD_CASES, GOLD_REVIEW_QUEUE, SILVER_REVIEW_EVENTS

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.review.items import Queued

_CHANGED = (
    f"SELECT item_id FROM {SILVER_REVIEW_EVENTS.name} WHERE kind IN ('withdrawn', 'merged', 'separated') "
    f"UNION ALL SELECT merged_into FROM {SILVER_REVIEW_EVENTS.name} WHERE merged_into IS NOT NULL"
)
"""Items whose verdict an event may have undone, or made one of only a part."""
_VERDICTS = (
    f"SELECT verdict.item_id, verdict.transaction_ids FROM {SILVER_REVIEW_EVENTS.name} verdict "
    f"LEFT ANTI JOIN ({_CHANGED}) changed ON changed.item_id = verdict.item_id "
    "WHERE verdict.kind IN ('verdict', 'corrected')"
)
_QUEUED = (
    "SELECT item.day, item.rank, item.item_id, item.kind, item.entity, item.entity_key, item.account_id, "
    "item.built_at, known.case_id, known.opened_at, known.last_alert_at, known.rules, known.alert_ids, "
    f"known.transaction_ids FROM {GOLD_REVIEW_QUEUE.name} item "
    f"LEFT JOIN {GOLD_CASES.name} known ON known.case_id = item.item_id"
)
_UNDECIDED = (
    f"SELECT queued.* FROM ({_QUEUED}) queued LEFT ANTI JOIN ({_VERDICTS}) verdict "
    "ON verdict.item_id = queued.item_id "
    f"AND (queued.kind = '{cases.DRAWN}' OR verdict.transaction_ids = queued.transaction_ids) "
    "ORDER BY queued.day, queued.rank"
)
"""The rows of all queues, with their cases, without those that certainly are decided. Their states say which of the
others are: most rows of a lake are decided, and to read their events would take many times as long."""


@dataclass(frozen=True)
class Late:
    """The late items of a lake."""

    items: int = 0
    """Number of late items; one that is in the queues of several days counts once."""
    oldest_at: datetime | None = None
    """When the queue of the oldest was built (UTC); None if no item is late."""
    oldest_day: date | None = None
    """The day of that queue."""


def count(store: Store, now: datetime | None = None) -> Late:
    """Count the items of all queues that are late as the desk marks them: see :attr:`Queued.is_late`."""
    queued = [one for one in _undecided(store, now or datetime.now(UTC)) if one.is_late]
    if not queued:
        return Late()
    oldest = min(queued, key=lambda one: (one.row["built_at"], one.row["day"]))
    return Late(len({one.item.item_id for one in queued}), oldest.row["built_at"], oldest.row["day"])


def _undecided(store: Store, now: datetime) -> list[Queued]:
    """Return the rows of all queues, and the cases opened by hand, that may be open."""
    rows: list[dict[str, Any]] = store.query(
        _UNDECIDED, GOLD_REVIEW_QUEUE, GOLD_CASES, SILVER_REVIEW_EVENTS
    ).to_pylist()
    by_hand = opened.rows(store, lambda event: event.day is not None, has_payments=False)
    by_name = {row["item_id"]: row for row in rows if row["case_id"] is not None}
    # A case may have become part of an earlier one, which a late alert has joined with it.
    joined = [row["item_id"] for row in rows if row["kind"] == cases.CASE and row["case_id"] is None]
    by_name |= cases.named(store, joined)
    by_name |= {case["case_id"]: case for case in by_hand}
    return items.resolved(store, [*rows, *map(opened.queued, by_hand)], by_name, now)
