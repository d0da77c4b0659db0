"""Delta folders: a table's past leaves its files and its log, and its present stays."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fraudlake.lake import delta_folder, publication
from fraudlake.lake.commit import Commit


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table whose account b was deleted, with a checkpoint from before."""
    folder = tmp_path / "table"
    for account in ("account-a", "account-b", "account-c"):
        write_deltalake(folder, pa.table({"id": [account], "day": ["1"]}), mode="append", partition_by=["day"])
    DeltaTable(folder).create_checkpoint()
    DeltaTable(folder).delete("id = 'account-b'")
    return folder


def files_that_name(account: str, folder: Path) -> list[str]:
    return sorted(file.name for file in folder.rglob("*") if file.is_file() and account.encode() in file.read_bytes())


def test_nothing_of_deleted_rows_is_left_in_files_log_and_checkpoints(table: Path) -> None:
    assert len(files_that_name("account-b", table)) >= 4  # data, statistics, checkpoint, condition of the DELETE
    delta_folder.erase_past(table)
    assert files_that_name("account-b", table) == []
    assert sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist()) == ["account-a", "account-c"]


def test_a_line_separator_in_a_text_ends_no_line_of_the_log(tmp_path: Path) -> None:
    names = ["one\u2028name", "next\u0085line"]
    write_deltalake(tmp_path, pa.table({"id": names}))
    assert [*publication.actions(tmp_path, 0)[-1]] == ["add"]
    delta_folder.erase_past(tmp_path)
    assert DeltaTable(tmp_path).to_pyarrow_table()["id"].to_pylist() == names


def test_commits_stay_with_their_times_and_writers_go_on(table: Path) -> None:
    before = [(commit["version"], commit["timestamp"], commit["operation"]) for commit in DeltaTable(table).history()]
    delta_folder.erase_past(table)
    delta_folder.erase_past(table)
    history = DeltaTable(table).history()
    after = [(commit["version"], commit["timestamp"], commit["operation"]) for commit in history]
    assert after[-len(before) :] == before
    write_deltalake(table, pa.table({"id": ["account-d"], "day": ["2"]}), mode="append")
    assert DeltaTable(table).to_pyarrow_table().num_rows == 3
    # The present files keep their statistics, in the checkpoint.
    assert "account-a" in str(DeltaTable(table).get_add_actions(flatten=True))


def test_an_empty_file_adds_no_row_and_says_so(table: Path) -> None:
    rows = DeltaTable(table).to_pyarrow_table().num_rows
    delta_folder.append_empty_file(table)
    assert DeltaTable(table).to_pyarrow_table().num_rows == rows
    latest, before = (Commit.of(entry) for entry in DeltaTable(table).history(2))
    assert (latest.changes_rows, latest.has_new_rows) == (True, False)
    assert (before.operation, before.has_new_rows) == ("DELETE", False)
