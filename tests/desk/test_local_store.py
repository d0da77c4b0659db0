"""The local store reads tables as they are now, although it opens each of them once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fraudlake.desk.local_store import LocalStore
from fraudlake.tables import SILVER_VERDICTS
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
