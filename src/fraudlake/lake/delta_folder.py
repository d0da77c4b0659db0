"""Delta folders: operations on a table's files on a disk that neither Spark nor delta-rs offers."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction

from fraudlake.lake import commit
from fraudlake.text import json_text


def append_empty_file(folder: Path) -> None:
    """Append a file without rows, so that each stream that reads the table runs an empty micro-batch."""
    table = DeltaTable(folder)
    partitions = table.metadata().partition_columns
    name = f"part-{uuid.uuid4()}.parquet"
    schema = table.schema().to_arrow()
    pq.write_table(_empty(schema, partitions), folder / name)
    file = AddAction(
        name,
        (folder / name).stat().st_size,
        dict.fromkeys(partitions),
        time.time_ns() // 1_000_000,
        True,
        json.dumps({"numRecords": 0}),
    )
    table.create_write_transaction(
        [file],
        "append",
        schema,
        partitions,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps({commit.PASSED_OVER: True})}),
    )


def _empty(schema: Any, partitions: list[str]) -> Any:
    import pyarrow as pa

    return pa.schema(schema).empty_table().drop_columns(partitions)


def erase_past(folder: Path) -> None:
    """Remove the files that only older versions of a table use, and the log's statistics of their rows.

    Statistics in the log contain the least and the largest text of each file. The log's files stay, since streams
    continue from them, but lose statistics and conditions; a new checkpoint has the present files' statistics.
    Afterwards the table can be read in its present version only. Nobody may read or write it meanwhile.
    """
    table = DeltaTable(folder)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    table.create_checkpoint()
    log = folder / "_delta_log"
    version = table.version()
    for file in log.iterdir():
        number = file.name.partition(".")[0]
        if not number.isdigit():
            continue
        if file.suffix == ".json" and file.stem.isdigit():
            _erase_statistics(file)
        elif int(number) < version or file.suffix == ".crc":
            file.unlink()


def _erase_statistics(file: Path) -> None:
    times = file.stat()
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}.tmp")
    draft.write_text("".join(f"{line}\n" for line in _without_statistics(file.read_text())))
    # The time of a file is the time of its commit.
    os.utime(draft, ns=(times.st_atime_ns, times.st_mtime_ns))
    draft.replace(file)


def _without_statistics(text: str) -> Iterator[str]:
    for line in json_text.lines(text):
        action = json.loads(line)
        for name in ("add", "remove"):
            action.get(name, {}).pop("stats", None)
        parameters = action.get("commitInfo", {}).get("operationParameters", {})
        for name in [name for name in parameters if "predicate" in name.lower()]:
            del parameters[name]
        yield json.dumps(action, separators=(",", ":"))
