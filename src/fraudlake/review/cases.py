"""Cases: finds cases and drawn accounts in the tables, and makes them the items that an analyst decides on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from fraudlake.entity import ACCOUNT
from fraudlake.errors import UsageError
from fraudlake.review.item import Item
from fraudlake.review.window import Window
from fraudlake.tables import GOLD_CASES, SILVER_ALERTS, SILVER_TRANSACTIONS
from fraudlake.text.sql_text import one_of, value

if TYPE_CHECKING:
    import pyarrow as pa

    from fraudlake.lake.store import Store

DRAWN = "drawn"
CASE = "case"
OPENED = "opened"
_FEW = 10
"""Up to so many alerts are searched for one by one, which takes a tenth of the time for one of them in a million."""


def listed(store: Store, day: date | None = None, limit: int | None = None) -> pa.Table:
    """Return cases, the latest first: those whose alerts span a day, or all.

    Raises:
        UsageError: the lake has alerts and no cases.
    """
    where = "" if day is None else f"WHERE {on_day(day)}"
    most = "" if limit is None else f"LIMIT {limit}"
    statement = f"SELECT * FROM {GOLD_CASES.name} {where} ORDER BY last_alert_at DESC, case_id {most}"
    of_days = store.query(statement, GOLD_CASES)
    if not len(of_days):
        require_cases(store)
    return of_days


def cases_by_alert(store: Store) -> dict[str, str]:
    """Return the case of each alert, by its id."""
    rows = store.query(f"SELECT case_id, alert_ids FROM {GOLD_CASES.name}", GOLD_CASES).to_pylist()
    return {alert: row["case_id"] for row in rows for alert in row["alert_ids"]}


def named(store: Store, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return cases by their ids or by ids of their alerts, which also find a case that has joined another one."""
    select = f"SELECT * FROM {GOLD_CASES.name} WHERE"
    present = store.query(f"{select} {one_of('case_id', names)}", GOLD_CASES).to_pylist() if names else []
    by_name = {case["case_id"]: case for case in present}
    others = [name for name in names if name not in by_name]
    joined = " OR ".join(f"array_contains(alert_ids, {value(name)})" for name in others)
    if len(others) > _FEW:
        alerts = f"SELECT case_id, explode(alert_ids) AS alert_id FROM {GOLD_CASES.name}"
        joined = f"case_id IN (SELECT case_id FROM ({alerts}) alerts WHERE {one_of('alert_id', others)})"
    for case in store.query(f"{select} {joined}", GOLD_CASES).to_pylist() if others else []:
        by_name |= dict.fromkeys(set(case["alert_ids"]).intersection(others), case)
    return by_name


def read_cases_of_account(store: Store, account: str, limit: int) -> list[dict[str, Any]]:
    """Return the cases of an account, the latest first."""
    where = f"WHERE entity = {value(ACCOUNT)} AND entity_key = {value(account)}"
    latest = f"SELECT * FROM {GOLD_CASES.name} {where} ORDER BY last_alert_at DESC, case_id LIMIT {limit}"
    return [*store.query(latest, GOLD_CASES).to_pylist()]


def latest_of_key(store: Store, key: str) -> list[dict[str, Any]]:
    """Return the latest case of a key for each entity other than the account: ``case_id, entity, last_alert_at``."""
    columns = "case_id, entity, last_alert_at"
    nth = "row_number() OVER (PARTITION BY entity ORDER BY last_alert_at DESC, case_id) AS nth"
    where = f"WHERE entity <> {value(ACCOUNT)} AND entity_key = {value(key)}"
    numbered = f"SELECT {columns}, {nth} FROM {GOLD_CASES.name} {where}"
    latest = f"SELECT {columns} FROM ({numbered}) numbered WHERE nth = 1 ORDER BY entity"
    return [*store.query(latest, GOLD_CASES).to_pylist()]


def require_cases(store: Store) -> None:
    """Refuse a lake that has alerts but no cases.

    Raises:
        UsageError: there are no cases; the message says what to run.
    """
    if store.has_rows(GOLD_CASES):
        return
    if store.has_rows(SILVER_ALERTS):
        raise UsageError(f"the alerts of {store.name} are in no case yet: run 'fraudlake aggregate'")


def on_day(day: date) -> str:
    """Return the SQL condition that the alerts of a case span a day (UTC)."""
    return on_days(Window(day, day))


def on_days(window: Window) -> str:
    """Return the SQL condition that the alerts of a case span one of some days (UTC), at least in part."""
    return f"opened_at < {midnight(window.last + timedelta(days=1))} AND last_alert_at >= {midnight(window.first)}"


def is_on_day(case: Mapping[str, Any], day: date) -> bool:
    """Return whether the alerts of a case span a day (UTC)."""
    return bool(case["opened_at"].date() <= day <= case["last_alert_at"].date())


def midnight(day: date) -> str:
    """Return the beginning of a day (UTC) in SQL."""
    return f"TIMESTAMP '{day} 00:00:00Z'"


def item(case: Mapping[str, Any], day: date | None = None) -> Item:
    """Return the item of a case, given as a row of ``gold_cases`` or opened by hand; ``day`` is that of its queue."""
    return Item(
        case["case_id"],
        case["case_id"],
        case["entity"],
        case["entity_key"],
        case["account_id"],
        tuple(case["transaction_ids"]),
        frozenset(case["alert_ids"] or [case["case_id"]]),
        day,
        Window(case["opened_at"].date(), case["last_alert_at"].date()),
    )


def drawn(store: Store, row: Mapping[str, Any]) -> Item:
    """Return the item of a drawn account, given as a row of the queue: it covers the transactions of that day."""
    paid = paid_on(store, row["day"], [row["account_id"]])
    return Item(
        row["item_id"],
        None,
        row["entity"],
        row["entity_key"],
        row["account_id"],
        paid.get(row["account_id"], ()),
        frozenset({row["item_id"]}),
        row["day"],
        Window(row["day"], row["day"]),
    )


def paid_on(store: Store, day: date, accounts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the ids of the transactions of a day (UTC) by account, in event-time order; no entry if there are none."""
    rows = store.query(
        f"SELECT account_id, transaction_id FROM {SILVER_TRANSACTIONS.name} WHERE date = {value(day)} "
        f"AND {one_of('account_id', accounts)} ORDER BY timestamp, transaction_id",
        SILVER_TRANSACTIONS,
    ).to_pylist()
    paid: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        paid[row["account_id"]].append(row["transaction_id"])
    return {account: tuple(ids) for account, ids in paid.items()}
