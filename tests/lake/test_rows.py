from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

import fraudlake
from fraudlake.lake.rows import persisted, persisted_count


class Rows:
    """Stands for a DataFrame on a compute that persists rows, or refuses to."""

    def __init__(self, refusing: bool = False) -> None:
        self.refusing, self.calls = refusing, []

    def persist(self) -> None:
        self.calls.append("persist")
        if self.refusing:
            raise PySparkException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported")

    def count(self) -> int:
        self.calls.append("count")
        return 3

    def unpersist(self) -> None:
        self.calls.append("unpersist")


def test_rows_are_persisted_for_a_block_and_unpersisted_however_it_ends() -> None:
    rows: Any = Rows()
    try:
        with persisted(rows) as same:
            assert same is rows
            raise KeyError
    except KeyError:
        assert rows.calls == ["persist", "count", "unpersist"]


def test_where_the_compute_refuses_the_rows_are_used_as_they_are() -> None:
    rows: Any = Rows(refusing=True)
    with persisted(rows) as same:
        assert same is rows
    assert rows.calls == ["persist"]


def test_persisted_rows_are_counted_where_that_computes_them_only_once() -> None:
    rows: Any = Rows()
    with persisted_count(rows) as count:
        assert count == 3
    assert rows.calls == ["persist", "count", "unpersist"]
    rows = Rows(refusing=True)
    with persisted_count(rows) as count:
        assert count is None
    assert rows.calls == ["persist"]


def test_no_other_module_persists_rows() -> None:
    root = Path(fraudlake.__file__).parent
    # The probe in workspace/ asks whether a compute refuses.
    sources = [file for file in root.rglob("*.py") if file.parent != root / "workspace"]
    asking = [file.name for file in sources if ".persist(" in file.read_text() or ".cache()" in file.read_text()]
    assert asking == ["rows.py"]
