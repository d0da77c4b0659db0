"""Panels: runs the queries of the settings about a customer, merchant or other key; an error is a line in its panel."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.entity import ACCOUNT
from fraudlake.errors import FraudlakeError, UsageError, first_line
from fraudlake.text.sql_text import literal, value
from fraudlake_desk.lookup import history

if TYPE_CHECKING:
    import pyarrow as pa

    from fraudlake.lake.store import Store
    from fraudlake.review.item import Item
    from fraudlake.review.window import Window
    from fraudlake.settings.panels import Panel

ROWS = 20
SECONDS = 10.0
"""Most rows of a panel, and seconds that its query may take."""
_LATEST = 100
"""Latest payments of an account whose keys have panels, if there is no case."""
_LOG = logging.getLogger("fraudlake.desk")
_ASKING = BoundedSemaphore(4)
"""Limits concurrent queries of panels; one that has timed out counts until it ends."""


@dataclass(frozen=True)
class Shown:
    """A panel with its rows for a key."""

    title: str
    entity: str
    key: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    is_more: bool = False
    """Whether there are more than :data:`ROWS`."""
    error: str = ""
    """Why there are no rows, in a line."""


def fill_panels(store: Store, item: Item, about: Window) -> list[Shown]:
    """Return the panels of an item or an account: for its account or key, and for the keys of its payments.

    Args:
        store: the lake's tables.
        item: the item.
        about: the days of its alerts, or the latest day of an account.
    """
    wanted = store.settings.panels
    if not wanted:
        return []
    rows = history.read_transactions(store, item, about) or _latest(store, item.account_id, about)
    return [_shown(store, panel, key) for panel in wanted for key in _keys(store, panel, item, rows)]


def first_row(store: Store, panel: Panel, key: object) -> dict[str, Any]:
    """Return the first row of a panel for a key, by column; empty if there is none.

    Raises:
        UsageError: its query fails.
    """
    try:
        rows = _in_time(store, panel.statement(value(key), 1), panel.words).to_pylist()
    except Exception as error:
        raise UsageError(f"panel '{panel.title}': {first_line(error)}") from None
    return rows[0] if rows else {}


def _latest(store: Store, account: str, about: Window) -> list[dict[str, Any]]:
    silver = tables.SILVER_TRANSACTIONS
    where = f"{about.sql} AND account_id = {literal(account)} ORDER BY timestamp DESC LIMIT {_LATEST}"
    return [*store.query(f"SELECT * FROM {silver.name} WHERE {where}", silver).to_pylist()]


def _keys(store: Store, panel: Panel, item: Item, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the keys for which to show a panel; only None unless the entity has exactly one column."""
    if panel.entity == ACCOUNT:
        accounts = [row["account_id"] for row in rows] if item.entity != ACCOUNT else []
        return [*dict.fromkeys([item.account_id, *accounts])][: history.KEYS]
    columns = store.settings.entities.get(panel.entity, ())
    if len(columns) != 1:
        return [None]
    values = dict.fromkeys(row.get(columns[0]) for row in rows)
    return [key for key in values if key is not None][: history.KEYS]


def _shown(store: Store, panel: Panel, key: Any) -> Shown:
    if key is None:
        wrong = f"'{panel.entity}' is not a declared entity with a key of one column: see [entities] of the settings"
        return Shown(panel.title, panel.entity, "", error=wrong)
    try:
        answer = _in_time(store, panel.statement(value(key), ROWS + 1), panel.words)
    except Exception as error:  # from DataFusion, a warehouse or Delta: the query may read any table
        _LOG.warning("panel %s failed: %s", panel.title, error)
        return Shown(panel.title, panel.entity, str(key), error=first_line(error))
    rows = [tuple(row.values()) for row in answer.to_pylist()]
    return Shown(panel.title, panel.entity, str(key), answer.column_names, rows[:ROWS], len(rows) > ROWS)


def _in_time(store: Store, statement: str, names: frozenset[str]) -> pa.Table:
    """Return the rows of a query.

    Raises:
        FraudlakeError: the query takes too long, or waits too long for others.
    """
    # A query cannot be cancelled: after the timeout it goes on in its thread, and counts until it ends.
    answers: SimpleQueue[pa.Table | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(store.ask(statement, names))
        except Exception as error:
            answers.put(error)
        finally:
            _ASKING.release()

    if not _ASKING.acquire(timeout=SECONDS):
        raise FraudlakeError("other panels' queries take too long: load the page again later")
    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=SECONDS)
    except Empty:
        raise FraudlakeError(f"its query takes longer than {SECONDS:.0f} seconds") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
