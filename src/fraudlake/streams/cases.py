"""Cases: keeps ``gold_cases`` current by recomputing the cases of entities with new alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.gold import cases
from fraudlake.lake import machine_clock
from fraudlake.review.window import Window
from fraudlake.text.sql_text import literal
from fraudlake.values import summed_amount

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa

    from fraudlake.lake import Lake

Entity = tuple[str, str]
"""An entity and its key."""
_FEW = 500
_AT_ONCE = 20_000
"""Most keys that a query lists, and most keys in a range of them."""


def update(lake: Lake, entities: Collection[Entity]) -> None:
    """Recompute the cases of some entities, and merge the changes."""
    alerts = tables.SILVER_ALERTS
    present = tables.GOLD_CASES
    first_day = machine_clock.first_day(lake, alerts.name)
    for condition in _conditions(entities):
        changes = cases.changes(
            lake.store.query(f"SELECT {', '.join(present.column_names)} FROM {present.name} {condition}", present),
            _alerts(lake, condition),
            lake.settings.case_gap,
            lake.settings.case_length,
            first_day,
        )
        if len(changes):
            lake.writer(present).merge_rows(changes, ("case_id",))


def _alerts(lake: Lake, condition: str) -> pa.Table:
    """Return alerts; amounts are those of silver in the base currency, if the lake has one."""
    alerts = tables.SILVER_ALERTS
    raised = lake.store.query(f"SELECT {cases.COLUMNS} FROM {alerts.name} {condition}", alerts)
    if lake.settings.currency is None or not len(raised):
        return raised
    silver = tables.SILVER_TRANSACTIONS
    times = pc.min_max(raised["timestamp"]).as_py()
    days = Window(times["min"].date(), times["max"].date())
    wanted = f"SELECT DISTINCT transaction_id FROM {alerts.name} {condition}"
    in_base = lake.store.query(
        f"SELECT s.transaction_id, {summed_amount(lake.settings.silver_columns)} AS amount FROM {silver.name} s "
        f"JOIN ({wanted}) a ON s.transaction_id = a.transaction_id "
        f"WHERE {days.has('s.date')}",
        silver,
        alerts,
    )
    joined = raised.drop_columns("amount").join(in_base, "transaction_id")
    return joined.set_column(joined.column_names.index("amount"), "amount", pc.fill_null(joined["amount"], 0.0))


def update_all(lake: Lake) -> None:
    """Recompute all cases."""
    entities = set()
    for table in (tables.SILVER_ALERTS, tables.GOLD_CASES):
        rows = lake.store.query(f"SELECT DISTINCT entity, entity_key FROM {table.name}", table).to_pylist()
        entities |= {(row["entity"], row["entity_key"]) for row in rows}
    update(lake, entities)


def _conditions(entities: Collection[Entity]) -> Iterator[str]:
    """Return SQL conditions on ``silver_alerts`` and ``gold_cases`` that select at least these entities."""
    keys = sorted({key for _, key in entities})
    size = _FEW if len(keys) <= _FEW else _AT_ONCE
    for begin in range(0, len(keys), size):
        part = keys[begin : begin + size]
        if size == _FEW:
            chosen = f"IN ({', '.join(map(literal, part))})"
        else:
            chosen = f"BETWEEN {literal(part[0])} AND {literal(part[-1])}"
        yield f"WHERE entity_key {chosen}"
