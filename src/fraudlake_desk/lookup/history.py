"""History: looks up the payments, alerts, scores, verdicts and shared keys of a case or an account."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.entity import ACCOUNT
from fraudlake.review import event_log
from fraudlake.review.event import Event
from fraudlake.review.item import Item
from fraudlake.review.window import Window
from fraudlake.text import sql_text
from fraudlake.text.sql_text import bounded_sum, is_in, literal, one_of, value
from fraudlake.values import BASE_AMOUNT, bounded, summed_amount
from fraudlake_desk.review import verdicts

if TYPE_CHECKING:
    from fraudlake.lake.store import Store

MOST = 2000
"""Most transactions of a history: those of its case first, then the latest others."""
_AFTER = 7
"""Days of a history after those of the item."""
KEYS = 5
SHARERS = 8
"""Most keys of an entity that are looked up, and most accounts listed for each."""
NUMBERED = 20
"""Accounts of a key whose numbers are written next to their marks on the time axis."""
_ALERT = "alert_id, rule, kind, account_id, transaction_id, timestamp, amount, explanation, rule_version, detected_at, "
_ALERT += "evidence, evidence_columns, measures"


@dataclass(frozen=True)
class Share:
    """The use that other accounts made of a key of a case, such as its terminal."""

    entity: str
    key: dict[str, Any]
    """The values of the entity's columns, by name."""
    accounts: int
    """Other accounts that used it."""
    transactions: int
    fraud: int
    """Their transactions that an analyst called fraud."""
    labelled: int
    """Their transactions that Flink's label calls fraud."""
    named: list[dict[str, Any]]
    """Some of the accounts, those with fraud first: ``account_id, transactions, amount, fraud, labelled``."""


@dataclass(frozen=True)
class History:
    """The payments, alerts and verdicts of an account, or of an entity's key, in a range of days."""

    window: Window
    transactions: list[dict[str, Any]]
    """Rows of ``silver_transactions``, the latest first, with ``probability``, ``reasons`` and ``model_version`` of the
    score that counts (:data:`tables.PREDICTION_ORDER`), ``alerts`` (ids), ``verdict`` (true is fraud) and
    ``is_of_case``."""
    total: int
    """Number of transactions in the range; at most :data:`MOST` of them are here."""
    alerts: list[dict[str, Any]]
    """Rows of ``silver_alerts`` and ``silver_shadow_alerts``, the latest first, with ``is_shadow, is_of_case``."""
    verdicts: list[dict[str, Any]]
    """Rows of ``silver_verdicts`` on these transactions, the latest first."""


def read_history(store: Store, item: Item, about: Window, days: int, alert_ids: Collection[str]) -> History:
    """Return the history of an item, from ``days`` days before its own days to a week after them.

    Args:
        store: the lake's tables.
        item: the item.
        about: the days of its alerts, or the day for which it was drawn.
        days: how many days before ``about`` to include.
        alert_ids: the alerts of its case.
    """
    window = around(about, days)
    own = read_transactions(store, item, about) if item.has_accounts else []
    condition = f"{same_key(store, item, own)} AND {window.sql}"
    silver = tables.SILVER_TRANSACTIONS
    name = tables.SILVER_TRANSACTIONS.name
    # A terminal may have so many payments that those of the case are not among the latest.
    order = f"{own_first(item.transaction_ids)}, timestamp DESC, transaction_id"
    rows = store.query(f"SELECT * FROM {name} WHERE {condition} ORDER BY {order} LIMIT {MOST + 1}", silver).to_pylist()
    total = len(rows)
    if total > MOST:
        counted = store.query(f"SELECT count(*) AS total FROM {name} WHERE {condition}", silver)
        total = int(counted["total"][0].as_py())
        rows = rows[:MOST]
    rows.sort(key=lambda row: row["transaction_id"])
    rows.sort(key=lambda row: row["timestamp"], reverse=True)
    ids = {row["transaction_id"] for row in rows}
    # Alerts are looked up by account, since older ones have no entity.
    accounts = sorted({row["account_id"] for row in rows} | {item.account_id})
    alerts = _alerts(store, accounts, window, ids, set(alert_ids))
    decisions = [row for row in _verdicts(store, window) if row["transaction_id"] in ids]
    scores = _scores(store, accounts, window)
    truth = {row["transaction_id"]: row["verdict"] for row in reversed(decisions)}
    completed: dict[str, list[str]] = defaultdict(list)
    for alert in alerts:
        completed[alert["transaction_id"]].append(alert["alert_id"])
    shadows = {alert["transaction_id"] for alert in alerts if alert["is_shadow"]}
    lives = {alert["transaction_id"] for alert in alerts if not alert["is_shadow"]}
    for row in rows:
        id_ = row["transaction_id"]
        row |= scores.get(id_, {"probability": None, "reasons": None, "model_version": None})
        row |= {"alerts": completed.get(id_, []), "verdict": truth.get(id_), "is_of_case": id_ in item.transaction_ids}
        row["alert"] = "live" if id_ in lives else "shadow" if id_ in shadows else None
    return History(window, rows, total, alerts, decisions)


