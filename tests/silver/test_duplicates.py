from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.lake import Lake
from fraudlake.lake.appender import Appender
from fraudlake.silver import duplicates
from fraudlake.streams import refine, stream
from fraudlake.tables import Table
from tests import plain_lake

pytestmark = pytest.mark.stream

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
Row = tuple[str, int, float, str | None]
"""File, row, amount and the producer's own id."""


def land(lake: Lake, *rows: Row) -> None:
    """Append rows to bronze as one commit; ``refine`` takes new rows as one micro-batch."""
    assert lake.folder is not None
    common = {"dt": NOON, "accountId": "1", "alert": False, "_ingested_at": NOON, "date": NOON.date()}
    full = [
        {**common, "amount": amount, "transaction_id": own, "_source_file": file, "_source_row": at}
        for file, at, amount, own in rows
    ]
    plain_lake.fill(lake.folder, tables.BRONZE_TRANSACTIONS, *full)


def refine_all(lake: Lake) -> None:
    stream.run(lake, refine.streams(lake), "available-now")


def silver(lake: Lake) -> list[tuple[str, int]]:
    rows = lake.store.query(
        f"SELECT source, position FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS
    ).to_pylist()
    return sorted((row["source"], row["position"]) for row in rows)


def quarantine(lake: Lake) -> list[tuple[str, int, list[str]]]:
    rows = lake.store.rows(tables.SILVER_QUARANTINE).to_pylist()
    rows.sort(key=lambda row: (row["_source_file"], row["_source_row"], row["amount"], len(row["reasons"])))
    return [(row["_source_file"], row["_source_row"], row["reasons"]) for row in rows]


def test_a_source_position_is_taken_once_within_a_micro_batch(lake: Callable[..., Lake]) -> None:
    opened = lake()
    land(opened, ("a", 0, 5.0, None), ("a", 1, 6.0, None), ("a", 0, 5.0, None), ("b", 0, 5.0, None))
    refine_all(opened)
    assert silver(opened) == [("a", 0), ("a", 1), ("b", 0)]
    assert quarantine(opened) == [("a", 0, ["position_is_new"])]


@pytest.mark.long
def test_no_choice_of_repeated_positions_escapes(lake: Callable[..., Lake]) -> None:
    positions = {
        "a": (0, 1, 1, 4, 4),  # as many, with the same sum, as the range has
        "b": (0, 0, 2, 3, 4, 6, 6),
        "c": (63, 64, 64, 127, 129),
    }
    landed = [(source, at) for source, ats in positions.items() for at in ats]
    opened = lake()
    land(opened, *((source, at, 5.0, None) for source, at in landed))
    refine_all(opened)
    assert silver(opened) == sorted(set(landed))
    repeated = sorted((Counter(landed) - Counter(set(landed))).elements())
    assert quarantine(opened) == [(source, at, ["position_is_new"]) for source, at in repeated]


def test_a_source_position_is_taken_once_across_micro_batches(lake: Callable[..., Lake]) -> None:
    opened = lake()
    land(opened, ("a", 0, 5.0, None), ("a", 1, -6.0, None))
    refine_all(opened)
    land(opened, ("a", 0, 5.0, None), ("a", 1, -6.0, None), ("a", 2, 7.0, None))
    refine_all(opened)
    assert silver(opened) == [("a", 0), ("a", 2)]
    assert quarantine(opened) == [
        ("a", 0, ["position_is_new"]),
        ("a", 1, ["amount_is_positive"]),
        ("a", 1, ["amount_is_positive", "position_is_new"]),
    ]


def test_the_first_valid_row_of_an_id_wins_within_a_micro_batch(lake: Callable[..., Lake]) -> None:
    opened = lake()
    land(opened, ("b", 0, 5.0, "x"), ("a", 7, 5.0, "x"), ("a", 3, -5.0, "x"), ("c", 0, 5.0, "y"), ("d", 0, 5.0, None))
    refine_all(opened)
    assert silver(opened) == [("a", 7), ("c", 0), ("d", 0)]
    assert quarantine(opened) == [
        ("a", 3, ["amount_is_positive", "transaction_is_new"]),
        ("b", 0, ["transaction_is_new"]),
    ]


def test_an_id_is_taken_once_across_micro_batches(lake: Callable[..., Lake]) -> None:
    opened = lake()
    land(opened, ("a", 0, -5.0, "x"), ("a", 1, 5.0, "y"))
    refine_all(opened)
    land(opened, ("b", 0, 5.0, "x"), ("b", 1, 5.0, "y"), ("b", 2, 5.0, " "))
    refine_all(opened)
    assert silver(opened) == [("a", 1), ("b", 0), ("b", 2)]
    assert quarantine(opened) == [("a", 0, ["amount_is_positive"]), ("b", 1, ["transaction_is_new"])]


