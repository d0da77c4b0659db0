"""Rewriting: compacts or clusters chosen files of a table, in one commit that changes no row.

delta-rs rewrites the files in a scratch table that contains only them, and this module publishes its commit in the
table. On the table itself, delta-rs can rewrite only whole partitions. It also commits if another process has already
rewritten the same files, which doubles their rows (seen in 1.6).
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from fraudlake.lake import publication
from fraudlake.lake.data_file import DataFile
from fraudlake.lake.publication import Action


def rewrite(folder: Path, files: list[DataFile], by: tuple[str, ...], size: int, scratch: Path) -> None:
    """Rewrite files of a plain table, within their partitions.

    Args:
        folder: the table's folder.
        files: the files, of any of the table's versions.
        by: columns to sort the rows by, or to cluster them by if there are several (Z-order); empty only compacts.
        size: approximate size of the new files, in bytes.
        scratch: a folder on the same disk, for this use only. What a crash has left there is removed.

    Raises:
        CommitFailedError: another commit has removed one of the files, or changed the table's columns.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        delta = DeltaTable(folder)
        copy = _copy(delta, folder, files, scratch)
        if by:
            copy.optimize.z_order(by, target_size=size)
        else:
            copy.optimize.compact(target_size=size)
        _publish(publication.actions(scratch, copy.version()), by, folder, delta.version(), scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _copy(delta: DeltaTable, folder: Path, files: list[DataFile], scratch: Path) -> DeltaTable:
    """Make a table from some files of another one."""
    present = set(delta.get_add_actions().column("path").to_pylist())
    if not {file.path for file in files} <= present:
        raise CommitFailedError("another commit has removed a file that was to be rewritten")
    metadata = delta.metadata()
    columns = metadata.partition_columns
    properties = metadata.configuration
    copy = DeltaTable.create(
        scratch, delta.schema(), partition_by=columns, configuration=properties, raise_if_key_not_exists=False
    )
    added: list[AddAction | RemoveAction] = []
    for file in files:
        _link(folder / file.path, scratch / file.path)
        size = (scratch / file.path).stat().st_size
        added.append(AddAction(file.path, size, {**file.partition}, file.millis, True, "{}"))
    copy.create_write_transaction(added, "append", delta.schema(), columns)
    copy.update_incremental()
    return copy


def _link(file: Path, link: Path) -> None:
    """Hard-link a file, and create the link's folder if necessary."""
    link.parent.mkdir(parents=True, exist_ok=True)
    os.link(file, link)


def _publish(actions: list[Action], by: tuple[str, ...], folder: Path, version: int, scratch: Path) -> None:
    """Commit the scratch table's actions to the table, whose ``version`` has the same files."""
    added = [action["add"] for action in actions if "add" in action]
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    if not removed:
        return
    commit_info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    days = sorted({add["partitionValues"].get("date") or "NULL" for add in added})
    parameters = {"predicate": json.dumps([f"date IN ({', '.join(days)})"]), "zOrderBy": json.dumps(by)}
    commit_info |= {"readVersion": version, "operationParameters": {**parameters, "auto": "false"}}

    def conflicts(action: Action) -> bool:
        return action.get("remove", {}).get("path") in removed

    files = {scratch / add["path"]: folder / add["path"] for add in added}
    publication.publish(folder, version, actions, files, conflicts, scratch / "commit.json")
