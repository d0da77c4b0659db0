"""Finding: looks up a name among items, accounts, keys of other entities and transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fraudlake.review import cases, items, opened
from fraudlake.tables import GOLD_CASES, SILVER_TRANSACTIONS
from fraudlake.text.sql_text import value
from fraudlake_desk.documents.letters import shown
from fraudlake_desk.lookup import history
from fraudlake_desk.lookup.money import amount
from fraudlake_desk.web.names import account, segment
from fraudlake_desk.web.site import moment

if TYPE_CHECKING:
    from fraudlake.lake.store import Store


@dataclass(frozen=True)
class Found:
    """A match for a name: its description for people, and an address."""

    text: str
    address: str
    is_page: bool = True
    """Whether the page at the address is about this match alone."""


def named(store: Store, name: str) -> list[Found]:
    """Return everything that has a name."""
    matches = []
    if item := items.find(store, name):
        kind = "case or alert" if item.case else "drawn account"
        matches.append(
            Found(f"the {kind}, of {_described(item.item.entity, item.item.entity_key)}", f"/items/{segment(name)}")
        )
    if history.find_account(store, name).day:
        matches.append(Found(f"the account {shown(name)}", account(name)))
    for case in cases.latest_of_key(store, name):
        text = f"the latest case of {_described(case['entity'], name)}, of {moment(case['last_alert_at'])} UTC"
        matches.append(Found(text, f"/items/{segment(case['case_id'])}"))
    return matches + _transactions(store, name)


def _transactions(store: Store, name: str) -> list[Found]:
    """Return the transaction with an id, as a link to its case or else to its account."""
    silver = SILVER_TRANSACTIONS
    is_named = f"transaction_id = {value(name)}"
    rows = store.query(f"SELECT account_id, timestamp, amount FROM {silver.name} WHERE {is_named}", silver).to_pylist()
    if not rows:
        return []
    having = f"SELECT case_id FROM {GOLD_CASES.name} WHERE array_contains(transaction_ids, {value(name)})"
    by_hand = opened.rows(store, lambda event: name in event.transaction_ids)
    of_payment = [*store.query(having, GOLD_CASES)["case_id"].to_pylist(), *(case["case_id"] for case in by_hand)]
    case = next(iter(of_payment), None)
    row = rows[0]
    text = f"the transaction of {amount(row['amount'])} at {moment(row['timestamp'])} UTC"
    if case:
        return [Found(f"{text}, in a case of its account", f"/items/{segment(case)}")]
    return [Found(f"{text}, of account {shown(row['account_id'])}", account(row["account_id"]), is_page=False)]


def _described(entity: str, key: str) -> str:
    return f"{entity} {shown(key)}"