@pytest.mark.long
def test_stored_positions_are_read_once_a_date(lake: Callable[..., Lake]) -> None:
    opened = lake()
    land(opened, ("a", 3, 5.0, None), ("a", 4, 5.0, None), ("b", 0, -5.0, None))
    refine_all(opened)
    reads = []

    def open_silver() -> Any:
        reads.append("silver")
        return opened.read(tables.SILVER_TRANSACTIONS)

    stored = duplicates.StoredTables(open_silver, lambda: opened.read(tables.SILVER_QUARANTINE))
    position_index = duplicates.PositionIndex()

    def overlapping(*ranges: tuple[str, int, int], day: int = NOON.day) -> set[str]:
        """The overlapping sources of a micro-batch of these ranges, which is committed then."""
        on = date(2026, 3, day)
        source_ranges = tuple(duplicates.SourceRange(*span, repeats=False) for span in ranges)
        summary = duplicates.BatchSummary(source_ranges, (on, on), has_ids=False, valid=1, rejected=0)
        sources = position_index.overlapping_sources(summary, stored)
        position_index.add(summary)
        return sources

    assert overlapping(("a", 4, 9), ("c", 0, 1)) == {"a"}
    assert overlapping(("b", 0, 1), ("d", 0, 1)) == {"b"}  # "b" is in quarantine
    assert reads == ["silver"] * 2
    assert overlapping(("a", 0, 2), ("c", 2, 3), ("d", 1, 1), ("e", 0, 7)) == {"d"}
    assert overlapping(("a", 1, 1), ("e", 7, 8)) == {"a", "e"}
    assert reads == ["silver"] * 2
    assert overlapping(("a", 10, 11), ("f", 0, 0), day=9) == set()
    assert overlapping(("f", 0, 0), ("g", 0, 0), day=8) == {"f"}
    assert reads == ["silver"] * 3


@pytest.mark.long
@pytest.mark.usefixtures("each_writer")
@pytest.mark.parametrize(
    "fails_at",
    [tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE],
    ids=lambda table: table.name,
)
def test_a_micro_batch_that_is_repeated_is_checked_as_its_first_commit_was(
    lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, fails_at: Table
) -> None:
    opened = lake()
    land(opened, ("a", 0, 5.0, "x"), ("a", 1, -6.0, None))
    refine_all(opened)
    land(opened, ("a", 0, 5.0, "x"), ("b", 0, 5.0, None), ("b", 1, 5.0, "y"), ("b", 2, 5.0, "y"), ("b", 3, -5.0, None))
    append = Appender.append

    def cut(self: Appender, lake: Lake, rows: Any, table: Table, batch_id: int, **options: Any) -> None:
        if table is fails_at:
            raise OSError("killed")
        append(self, lake, rows, table, batch_id, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "append", cut)
        with pytest.raises(Exception, match="killed"):
            refine_all(opened)
    # The new settings no longer reject a negative amount.
    refine_all(lake(warn=("amount_is_positive",)))

    # Without the first commit nothing is recorded: the quality rules of the repetition apply.
    is_new = fails_at is tables.SILVER_TRANSACTIONS
    negative = ("b", 3)
    assert silver(opened) == [("a", 0), ("b", 0), ("b", 1), *([negative] if is_new else [])]
    assert quarantine(opened) == [
        ("a", 0, ["position_is_new", "transaction_is_new"]),
        ("a", 1, ["amount_is_positive"]),
        ("b", 2, ["transaction_is_new"]),
        *([] if is_new else [(*negative, ["amount_is_positive"])]),
    ]
    source_positions = Counter(silver(opened) + [row[:2] for row in quarantine(opened)])
    assert source_positions == {("a", 0): 2, ("a", 1): 1, ("b", 0): 1, ("b", 1): 1, ("b", 2): 1, ("b", 3): 1}


def test_a_repeated_position_is_not_replayed_whichever_name_the_lake_has_for_it(spark: Any) -> None:
    names = ("place_is_new", "position_is_new", "late", "amount_is_positive")
    rows = spark.createDataFrame([([name],) for name in names], "reasons ARRAY<STRING>")
    assert [row["reasons"] for row in rows.where(duplicates.REPLAYABLE).collect()] == [["amount_is_positive"]]
