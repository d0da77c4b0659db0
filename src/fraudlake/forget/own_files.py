"""Own files: removes rows of accounts from landed files that ``simulate`` wrote, and from delivered files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fraudlake.bronze import parquet
from fraudlake.sources import landing, ledger
from fraudlake.sources.landing_folder import landing_folder

if TYPE_CHECKING:
    from fraudlake.delivery.event import Event
    from fraudlake.lake import Lake
    from fraudlake.sources.file import File

_COLUMN = "accountId"


@dataclass(frozen=True)
class LandedFile:
    """A landed file that has rows of the accounts; ``rows`` counts them by account."""

    file: File
    is_own: bool
    rows: Counter[str]


def landed(lake: Lake, accounts: Sequence[str]) -> Iterator[LandedFile]:
    """Return the landed files that have rows of accounts; files that cannot be read are skipped."""
    wanted = pa.array(accounts)
    for file in landing_folder(lake).list_files():
        if file.size is None:
            continue
        try:
            column = pq.read_table(file.path, columns=[_COLUMN])[_COLUMN].cast(pa.string())
        except (OSError, KeyError, pa.ArrowException):
            continue
        rows = Counter(column.filter(pc.is_in(column, wanted)).to_pylist())
        if rows:
            yield LandedFile(file, parquet.is_own(file.path), rows)


def blank(lake: Lake, landed_file: LandedFile) -> None:
    """Set the rows of the accounts to null, so that all rows retain their numbers.

    The ledger gets an entry first; otherwise the next sweep would take the file for rewritten.
    """
    file = landed_file.file
    path = Path(file.path)
    rows = pq.read_table(path)
    is_theirs = pc.is_in(rows[_COLUMN], pa.array(list(landed_file.rows)))
    columns = [pc.if_else(is_theirs, pa.scalar(None, column.type), column) for column in rows.columns]
    draft = path.with_name(f".{path.name}.inprogress.forget")
    parquet.write_own(pa.table(columns, rows.schema.names), draft)
    entries = ledger.latest(lake)
    if file.source in entries:
        now = landing.file_of(file.path, landing_folder(lake).path, draft.stat())
        number = max(entry.number for entry in entries.values()) + 1
        entry = replace(entries[file.source], file=now, number=number, noted_at=0, digest=parquet.digest(str(draft)))
        ledger.append(lake, [entry])
    draft.replace(path)


def delivered(lake: Lake, accounts: Collection[str], erase: bool) -> Counter[str]:
    """Count the accounts' alerts in delivered files, by account; with ``erase``, also remove them."""
    counts: Counter[str] = Counter()
    folder = lake.settings.delivery_folder
    for path in sorted(Path(folder).glob("alerts-*.jsonl")) if folder else ():
        with path.open(encoding="utf-8") as file:  # str.splitlines() would also split at U+2028, within a name
            lines = list(file)
        named = [_accounts(json.loads(line)) & {*accounts} for line in lines]
        theirs = Counter(account for of_line in named for account in of_line)
        counts += theirs
        if theirs and erase:
            draft = path.with_name(f".{path.name}.tmp")
            with draft.open("w", encoding="utf-8") as left:
                left.writelines(line for line, of_line in zip(lines, named, strict=True) if not of_line)
                left.flush()
                os.fsync(left.fileno())
            draft.replace(path)
    return counts


def _accounts(alert: Event) -> set[str]:
    """Return the accounts that an alert names."""
    parts = (part.get("columns", {}) for part in alert["data"].get("evidence") or ())
    return {alert["data"]["account_id"], *(part["account_id"] for part in parts if "account_id" in part)}
