"""Links: searches for accounts that share keys with those of a case, in two steps of bounded size."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.keyed.entity_key import key_text
from fraudlake.text import sql_text
from fraudlake.text.sql_text import is_in, one_of
from fraudlake_desk.lookup import history
from fraudlake_desk.review import verdicts

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.review.item import Item
    from fraudlake.review.window import Window

STEPS = 2
NODES = 12
"""Number of steps from the case, and the most keys and accounts that each lists."""
FOLLOWED = 100
"""A key that more accounts share, such as a large merchant's, is not followed: its accounts are only counted."""


@dataclass(frozen=True)
class Account:
    """An account, with its payments in the days of the links."""

    account_id: str
    transactions: int
    fraud: int
    """Payments that an analyst called fraud."""
    labelled: int
    """Payments that Flink's label calls fraud."""
    alerts: int


@dataclass(frozen=True)
class Key:
    """A key that accounts of the step before share with others."""

    entity: str
    values: dict[str, Any]
    """The values of the entity's columns, by name."""
    accounts: int
    """Other accounts that used it."""
    transactions: int
    """Their payments with it."""
    fraud: int
    labelled: int
    case_id: str | None
    """The latest case of this key."""
    before: tuple[str, ...]
    """The listed accounts of the step before that used it."""
    after: tuple[str, ...]
    """The listed accounts of this step that used it; empty if the key is not followed."""

    @property
    def is_followed(self) -> bool:
        """Whether its accounts are listed."""
        return self.accounts <= FOLLOWED

    @property
    def text(self) -> str:
        """The key as a text."""
        return key_text(self.values)


@dataclass(frozen=True)
class Step:
    """Keys that accounts share with others, and those other accounts."""

    keys: list[Key]
    """Keys with fraud first, then those that the fewest accounts share: they are the strongest links."""
    more_keys: int
    accounts: list[Account]
    """Accounts with fraud first, then those with most alerts and shared keys."""
    more_accounts: int


@dataclass(frozen=True)
class Links:
    """The accounts of a case, and the steps from them."""

    window: Window
    accounts: list[Account]
    more_accounts: int
    steps: list[Step]


def find_links(store: Store, item: Item, about: Window, days: int) -> Links:
    """Return the accounts that share keys of declared entities with an item's accounts, directly or in two steps.

    Args:
        store: the lake's tables.
        item: the item.
        about: the days of its alerts, or the day for which it was drawn.
        days: how many days before ``about`` to include.
    """
    rows = history.read_transactions(store, item, about)
    own = {row["account_id"] for row in rows} | {item.account_id}
    search = _Search(store, item, rows, history.around(about, days))
    accounts = search.accounts(Counter(row["account_id"] for row in rows) or Counter(own))
    steps: list[Step] = []
    visited = own
    named = accounts[:NODES]
    for _ in range(STEPS):
        followed = [key for step in steps for key in step.keys]
        step, reached = search.step([one.account_id for one in named], visited, followed)
        if not step.keys:
            break
        steps.append(step)
        visited = visited | reached
        named = step.accounts
    return Links(search.window, accounts[:NODES], len(accounts[NODES:]), steps)


