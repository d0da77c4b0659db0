"""Change log: appends numbered changes to a table; if two processes write the same number, one of them succeeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake.lake import conflict

if TYPE_CHECKING:
    from fraudlake.lake.lake import Lake
    from fraudlake.tables import Table


def write(lake: Lake, table: Table, application: str, rows: Sequence[dict[str, Any]]) -> bool:
    """Write the rows of one change, in one commit; return False if another process has written that change.

    Args:
        lake: the lake.
        table: a table with the columns ``change`` and ``changed_at``.
        application: Delta's ``txnAppId`` of the table's changes; ``txnVersion`` is a change's number.
        rows: the rows, all with the same number in ``change``.
    """
    change = int(rows[0]["change"])
    written = pa.Table.from_pylist(list(rows), table.schema)
    conflict.retried(lambda: lake.writer(table).write(written, "append", (application, change)))
    there = lake.store.query(f"SELECT * FROM {table.name} WHERE change = {change}", table).to_pylist()
    return sorted(map(_sign, there)) == sorted(map(_sign, rows))


def _sign(row: dict[str, Any]) -> str:
    return " ".join(str(row[name]) for name in sorted(row))