def find_account(store: Store, account: str) -> Item:
    """Return an account as an item that nobody decides on; its day is that of its latest transaction, if any."""
    silver = tables.SILVER_TRANSACTIONS
    latest = store.query(f"SELECT max(date) AS day FROM {silver.name} WHERE account_id = {literal(account)}", silver)
    day = latest["day"][0].as_py()
    return Item("", None, ACCOUNT, account, account, (), frozenset(), day)


def accounts_beginning(store: Store, beginning: str) -> list[str]:
    """Return the accounts with transactions whose names begin with a text and are longer than it."""
    silver = tables.SILVER_TRANSACTIONS
    length = len(beginning)
    accounts = store.query(
        f"SELECT DISTINCT account_id FROM {silver.name} "
        f"WHERE substr(account_id, 1, {length}) = {literal(beginning)} AND length(account_id) > {length}",
        silver,
    )
    names: list[str] = accounts["account_id"].to_pylist()
    return names


def events(store: Store, item: Item) -> list[Event]:
    """Return the events of an item and of other items with the same account or key, ordered by number."""
    same = " OR ".join(
        f"entity = {literal(one.entity)} AND entity_key = {literal(one.entity_key)}" for one in item.parts or (item,)
    )
    condition = f"{one_of('item_id', sorted(item.all_names))} OR {same}"

    def is_chosen(rows: pa.Table) -> pa.Array:
        chosen = pc.is_in(rows["item_id"], pa.array(sorted(item.all_names), pa.string()))
        for one in item.parts or (item,):
            # As in SQL: an event with one of the names counts even if its entity is null.
            is_same = pc.and_kleene(pc.equal(rows["entity"], one.entity), pc.equal(rows["entity_key"], one.entity_key))
            chosen = pc.or_kleene(chosen, is_same)
        return chosen

    return event_log.chosen(store, condition, is_chosen)


def read_transactions(store: Store, item: Item, about: Window) -> list[dict[str, Any]]:
    """Return the rows of ``silver_transactions`` that an item covers; ``about`` must contain their days."""
    if not item.transaction_ids:
        return []
    silver = tables.SILVER_TRANSACTIONS
    # Delta skips files by date and account, but not by the id.
    of_account = [] if item.has_accounts else [f"account_id = {literal(item.account_id)}"]
    where = " AND ".join([about.sql, *of_account, one_of("transaction_id", item.transaction_ids)])
    return [*store.query(f"SELECT * FROM {silver.name} WHERE {where}", silver).to_pylist()]


