"""The local store reads tables as they are now, although it opens each of them once."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from fraudlake.lake.local_store import LocalStore
from fraudlake.lake.store import Snapshot
from fraudlake.tables import SILVER_VERDICTS
from fraudlake.text.sql_text import is_in, one_of
from tests.desk import local


@pytest.fixture
def stores(tmp_path: Path) -> tuple[LocalStore, LocalStore]:
    """Two of one lake, as two processes have them."""
    return local.open_store(tmp_path / "lake"), local.open_store(tmp_path / "lake")


def verdicts(store: LocalStore) -> list[str]:
    rows = store.query(f"SELECT transaction_id FROM {SILVER_VERDICTS.name} ORDER BY transaction_id", SILVER_VERDICTS)
    return [*rows["transaction_id"].to_pylist()]


def test_what_others_write_is_read_next(stores: tuple[LocalStore, LocalStore]) -> None:
    ours, other = stores
    assert verdicts(ours) == []
    for number, id_ in enumerate("abc"):
        local.verdicts(other, {id_: True})
        assert verdicts(ours) == [*"abc"][: number + 1]


def test_a_version_has_the_rows_that_it_had(stores: tuple[LocalStore, LocalStore]) -> None:
    ours, other = stores
    for id_ in "abc":
        local.verdicts(other, {id_: True})
        assert ours.count(Snapshot(SILVER_VERDICTS, 1)) == 1
    assert [ours.count(Snapshot(SILVER_VERDICTS, version)) for version in range(4)] == [0, 1, 2, 3]
    assert ours.version(SILVER_VERDICTS) == 3


def test_given_rows_are_joined_with_tables_that_exist_or_not(stores: tuple[LocalStore, LocalStore]) -> None:
    ours, _ = stores
    statement = f"SELECT g.name FROM given g JOIN {SILVER_VERDICTS.name} v ON g.name = v.transaction_id"
    assert ours.query(statement, SILVER_VERDICTS, given=pa.table({"name": ["a"]})).num_rows == 0
    local.verdicts(ours, {"a": True})
    for names in (["a", "b"], ["a", "c"]):
        found = ours.query(statement, SILVER_VERDICTS, given=pa.table({"name": names}))
        assert found["name"].to_pylist() == ["a"]


def test_one_of_very_many_names_is_found(stores: tuple[LocalStore, LocalStore]) -> None:
    """A list as long in WHERE ends the process with a segmentation fault."""
    ours, _ = stores
    local.verdicts(ours, {"a": True, "b": True, "it's": True})
    names = ["a", "it's", *(f"{number:064}" for number in range(30_000))]
    found = one_of("transaction_id", names)
    statement = f"SELECT transaction_id AS name FROM {SILVER_VERDICTS.name} WHERE"
    for condition, expected in (
        (found, ["a", "it's"]),
        (f"NOT ({found})", ["b"]),
        (f"verdict OR {found}", ["a", "b", "it's"]),
    ):
        assert sorted(ours.query(f"{statement} {condition}", SILVER_VERDICTS)["name"].to_pylist()) == expected
    chosen = (
        f"SELECT sum(CASE WHEN {is_in('transaction_id', names)} THEN 1 ELSE 0 END) AS n FROM {SILVER_VERDICTS.name}"
    )
    assert ours.query(chosen, SILVER_VERDICTS)["n"].to_pylist() == [2]


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_table_that_another_one_replaced_is_read_anew(stores: tuple[LocalStore, LocalStore], commits: int) -> None:
    """The other table has fewer commits than the one that was read, as many, or more."""
    ours, other = stores
    for id_ in "ab":
        local.verdicts(ours, {id_: True})
    assert verdicts(ours) == ["a", "b"]
    shutil.rmtree(ours.root / "tables" / SILVER_VERDICTS.name)
    assert verdicts(ours) == []
    for id_ in "xyz"[:commits]:
        local.verdicts(other, {id_: True})
    assert verdicts(ours) == [*"xyz"][:commits]


def test_a_table_whose_log_was_cleaned_up_is_read(stores: tuple[LocalStore, LocalStore]) -> None:
    ours, other = stores
    local.verdicts(ours, {"a": True})
    assert verdicts(ours) == ["a"]
    local.verdicts(other, {"b": True})
    other._open(SILVER_VERDICTS).create_checkpoint()
    for commit in (ours.root / "tables" / SILVER_VERDICTS.name / "_delta_log").glob("*.json"):
        commit.unlink()
    assert verdicts(ours) == ["a", "b"]


def test_threads_that_write_and_read_at_once_lose_and_double_nothing(stores: tuple[LocalStore, LocalStore]) -> None:
    ours, _ = stores

    def decide(number: int) -> int:
        with ours.in_turn():
            local.verdicts(ours, {f"t{number:02}": True})
        return len(verdicts(ours))

    with ThreadPoolExecutor(8) as threads:
        seen = [*threads.map(decide, range(24))]
    assert verdicts(ours) == [f"t{number:02}" for number in range(24)]
    assert min(seen) >= 1 and max(seen) == 24


def test_tables_that_are_not_there_are_empty_for_many_who_ask_at_once(tmp_path: Path) -> None:
    store = local.open_store(tmp_path / "lake")
    shutil.rmtree(store.root / "tables" / SILVER_VERDICTS.name, ignore_errors=True)
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(store.query, f"SELECT {n} FROM silver_verdicts", SILVER_VERDICTS) for n in range(24)]
        assert [len(one.result()) for one in asked] == [0] * 24
