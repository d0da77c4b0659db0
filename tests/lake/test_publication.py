"""Files from scratch tables get into a table in one commit, after any other process's, or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from fraudlake.lake import conflict, delta_rs_reader, publication

ROWS = pa.table({"number": [1, 2], "day": ["a", "b"]})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    DeltaTable.create(tmp_path / "table", ROWS.schema, partition_by=["day"])
    return tmp_path / "table"


def numbers(table: Path) -> list[int]:
    read = delta_rs_reader.Opened().query("SELECT number FROM t", {"t": table})
    return sorted(read["number"].to_pylist())


def publish(table: Path, version: int, tmp_path: Path) -> None:
    """Publish the rows as the first micro-batch of the application ``stream``."""
    scratch = tmp_path / "scratch"
    write_deltalake(scratch, ROWS, partition_by=["day"])
    added = [action for action in publication.actions(scratch, 0) if "add" in action]
    files = {scratch / action["add"]["path"]: table / action["add"]["path"] for action in added}
    committed = [{"commitInfo": {"operation": "WRITE"}}, *added, {"txn": {"appId": "stream", "version": 0}}]

    def conflicts(action: publication.Action) -> bool:
        return action.get("txn", {}).get("appId") == "stream"

    publication.publish(table, version, committed, files, conflicts, tmp_path / "draft")


def test_files_are_committed_after_what_another_process_has_committed_meanwhile(table: Path, tmp_path: Path) -> None:
    write_deltalake(table, pa.table({"number": [3], "day": ["a"]}), mode="append")
    publish(table, 0, tmp_path)
    delta = DeltaTable(table)
    assert (delta.version(), delta.transaction_version("stream")) == (2, 0)
    assert numbers(table) == [1, 2, 3]


def test_a_micro_batch_that_another_process_has_committed_is_not_committed_again(table: Path, tmp_path: Path) -> None:
    done = CommitProperties(app_transactions=[Transaction("stream", 0)])
    write_deltalake(table, ROWS, mode="append", commit_properties=done)
    files = {*table.rglob("*.parquet")}
    with pytest.raises(CommitFailedError) as error:
        publish(table, 0, tmp_path)
    assert conflict.is_conflict(error.value)
    assert {*table.rglob("*.parquet")} == files
    assert numbers(table) == [1, 2]


def test_files_do_not_get_into_a_table_whose_columns_have_changed_meanwhile(table: Path, tmp_path: Path) -> None:
    write_deltalake(table, ROWS.append_column("more", pa.array([1, 2])), mode="append", schema_mode="merge")
    with pytest.raises(CommitFailedError):
        publish(table, 0, tmp_path)
    assert numbers(table) == [1, 2]