class _Search:
    """The queries of the steps, with what they share."""

    def __init__(self, store: Store, item: Item, rows: Sequence[Mapping[str, Any]], window: Window) -> None:
        self.window = window
        self._store = store
        self._item = item
        self._rows = rows
        # No other account can share a key that contains the account.
        entities = store.settings.entities
        self._entities = {name: columns for name, columns in entities.items() if "account_id" not in columns}
        decided = verdicts.latest(store, window) if self._entities else {}
        self._is_fraud = is_in("transaction_id", sorted(id_ for id_, is_fraud in decided.items() if is_fraud))

    def step(self, frontier: Sequence[str], visited: Collection[str], followed: Sequence[Key]) -> tuple[Step, set[str]]:
        """Return one step from some accounts, and all accounts that it reaches.

        Args:
            frontier: the accounts to start from.
            visited: accounts of the case and of earlier steps, which are excluded.
            followed: keys of earlier steps, which are excluded.
        """
        others = history.others_condition(self._store, self._item, self._rows, visited)
        shared_keys = [row for entity in self._entities for row in self._keys(entity, frontier, others, followed)]
        shared_keys.sort(key=lambda row: (row["fraud"] == 0, row["accounts"], row["entity"], key_text(row["values"])))
        chosen = shared_keys[:NODES]
        users: dict[tuple[str, str], set[str]] = defaultdict(set)
        for entity in dict.fromkeys(row["entity"] for row in chosen):
            of_entity = [row for row in chosen if row["entity"] == entity]
            for name, account in self._users(entity, of_entity, frontier, others):
                users[entity, name].add(account)
        shared = Counter(account for accounts in users.values() for account in accounts if account not in frontier)
        accounts = self.accounts(shared)
        named = [one.account_id for one in accounts[:NODES]]
        cases = self._cases(chosen)
        keys: list[Key] = []
        for row in chosen:
            place = row["entity"], key_text(row["values"])
            before = tuple(account for account in frontier if account in users[place])
            after = tuple(account for account in named if account in users[place])
            figures = {name: row[name] for name in ("accounts", "transactions", "fraud", "labelled")}
            keys.append(
                Key(row["entity"], row["values"], **figures, case_id=cases.get(place), before=before, after=after)
            )
        more = sum({row["entity"]: row["keys"] for row in shared_keys}.values()) - len(chosen)
        return Step(keys, more, accounts[:NODES], len(accounts[NODES:])), set(shared)

    def accounts(self, shared: Mapping[str, int]) -> list[Account]:
        """Return accounts with their figures, ordered; ``shared`` has the number of links of each."""
        if not shared:
            return []
        is_one = one_of("account_id", sorted(shared))
        paid = self._query(
            f"SELECT account_id, {self._figures} FROM {tables.SILVER_TRANSACTIONS.name} "
            f"WHERE {self.window.sql} AND {is_one} GROUP BY account_id",
            tables.SILVER_TRANSACTIONS,
        )
        raised = self._query(
            f"SELECT account_id, count(*) AS alerts FROM {tables.SILVER_ALERTS.name} "
            f"WHERE {self.window.times} AND {is_one} GROUP BY account_id",
            tables.SILVER_ALERTS,
        )
        alerts = {row["account_id"]: row["alerts"] for row in raised}
        payers = [Account(**row, alerts=alerts.get(row["account_id"], 0)) for row in paid]
        return sorted(
            payers, key=lambda one: (-one.fraud, -one.alerts, -shared[one.account_id], -one.labelled, one.account_id)
        )

    @property
    def _figures(self) -> str:
        return (
            f"count(*) AS transactions, sum(CASE WHEN {self._is_fraud} THEN 1 ELSE 0 END) AS fraud, "
            "sum(CASE WHEN label THEN 1 ELSE 0 END) AS labelled"
        )

    def _keys(self, entity: str, frontier: Sequence[str], others: str, followed: Sequence[Key]) -> list[dict[str, Any]]:
        """Return keys of an entity that accounts share with others: those with fraud first, then the rarest."""
        columns = self._entities[entity]
        silver = tables.SILVER_TRANSACTIONS
        own = {column: f"own_{number}" for number, column in enumerate(columns)}
        renamed = ", ".join(f"{sql_text.name(column)} AS {name}" for column, name in own.items())
        is_new = [f"{sql_text.name(column)} IS NOT NULL" for column in columns]
        is_new += [f"NOT ({history.has_key(key.values, columns)})" for key in followed if key.entity == entity]
        same = " AND ".join(f"{sql_text.name(column)} = {name}" for column, name in own.items())
        listed = sql_text.names(columns)
        used = (
            f"SELECT DISTINCT {renamed} FROM {silver.name} "
            f"WHERE {self.window.sql} AND {one_of('account_id', frontier)} AND {' AND '.join(is_new)}"
        )
        grouped = (
            f"SELECT {listed}, count(DISTINCT account_id) AS accounts, {self._figures} "
            f"FROM {silver.name} JOIN ({used}) used ON {same} WHERE {self.window.sql} AND {others} GROUP BY {listed}"
        )
        rows = self._query(
            f"SELECT *, count(*) OVER () AS keys FROM ({grouped}) grouped "
            f"ORDER BY CASE WHEN fraud > 0 THEN 0 ELSE 1 END, accounts, {listed} LIMIT {NODES}",
            silver,
        )
        return [{**row, "entity": entity, "values": {column: row[column] for column in columns}} for row in rows]

    def _users(
        self, entity: str, keys: Sequence[Mapping[str, Any]], frontier: Sequence[str], others: str
    ) -> Iterable[tuple[str, str]]:
        """Yield keys, as texts, with the accounts that used them: the frontier's, and for rare keys the others, too."""
        columns = self._entities[entity]
        silver = tables.SILVER_TRANSACTIONS
        is_any = " OR ".join(f"({history.has_key(key, columns)})" for key in keys)
        few = [f"({history.has_key(key, columns)})" for key in keys if key["accounts"] <= FOLLOWED]
        of_others = f"({' OR '.join(few)}) AND {others}" if few else "false"
        rows = self._query(
            f"SELECT DISTINCT {sql_text.names(columns)}, account_id FROM {silver.name} WHERE {self.window.sql} "
            f"AND ({is_any}) AND ({one_of('account_id', frontier)} OR ({of_others}))",
            silver,
        )
        for row in rows:
            yield key_text({column: row[column] for column in columns}), row["account_id"]

    def _cases(self, keys: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
        """Return the id of the latest case of each key."""
        names = sorted({key_text(key["values"]) for key in keys})
        rows = self._query(
            f"SELECT entity, entity_key, case_id FROM {tables.GOLD_CASES.name} "
            f"WHERE {one_of('entity_key', names)} ORDER BY last_alert_at",
            tables.GOLD_CASES,
        )
        return {(row["entity"], row["entity_key"]): row["case_id"] for row in rows}

    def _query(self, statement: str, table: tables.Table) -> list[dict[str, Any]]:
        return [*self._store.query(statement, table).to_pylist()]
