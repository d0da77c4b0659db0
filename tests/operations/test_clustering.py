"""What is worth rewriting: by hand-written files and histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fraudlake.lake.commit import Commit
from fraudlake.lake.data_file import DataFile, small
from fraudlake.operations.clustering import Clustered, Clustering, compactable, portions

NIGHT = datetime(2026, 3, 8, tzinfo=UTC)
"""The end of 7 March."""
NOW = NIGHT + timedelta(hours=2)
CLUSTERING = Clustering(size=100, growth=0.2, lateness=timedelta(hours=1))


def millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def file(size: int, written: datetime = NOW, day: str | None = "2026-03-07", name: str = "") -> DataFile:
    return DataFile(name or f"{day}/{size}", size, millis(written), {"date": day})


def optimized(version: int, at: datetime, *days: str, by: str = '["account_id"]') -> Commit:
    predicate = f'["(date IN ({", ".join(days)}))"]' if days else "[]"
    parameters = {"predicate": predicate, "zOrderBy": by}
    entry = {"version": version, "operation": "OPTIMIZE", "timestamp": millis(at), "operationParameters": parameters}
    return Commit.of(entry)


def other(version: int, operation: str = "WRITE", at: datetime = NOW) -> Commit:
    return Commit.of({"version": version, "operation": operation, "timestamp": millis(at), "operationParameters": {}})


def due_days(files: list[DataFile], *history: Commit, now: datetime = NOW) -> list[str]:
    return [str(group[0].day) for group in CLUSTERING.due(files, Clustered.of([*history]), now)]


def test_a_day_is_clustered_if_it_never_was_and_does_not_fit_into_one_file() -> None:
    files = [file(101), file(40, day="2026-03-06"), file(60, day="2026-03-06"), file(300, day=None)]
    assert due_days(files) == ["2026-03-07", "None"]


def test_a_day_that_has_not_changed_is_not_touched() -> None:
    assert due_days([file(90), file(90)], optimized(4, NOW, "2026-03-07"), other(0)) == []


@pytest.mark.parametrize(("new", "days"), [(39, []), (40, ["2026-03-07"])])
def test_a_clustered_day_is_clustered_again_after_it_grew_by_the_share(new: int, days: list[str]) -> None:
    late = NOW + timedelta(days=3)
    files = [file(100), file(100, name="b"), file(new, late, name="c"), file(1, day="2026-03-09")]
    assert due_days(files, optimized(4, NOW, "2026-03-07"), other(0), now=late) == days


def test_a_day_that_was_clustered_before_its_end_is_clustered_once_more_when_rows_of_a_later_one_are_there() -> None:
    before, after = NIGHT - timedelta(hours=3), NIGHT + timedelta(minutes=61)
    files = [file(200, before), file(1, NIGHT)]
    history = [optimized(4, before, "2026-03-07"), other(0)]
    tomorrow = file(1, day="2026-03-08")
    assert due_days(files, *history, now=after) == []
    assert due_days([*files, tomorrow], *history, now=NIGHT + timedelta(minutes=59)) == []
    assert due_days([*files, tomorrow], *history, now=after) == ["2026-03-07"]
    again = [*files, file(1, after + timedelta(hours=1), name="late"), tomorrow]
    assert due_days(again, optimized(5, after, "2026-03-07"), *history, now=after + timedelta(hours=2)) == []


def test_the_last_clustering_of_a_day_counts_whoever_did_it() -> None:
    a, b = NOW, NOW + timedelta(hours=1)
    history = [optimized(3, b, "2026-03-07"), optimized(2, a), optimized(1, a, by="[]"), other(0)]
    clustered = Clustered.of(history)
    assert clustered.millis(file(1)) == millis(b)
    assert clustered.millis(file(1, day="2026-03-06")) == millis(a)


def test_what_is_older_than_the_history_was_clustered_if_anything_was() -> None:
    old, new = NOW - timedelta(days=30), NOW
    assert Clustered.of([optimized(9, new, "2026-03-07"), other(8, at=old)]).millis(file(1, day=None)) == millis(old)
    assert Clustered.of([optimized(9, new, "2026-03-07"), other(0, at=old)]).millis(file(1, day=None)) == -1
    assert Clustered.of([other(8, at=old)]).millis(file(1)) == -1


def test_a_restore_makes_days_new() -> None:
    assert Clustered.of([other(5, "RESTORE"), optimized(4, NOW, "2026-03-07"), other(0)]).millis(file(1)) == -1


def test_only_new_files_are_compacted() -> None:
    later = NOW + timedelta(hours=1)
    files = [file(30), file(31, later), file(32, later), file(33, later, day="2026-03-08")]
    chosen = compactable(files, Clustered.of([optimized(4, NOW, "2026-03-07"), other(0)]), 400)
    assert [one.size for one in chosen] == [31, 32]


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([1, 1, 1, 900], [1, 1, 1]),  # not the large one
        ([1, 1, 8, 40, 200], [1, 1, 8, 40, 200]),
        ([1, 1, 9, 40], [1, 1]),  # more than four times what is smaller
        ([1, 5], []),
        ([300, 400], []),  # they are no small ones
        ([7], []),
        ([], []),
    ],
)
def test_small_files_are_compacted_with_files_that_are_not_much_larger(sizes: list[int], chosen: list[int]) -> None:
    assert [one.size for one in small([file(size) for size in reversed(sizes)], 1000)] == chosen


def test_a_portion_takes_whole_partitions() -> None:
    days = [[file(60), file(60)], [file(10)], [file(10)]]
    assert [[one.size for one in portion] for portion in portions(days, 100)] == [[60, 60], [10, 10]]
    assert [len(portion) for portion in portions(days, 1)] == [2, 1, 1]
