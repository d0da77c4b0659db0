"""How many queries a small micro-batch costs: a query takes some tenths of a second, however few rows it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from fraudlake.lake import Lake
from fraudlake.lake.local import LocalLake
from fraudlake.lake.local_store import LocalStore
from fraudlake.lake.spark_store import SparkStore
from fraudlake.streams import aggregate, detect, ingest, refine, stream
from fraudlake.tables import Table
from fraudlake_tools import simulator
from tests.queries import counted

pytestmark = pytest.mark.stream

MOST = {
    "laptop": {"ingest": 2, "refine": 9, "detect": 7, "aggregate": 23},
    "workspace": {"ingest": 32, "refine": 33, "detect": 27, "aggregate": 85},
}
"""The queries of a micro-batch with all that its stream asks before and after it, Delta's own among them."""


class WorkspaceStore(SparkStore):
    """The store of a workspace, but for the version and the columns of a table, which are read from its log."""

    def version(self, table: Table) -> int:
        return LocalStore(self.settings).version(table)

    def column_types(self, table: Table) -> dict[str, str]:
        return LocalStore(self.settings).column_types(table)


@pytest.mark.long
@pytest.mark.parametrize("place", ["laptop", "workspace"])
def test_a_small_micro_batch_takes_no_more_queries_than_it_did(
    lake: Callable[..., Lake], landing: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "workspace":
        monkeypatch.setattr(LocalLake, "store", property(WorkspaceStore))
        monkeypatch.setattr(LocalLake, "writer", Lake.writer)
    batches = simulator._tables(simulator.Traffic(accounts=50, bad=0.01), 1_000)
    for number in range(3):  # the second is still read from the snapshot with which the stream began
        pq.write_table(next(batches).drop_columns(["kind"]), landing / f"part-{number}.parquet")
        steps = (ingest, refine, detect, aggregate)
        taken = {step.__name__.rpartition(".")[2]: _queries(lake(), step, spark) for step in steps}
    assert {step: taken[step] for step in taken if taken[step] > MOST[place][step]} == {}


def _queries(lake: Lake, step: ModuleType, spark: Any) -> int:
    with counted(spark) as queries:
        stream.run(lake, step.streams(lake), "available-now")
    return queries.number
