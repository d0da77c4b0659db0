"""State: reads the detector's state between micro-batches from its checkpoint, while the stream runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fraudlake import tables
from fraudlake.detection import detector, live_rules, rule_table
from fraudlake.detection.entity_rules import OPEN_FLAGS
from fraudlake.detection.evaluator import Evaluator
from fraudlake.keyed import buckets, state_table
from fraudlake.keyed.rows import ROWS
from fraudlake.text import sql_text
from fraudlake.text.counts import counted

if TYPE_CHECKING:
    from fraudlake.lake import Lake

AGES = (10, 60, 600, 3600)
"""Upper bounds, in seconds, of the ages by which open flags are counted."""


@dataclass(frozen=True)
class State:
    """The detector's state after its newest micro-batch."""

    ordering: str
    watermark: datetime | None
    newest: datetime | None
    """Event time of the newest flag or waiting row, from which ages are measured."""
    open_flags: int
    flags_by_age: dict[str, int]
    waiting_rows: int
    rows_by_rule: dict[str, int]
    """Transactions that each threshold and pattern needs for later alerts."""
    bytes_on_disk: int
    by_entity: dict[str, dict[str, int]]
    """For each entity of a rule: ``open_flags``, ``waiting_rows``, ``rows`` for thresholds and patterns, the ``bytes``
    of all of them in memory, and ``rows_without_key`` of silver, which are not evaluated. Empty if all rules group by
    account."""
    mostly_without_key: list[str]
    """A sentence for each declared entity of which most transactions have no key."""

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return asdict(self)


def state(lake: Lake) -> State:
    """Read the detector's state with Spark's state data source; nothing is locked."""
    checkpoint = lake.checkpoint("detect")
    ordering = str(checkpoint.notes.fixed.get("ordering", lake.settings.ordering))
    watermark = checkpoint.watermark_milliseconds() if ordering == "event_time" else None
    flags_of = state_table.read_by_entity(lake, "detect", OPEN_FLAGS, detector.FLAGS)
    waiting_of = state_table.read_by_entity(lake, "detect", buckets.WAITING, ROWS)
    flags = pa.concat_tables([detector.FLAGS.empty_table(), *flags_of.values()], promote_options="default")
    # In event-time order a row waits in the buckets of every entity that has rules.
    waiting = max(waiting_of.values(), key=len, default=ROWS.empty_table())
    evaluated = rule_table.read(lake).select_source("transactions").evaluated
    rows_by_rule = Counter({one.rule.name: 0 for one in evaluated if one.rule.kind != "small_then_large"})
    rows_of: Counter[int] = Counter()
    bytes_of: Counter[int] = Counter()
    rules_of = state_table.read_by_entity(lake, "detect", "rules", live_rules.STATE)
    for tables_of in (flags_of, waiting_of, rules_of):
        bytes_of.update({number: table.nbytes for number, table in tables_of.items()})
    for number, table in rules_of.items():
        for row in table.to_pylist():
            rows = len(pa.ipc.open_stream(row["rows"]).read_all())
            rows_by_rule[row["rule"]] += rows
            rows_of[number] += rows
    entities = [*Evaluator.of(lake.settings, evaluated).evaluated.values()]
    without_key = rows_without_key(lake)
    times = np.concatenate([flags["time"].to_numpy(), waiting["time"].to_numpy()])
    newest = int(times.max()) if len(times) else None
    return State(
        ordering=ordering,
        watermark=_time(watermark * 1000) if watermark else None,
        newest=None if newest is None else _time(newest),
        open_flags=len(flags),
        flags_by_age=_by_age(flags["time"].to_numpy(), newest or 0),
        waiting_rows=len(waiting),
        rows_by_rule=dict(rows_by_rule),
        bytes_on_disk=sum(file.stat().st_size for file in checkpoint.state.rglob("*") if file.is_file()),
        by_entity={
            by.name: {
                "open_flags": len(flags_of.get(by.number, ())),
                "waiting_rows": len(waiting_of.get(by.number, ())),
                "rows": rows_of[by.number],
                "bytes": bytes_of[by.number],
                "rows_without_key": without_key.get(by.name, 0),
            }
            for by in entities
            if not all(one.is_account for one in entities)
        },
        mostly_without_key=mostly_without_key(lake, without_key),
    )


def rows_without_key(lake: Lake) -> dict[str, int]:
    """Return how many rows of silver have no key, for each declared entity."""
    counts = {
        name: f"count(*) FILTER (WHERE {' OR '.join(f'{sql_text.name(column)} IS NULL' for column in columns)})"
        for name, columns in lake.settings.entities.items()
    }
    if not counts:
        return {}
    columns = ", ".join(f"{count} AS {sql_text.name(name)}" for name, count in counts.items())
    row: dict[str, int] = lake.store.query(
        f"SELECT {columns} FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS
    ).to_pylist()[0]
    return row


def mostly_without_key(lake: Lake, without_key: Mapping[str, int]) -> list[str]:
    """Return a sentence for each declared entity of which most transactions have no key."""
    rows = lake.store.count(tables.SILVER_TRANSACTIONS)
    return [
        f"{name}: {without_key[name]:,} of {counted(rows, 'transaction')} have no key ({' or '.join(columns)} "
        f"is null) and are not evaluated: check the fields of these columns"
        for name, columns in lake.settings.entities.items()
        if 2 * without_key[name] > rows
    ]


def _by_age(times: Any, newest: int) -> dict[str, int]:
    ages = (newest - times) / 1_000_000
    edges = [0.0, *AGES, np.inf]
    counts = np.histogram(ages, bins=edges)[0]
    names = [f"up to {bound} s" for bound in AGES] + ["older"]
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
