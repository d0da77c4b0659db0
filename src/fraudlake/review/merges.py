"""Merges: derives from the events which cases are now parts of others, by the current ids of the cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fraudlake.review import cases, event_log, opened, payments
from fraudlake.review.window import Window
from fraudlake.tables import SILVER_TRANSACTIONS
from fraudlake.text.sql_text import bounded_sum, one_of
from fraudlake.values import bounded, summed_amount

if TYPE_CHECKING:
    from datetime import date

    from fraudlake.lake.store import Store
    from fraudlake.review.event import Event, Verdict
    from fraudlake.review.item import Item


@dataclass(frozen=True)
class Merges:
    """Which cases are parts of others, all by their current ids."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The cases that events merge or separate, each without its parts."""
    into: dict[str, str] = field(default_factory=dict)
    """The case that another one is a part of, by the part's id."""
    by: dict[str, Event] = field(default_factory=dict)
    """The event that made a case a part, by the part's id."""
    last: int = 0
    """Number of the last event that merged or separated cases."""

    def whole(self, case_id: str) -> str:
        """Return the case that a case is a part of, directly or not, or the case itself if it is no part."""
        while case_id in self.into:
            case_id = self.into[case_id]
        return case_id

    def parts(self, case_id: str) -> list[str]:
        """Return a case, then its parts, direct or not."""
        ids = [case_id]
        for one in ids:  # each part is appended, and searched for its own parts
            ids += [part for part, into in self.into.items() if into == one]
        return ids

    def item(self, case: Mapping[str, Any], day: date | None = None) -> Item:
        """Return the item of a case with the payments of all of its parts; ``names`` are its own only."""
        if not self.last:  # nothing was ever merged
            return cases.item(case, day)
        own = replace(cases.item(case, day), as_of=self.last)
        ids = self.parts(own.item_id)
        if len(ids) == 1:
            return own
        parts = tuple(cases.item(self.rows.get(id_, case)) for id_ in ids)
        paid = dict.fromkeys(id_ for part in parts for id_ in part.transaction_ids)
        days = [part.about for part in parts if part.about]
        about = Window(min(one.first for one in days), max(one.last for one in days))
        return replace(own, transaction_ids=tuple(paid), about=about, parts=parts)

    def row(self, store: Store, case: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of a case, aggregated over all of its parts."""
        rows = [self.rows.get(id_, case) for id_ in self.parts(case["case_id"])]
        if len(rows) == 1:
            return {**case}
        item = self.item(case)
        assert item.about is not None
        silver = SILVER_TRANSACTIONS
        where = f"{item.about.sql} AND {one_of('transaction_id', item.transaction_ids)}"
        amount = summed_amount(store.settings.silver_columns)
        counts = f"count(DISTINCT account_id) AS accounts, {bounded_sum(amount)} AS amount_at_risk"
        (sums,) = store.query(f"SELECT {counts} FROM {silver.name} WHERE {where}", silver).to_pylist()
        if sums["amount_at_risk"] is None:  # row_retention has removed the payments
            sums = {name: sum(row[name] for row in rows) for name in sums}
        return {
            **case,
            **sums,
            "opened_at": min(row["opened_at"] for row in rows),
            "last_alert_at": max(row["last_alert_at"] for row in rows),
            "alerts": sum(row["alerts"] for row in rows),
            "rules": sorted({rule for row in rows for rule in row["rules"]}),
            "alert_ids": [id_ for row in rows for id_ in row["alert_ids"]],
            "transaction_ids": [*item.transaction_ids],
        }

    def decisions(self, store: Store, decisions: Mapping[str, Event]) -> dict[str, Event]:
        """Return the verdicts on whole cases, split among their parts, by the part's id.

        Marked payments that belong to no part stay with the whole.
        """
        decided = {
            part: decisions[whole]
            for part in self.rows
            if (whole := self.whole(part)) in decisions and len(self.parts(whole)) > 1
        }
        rows_by_id = payments.by_id(store, {id_ for event in decided.values() for id_ in event.fraud_ids})
        decisions_by_part = {}
        for part, event in decided.items():
            own = {*self.rows[part]["transaction_ids"]}
            if part == self.whole(part):
                of_parts = (self.rows[id_]["transaction_ids"] for id_ in self.parts(part))
                own |= {*event.transaction_ids}.difference(*of_parts)
            about = tuple(id_ for id_ in event.transaction_ids if id_ in own)
            fraud = tuple(id_ for id_ in event.fraud_ids if id_ in own)
            verdict: Verdict | None = "genuine" if event.verdict == "fraud" and not fraud else event.verdict
            # row_retention may have removed payments.
            are_known = bool(fraud) and rows_by_id.keys() >= {*fraud}
            amount = bounded(sum(rows_by_id[id_]["summed_amount"] for id_ in fraud)) if are_known else None
            if about:  # it may have become a part after the verdict
                decisions_by_part[part] = replace(
                    event, verdict=verdict, transaction_ids=about, fraud_ids=fraud, fraud_amount=amount
                )
        return decisions_by_part


NONE = Merges()


def read_merges(store: Store) -> Merges:
    """Return the merges of a lake.

    A merge is ignored if a late alert has joined the two cases, if the other case is gone, or if it would close a
    cycle that late alerts have made possible.
    """
    events = [event for event in event_log.read_events_of_cases(store) if event.kind != cases.OPENED]
    names = {name for event in events for name in (event.item_id, event.merged_into) if name}
    by_name = opened.named(store, sorted(names)) if names else {}
    all_merges = Merges(
        {row["case_id"]: row for row in by_name.values()}, last=max((one.number for one in events), default=0)
    )
    for event in events:
        part = by_name.get(event.item_id)
        other = by_name.get(event.merged_into or "")
        if part is None:
            continue
        id_ = part["case_id"]
        all_merges.into.pop(id_, None)
        if event.kind == "merged" and other is not None and all_merges.whole(other["case_id"]) != id_:
            all_merges.into[id_] = other["case_id"]
            all_merges.by[id_] = event
    return all_merges
