"""State: the detector's state between micro-batches, read from its checkpoint while the stream runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from fraudlake.detection import alerts, buckets, detector, live_rules, rule_table

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
    """Event time of the newest flag or waiting row: ages are counted back from it."""
    open_flags: int
    flags_by_age: dict[str, int]
    waiting_rows: int
    rows_by_rule: dict[str, int]
    """Transactions that each threshold and pattern needs for later alerts: evaluated ones, and those of the state."""
    bytes_on_disk: int

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return asdict(self)


def state(lake: Lake) -> State:
    """Read the detector's state with Spark's state data source; nothing is locked."""
    checkpoint = lake.checkpoint("detect")
    ordering = str(checkpoint.fixed.get("ordering", lake.settings.ordering))
    watermark = checkpoint.watermark_milliseconds() if ordering == "event_time" else None
    flags = read(lake, "detect", alerts.OPEN_FLAGS, detector.FLAGS)
    waiting = read(lake, "detect", "waiting", detector.ROWS)
    evaluated = [version.rule for version in rule_table.read(lake).evaluated]
    rows_by_rule = Counter({rule.name: 0 for rule in evaluated if rule.kind != "small_then_large"})
    for row in read(lake, "detect", "rules", live_rules.STATE).to_pylist():
        rows_by_rule[row["rule"]] += len(pa.ipc.open_stream(row["rows"]).read_all())
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
    )


def read(lake: Lake, step: str, name: str, schema: pa.Schema) -> pa.Table:
    """Read one table of every bucket's state, of a stream that processes buckets; empty if the state has none."""
    checkpoint = lake.checkpoint(step)
    if name not in checkpoint.state_variables:
        return schema.empty_table()
    checkpoint.settle()
    # The reader asks the coordinator of state stores, which starts with the first access to streams (Spark 4.2).
    _ = lake.session.streams.active
    with _plain_path(checkpoint.folder) as folder:
        reader = lake.session.read.format("statestore").option("stateVarName", name)
        values = reader.load(str(folder)).select("value.payload").toArrow()
    return buckets.unpack(values["payload"].to_pylist(), schema)


@contextmanager
def _plain_path(folder: Path) -> Iterator[Path]:
    """Return a path of a folder that needs no escapes in a URI: the reader takes them for names (seen in Spark 4.2)."""
    if quote(str(folder)) == str(folder):
        yield folder
        return
    with TemporaryDirectory() as place:
        link = Path(place, folder.name)
        link.symlink_to(folder)
        yield link


def _by_age(times: Any, newest: int) -> dict[str, int]:
    ages = (newest - times) / 1_000_000
    edges = [0.0, *AGES, np.inf]
    counts = np.histogram(ages, bins=edges)[0]
    names = [f"up to {bound} s" for bound in AGES] + ["older"]
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
