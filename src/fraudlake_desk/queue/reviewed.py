"""What was reviewed: joins a lake's queues, cases and decisions, the input of :mod:`fraudlake_desk.queue.missed`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.review import cases, event_log, item_state, merges
from fraudlake.text.sql_text import one_of
from fraudlake_desk.queue import missed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fraudlake.lake import Lake
    from fraudlake.lake.store import Store
    from fraudlake.review.event import Event
    from fraudlake.tables import Table
    from fraudlake_desk.queue.missed import Floats, Missed

LATEST = timedelta(days=28)
"""The time span, up to the latest queue, for which estimates are shown."""


@dataclass(frozen=True)
class Reviewed:
    """The queues and decisions of a lake, by the current ids of items: cases may have been joined since."""

    queue: pa.Table
    """Rows of ``gold_review_queue``, :data:`missed.QUEUE_COLUMNS`."""
    decisions: dict[str, Event]
    """The event with the latest verdict on each decided item."""
    cases: dict[str, str]
    """The case of each alert."""
    store: Store
    """The lake's tables."""

    @classmethod
    def read(cls, store: Store) -> Reviewed | None:
        """Read a lake; None without any queue or review event."""
        queue = _queue(store)
        events = event_log.read_events(store) if len(queue) else []
        return cls._build(store, queue, events) if events else None

    @classmethod
    def on_days(cls, store: Store, condition: str) -> Reviewed:
        """Read the queues whose ``day`` fulfils a condition in SQL, and the decisions on their items."""
        queue = _queue(store, f"WHERE {condition}")
        past = cls._build(store, queue, event_log.read_events(store) if len(queue) else [])
        listed = set(past.queue["item_id"].to_pylist())
        return replace(past, decisions={item: one for item, one in past.decisions.items() if item in listed})

    @classmethod
    def _build(cls, store: Store, queue: pa.Table, events: Iterable[Event]) -> Reviewed:
        of_alerts = cases.cases_by_alert(store) if len(queue) else {}
        names = [of_alerts.get(item, item) for item in queue["item_id"].to_pylist()]
        queue = queue.set_column(queue.column_names.index("item_id"), "item_id", pa.array(names, pa.string()))
        states = item_state.states(events, datetime.now(UTC), of_alerts)
        decisions = {item: state.decision for item, state in states.items() if state.decision}
        decisions |= merges.read_merges(store).decisions(store, decisions) if decisions else {}
        return cls(queue, decisions, of_alerts, store)

    @property
    def verdicts(self) -> dict[str, str]:
        """The latest verdict on each decided item."""
        return {item: str(decision.verdict) for item, decision in self.decisions.items()}

    def latest(self) -> Missed | None:
        """Estimate the fraud that the lists of the latest four weeks missed; None if no day has a decided draw."""
        last = pc.max(self.queue["day"]).as_py()
        return self.missed(last - LATEST + timedelta(days=1), last)

    def missed(self, first: date | None = None, last: date | None = None) -> Missed | None:
        """Estimate the fraud that the lists of some days missed: see :func:`missed.over`."""
        amounts = {item: one.fraud_amount for item, one in self.decisions.items() if one.fraud_amount is not None}
        return missed.over(self.queue, self.verdicts, first, last, amounts, self._spent)

    def _spent(self, days: list[date], most: int, population: int) -> Floats | None:
        """Return the largest daily amounts of unlisted accounts: see :data:`missed.Spent`."""
        table = tables.GOLD_ACCOUNT_DAILY
        queue = tables.GOLD_REVIEW_QUEUE
        others = (
            f"FROM {table.name} d WHERE {one_of('d.date', days)} AND NOT EXISTS (SELECT 1 FROM {queue.name} q "
            "WHERE q.day = d.date AND q.account_id = d.account_id AND q.kind = 'case')"
        )
        (counts,) = self.store.query(f"SELECT count(*) AS accounts {others}", table, queue).to_pylist()
        if counts["accounts"] < population:
            return None
        largest = f"SELECT d.amount_sum {others} ORDER BY d.amount_sum DESC LIMIT {most}"
        amounts: Floats = self.store.query(largest, table, queue)["amount_sum"].to_numpy()
        return amounts

    def weights(self) -> dict[str, float]:
        """Return the number of transactions that each decided transaction represents, by id.

        A transaction of a listed case represents only itself, even if its account was drawn, too.
        """
        of_items = missed.weights(self.queue, self.verdicts)
        by_weight = sorted(of_items.items(), key=lambda entry: -entry[1])
        return {name: weight for item, weight in by_weight for name in self.decisions[item].transaction_ids}


def read_reviewed(lake: Lake) -> Reviewed | None:
    """Read an open lake; None without queues, which costs a single lookup."""
    return Reviewed.read(lake.store) if lake.store.has_rows(tables.GOLD_REVIEW_QUEUE) else None


def latest_missed(lake: Lake) -> Missed | None:
    """Estimate what the queues of an open lake's latest four weeks missed; None without decided draws."""
    past = read_reviewed(lake)
    return past.latest() if past else None


def _queue(store: Store, where: str = "") -> pa.Table:
    return _select(store, ", ".join(missed.QUEUE_COLUMNS), tables.GOLD_REVIEW_QUEUE, f"{where} ORDER BY day, rank")


def _select(store: Store, columns: str, table: Table, clauses: str = "", *read: Table) -> pa.Table:
    return store.query(f"SELECT {columns} FROM {table.name} {clauses}", table, *read)