def same_key(store: Store, item: Item, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the SQL condition that a transaction has the key of an item, or of a part of it.

    If the item's entity is no longer declared, the condition compares accounts instead.

    Args:
        store: the lake's tables.
        item: the item.
        rows: rows of ``silver_transactions`` that the item covers; not needed for an account.
    """
    if item.parts:
        of_parts = (
            (part, [row for row in rows if row["transaction_id"] in part.transaction_ids]) for part in item.parts
        )
        return f"({' OR '.join(same_key(store, part, own) for part, own in of_parts)})"
    if item.entity == ACCOUNT:
        return f"account_id = {literal(item.account_id)}"
    if rows and item.entity in store.settings.entities:
        return has_key(rows[0], store.settings.entity_columns(item.entity))
    return one_of("account_id", sorted({row["account_id"] for row in rows} | {item.account_id}))


def around(about: Window, days: int) -> Window:
    """Return the days of a history: from ``days`` days before ``about`` to a week after it."""
    return Window(about.first - timedelta(days=days), about.last + timedelta(days=_AFTER))


def others_condition(store: Store, item: Item, rows: Sequence[Mapping[str, Any]], accounts: Iterable[str]) -> str:
    """Return the SQL condition that a transaction is not the item's own: a case is not evidence for itself.

    Args:
        store: the lake's tables.
        item: the item.
        rows: rows of ``silver_transactions`` that the item covers.
        accounts: accounts to exclude.
    """
    others = f"NOT ({one_of('account_id', sorted(accounts))})"
    if item.entity != ACCOUNT:
        others += f" AND ({same_key(store, item, rows)}) IS NOT TRUE"
    return others


def own_first(transaction_ids: Iterable[str]) -> str:
    """Return the SQL sort key that puts some transactions first."""
    return f"CASE WHEN {is_in('transaction_id', transaction_ids)} THEN 0 ELSE 1 END"


def by_account(rows: Iterable[Mapping[str, Any]], alerts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return figures of each account, most alerts first: ``number, account_id, transactions, amount, alerts``.

    Args:
        rows: transactions.
        alerts: the alerts that count.

    Returns:
        ``number`` labels the account on the time axis; None after the first :data:`NUMBERED`.
    """
    raised = Counter(alert["account_id"] for alert in alerts)
    amounts: dict[str, list[float]] = {account: [] for account in raised}
    for row in rows:
        # An amount without a rate adds nothing, as in :func:`summed_amount`.
        amounts.setdefault(row["account_id"], []).append(row.get(BASE_AMOUNT, row["amount"]) or 0.0)
    accounts: list[dict[str, Any]] = [
        {"account_id": account, "transactions": len(paid), "amount": sum(map(bounded, paid)), "alerts": raised[account]}
        for account, paid in amounts.items()
    ]
    accounts.sort(key=lambda one: (-one["alerts"], -one["transactions"], one["account_id"]))
    return [{"number": number if number <= NUMBERED else None, **one} for number, one in enumerate(accounts, 1)]


def labels(accounts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the label of each account on the time axis, from the rows of :func:`by_account`."""
    return {one["account_id"]: str(one["number"]) for one in accounts if one["number"]}


def has_key(row: Mapping[str, Any], columns: Iterable[str]) -> str:
    """Return the SQL condition that a transaction has the same values as a row in some columns."""
    return " AND ".join(f"{sql_text.name(column)} = {value(row[column])}" for column in columns)


def _alerts(
    store: Store, accounts: Sequence[str], window: Window, transactions: Collection[str], of_case: Collection[str]
) -> list[dict[str, Any]]:
    """Return the alerts of live and shadow rules that the given transactions completed, and those of the case."""
    raised: list[dict[str, Any]] = []
    where = f"WHERE {one_of('account_id', accounts)} AND {window.times}"
    for table in (tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS):
        rows = store.query(f"SELECT {_ALERT} FROM {table.name} {where}", table).to_pylist()
        raised += [
            {**row, "is_shadow": table is tables.SILVER_SHADOW_ALERTS, "is_of_case": row["alert_id"] in of_case}
            for row in rows
            if row["transaction_id"] in transactions or row["alert_id"] in of_case
        ]
    return sorted(raised, key=lambda row: (row["timestamp"], row["alert_id"]), reverse=True)


def _verdicts(store: Store, window: Window) -> list[dict[str, Any]]:
    table = tables.SILVER_VERDICTS
    where = f"WHERE {window.sql} ORDER BY decided_at DESC, verdict DESC"
    return [*store.query(f"SELECT * FROM {table.name} {where}", table).to_pylist()]


def _scores(store: Store, accounts: Sequence[str], window: Window) -> dict[str, dict[str, Any]]:
    """Return the score of each transaction of accounts that counts, so a later model does not change what was seen."""
    table = tables.GOLD_FRAUD_PREDICTIONS
    rows = store.query(
        f"SELECT transaction_id, probability, reasons, model_version FROM {table.name} "
        f"WHERE {one_of('account_id', accounts)} AND {window.sql} ORDER BY {tables.PREDICTION_ORDER}",
        table,
    ).to_pylist()
    return {row.pop("transaction_id"): row for row in reversed(rows)}


def shared(store: Store, item: Item, about: Window, days: int) -> list[Share]:
    """Return how other accounts used the keys of an item's transactions, for declared entities other than its own.

    Args:
        store: the lake's tables.
        item: the item.
        about: the days of its alerts, or the day for which it was drawn.
        days: how many days before ``about`` to include.
    """
    # No other account can share a key that contains the account.
    entities = {
        name: columns
        for name, columns in store.settings.entities.items()
        if "account_id" not in columns and name != item.entity
    }
    rows = read_transactions(store, item, about) if entities else []
    others = others_condition(store, item, rows, {row["account_id"] for row in rows} | {item.account_id})
    window = around(about, days)
    fraud = verdicts.latest(store, window) if rows else {}
    is_fraud = is_in("transaction_id", sorted(id_ for id_, verdict in fraud.items() if verdict))
    shares = []
    for entity, columns in entities.items():
        complete = [row for row in rows if all(row.get(column) is not None for column in columns)]
        keys = {tuple(row[column] for column in columns): row for row in complete}
        for row in [*keys.values()][:KEYS]:
            shares.append(_share(store, f"{window.sql} AND {others}", entity, columns, row, is_fraud))
    return sorted(shares, key=lambda share: (-share.fraud, -share.labelled, share.entity))


def _share(
    store: Store, others: str, entity: str, columns: Sequence[str], row: Mapping[str, Any], is_fraud: str
) -> Share:
    silver = tables.SILVER_TRANSACTIONS
    amount = summed_amount(store.settings.silver_columns)
    sharers = store.query(
        f"SELECT account_id, count(*) AS transactions, {bounded_sum(amount)} AS amount, "
        f"sum(CASE WHEN {is_fraud} THEN 1 ELSE 0 END) AS fraud, sum(CASE WHEN label THEN 1 ELSE 0 END) AS labelled "
        f"FROM {silver.name} WHERE {has_key(row, columns)} AND {others} "
        "GROUP BY account_id ORDER BY fraud DESC, labelled DESC, transactions DESC, account_id",
        silver,
    ).to_pylist()
    totals = {name: sum(one[name] for one in sharers) for name in ("transactions", "fraud", "labelled")}
    return Share(entity, {column: row[column] for column in columns}, len(sharers), named=sharers[:SHARERS], **totals)
