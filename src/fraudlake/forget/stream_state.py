"""Stream state: makes the stateful streams drop accounts, and removes older versions of their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import detector, entity_rules, live_rules
from fraudlake.features import account_features, feature_buckets
from fraudlake.keyed import state_table
from fraudlake.keyed.rows import ROWS
from fraudlake.streams import detect, score, stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake

_STATEFUL: Mapping[str, Callable[..., list[stream.Stream]]] = {"detect": detect.streams, "score": score.streams}
"""The streams whose state has accounts, by step."""
_MICRO_BATCHES = 4
"""Most micro-batches that run to empty the state."""
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
_WHOLE_STATE = {
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "false",
    f"{_ROCKSDB}.compactOnCommit": "true",
    f"{_ROCKSDB}.compression": "none",
}
"""Settings with which a micro-batch writes its whole state, without deleted entries, so that it can be scanned."""


def finish(lake: Lake) -> None:
    """Finish the micro-batch of a stateful stream during which an earlier call was cut."""
    for step in _STATEFUL:
        if lake.checkpoint(step).pending_batch() is not None:
            _run(lake, [step])


def empty(lake: Lake, folder: Path, accounts: Sequence[str]) -> set[Path]:
    """Empty the state until no earlier file is left: :func:`_empty_once`.

    Occasionally RocksDB does not merge a micro-batch's new file with the earlier one (seen in Spark 4.2); the next
    micro-batch does.
    """
    for _ in range(_MICRO_BATCHES - 1):
        if not _empty_once(lake, folder, accounts):
            return set()
    return _empty_once(lake, folder, accounts)


def _empty_once(lake: Lake, folder: Path, accounts: Sequence[str]) -> set[Path]:
    """Make the stateful streams drop the accounts from their state, and remove all older versions of it.

    Returns:
        RocksDB's earlier files that the present version still uses; there should be none.
    """
    from fraudlake.lake import delta_folder

    begun = [step for step in _STATEFUL if not lake.checkpoint(step).is_new]
    before = {file for step in begun for file in lake.checkpoint(step).state.rglob("*.sst")}
    if begun:
        delta_folder.append_empty_file(folder / "tables" / tables.SILVER_TRANSACTIONS.name)
        _run(lake, begun, _frame(lake, accounts))
    for step in begun:
        with lake.exclusive(step):
            lake.checkpoint(step).erase_past_state()
    return {file for file in before if file.exists()}


def _run(lake: Lake, names: list[str], forget: DataFrame | None = None) -> None:
    begun = [item for step in names for item in _STATEFUL[step](lake, forget=forget) if item.step == step]
    # The commit without rows alone would not start a stream.
    streams = [replace(item, waits=True) for item in begun]
    before = {name: lake.session.conf.get(name, None) for name in _WHOLE_STATE}
    try:
        for name, value in _WHOLE_STATE.items():
            lake.session.conf.set(name, value)
        stream.run(lake, streams, "available-now")
    finally:
        for name, previous in before.items():
            if previous is None:
                lake.session.conf.unset(name)
            else:
                lake.session.conf.set(name, previous)


def hashes(lake: Lake, accounts: Sequence[str]) -> list[int]:
    """Return the hashes that identify accounts in the state of streams."""
    return [row[0] for row in _frame(lake, accounts).select(F.xxhash64("account_id")).collect()]


def _frame(lake: Lake, accounts: Sequence[str]) -> DataFrame:
    return lake.session.createDataFrame([(account,) for account in accounts], "account_id STRING")


def tables_of(lake: Lake) -> Iterator[tuple[str, str, pa.Table]]:
    """Return the tables of the state of all streams, with the step and the name of each."""
    yield "detect", "open flags", state_table.read(lake, "detect", entity_rules.OPEN_FLAGS, detector.FLAGS)
    yield "detect", "waiting", state_table.read(lake, "detect", "waiting", ROWS)
    for row in state_table.read(lake, "detect", "rules", live_rules.STATE).to_pylist():
        yield "detect", f"rule {row['rule']}", pa.ipc.open_stream(row["rows"]).read_all()
    yield "score", "memory", state_table.read(lake, "score", account_features.STATE, account_features.MEMORY)
    named = pa.schema([("account_id", pa.string())])
    yield "score", "verdicts", state_table.read(lake, "score", feature_buckets.DECIDED, named).select(named.names)
    stored = state_table.read(lake, "score", feature_buckets.TILES, feature_buckets.TILES_ROWS)
    for part, keys in feature_buckets.hashes_in(stored):
        yield "score", f"tiles of {part}", keys
