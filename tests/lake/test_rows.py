from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import fraudlake
from fraudlake.errors import FraudlakeError
from fraudlake.lake.rows import persisted, persisted_batch


class Rows:
    """A fake DataFrame on compute that persists rows, or refuses to."""

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


def test_persisted_rows_of_a_micro_batch_are_not_read_again() -> None:
    rows: Any = Rows()
    with persisted_batch(rows) as require_again:
        require_again(3)
    assert rows.calls == ["persist", "unpersist"]


def test_rows_that_the_compute_does_not_persist_must_be_there_for_a_second_action() -> None:
    rows: Any = Rows(refusing=True)
    with persisted_batch(rows) as require_again:
        require_again(3)
        with pytest.raises(FraudlakeError, match=r"had 4 rows when it was first read, and 3 when it was read again"):
            require_again(4)
    assert rows.calls == ["persist", "count", "count"]


def test_no_other_module_persists_rows() -> None:
    root = Path(fraudlake.__file__).parents[1]
    # The probe asks whether a compute refuses it.
    sources = [file for file in root.rglob("*.py") if file.parent != root / "fraudlake_tools" / "probe"]
    asking = [file.name for file in sources if ".persist(" in file.read_text() or ".cache()" in file.read_text()]
    assert asking == ["rows.py"]
