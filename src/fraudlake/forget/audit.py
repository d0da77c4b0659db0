"""Audit: ``gold_forgotten`` records, by a salted hash, when an account was forgotten, and how many rows by table."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake import conflict

if TYPE_CHECKING:
    from fraudlake.lake import Lake

ITERATIONS = 600_000
"""Iterations of PBKDF2: with hash and salt, trying an account takes a tenth of a second."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Audit:
    """The rows of ``gold_forgotten``, and the salt and iterations of the lake's hashes."""

    rows: list[Row]
    salt: str
    iterations: int

    def hash_of(self, account: str) -> str:
        """Return the hash of an account."""
        return hashlib.pbkdf2_hmac("sha256", account.encode(), bytes.fromhex(self.salt), self.iterations).hex()

    def is_unfinished(self, account: str) -> bool:
        """Return whether the removal of an account has begun and not finished."""
        return any(row["finished_at"] is None for row in self._rows_of(account))

    def finished_at(self, account: str) -> datetime | None:
        """Return when an account was last forgotten (UTC); None if it never was."""
        return max((row["finished_at"] for row in self._rows_of(account) if row["finished_at"]), default=None)

    def begin(self, lake: Lake, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Record the number of rows, by account and table, before they are removed.

        If an earlier removal was cut, the larger number counts, since that removal has removed some rows.
        """
        for account, by_table in counts.items():
            cut = [row for row in self._rows_of(account) if row["finished_at"] is None]
            began_at = min((row["began_at"] for row in cut), default=datetime.now(UTC))
            earlier = {row["table_name"]: row["rows"] for row in cut}
            for row in cut:
                self.rows.remove(row)
            self.rows.extend(
                {
                    "account_hash": self.hash_of(account),
                    "salt": self.salt,
                    "iterations": self.iterations,
                    "table_name": name,
                    "rows": max(earlier.get(name, 0), by_table.get(name, 0)),
                    "began_at": began_at,
                    "finished_at": None,
                }
                for name in sorted({*earlier, *by_table})
            )
        self._write(lake)

    def finish(self, lake: Lake, accounts: Iterable[str]) -> None:
        """Record that the accounts are removed completely."""
        now = datetime.now(UTC)
        for row in (row for account in accounts for row in self._rows_of(account)):
            row["finished_at"] = row["finished_at"] or now
        self._write(lake)

    def _rows_of(self, account: str) -> list[Row]:
        account_hash = self.hash_of(account) if self.rows else ""
        return [row for row in self.rows if row["account_hash"] == account_hash]

    def _write(self, lake: Lake) -> None:
        rows = pa.Table.from_pylist(self.rows, tables.GOLD_FORGOTTEN.schema)
        conflict.retried(lambda: lake.writer(tables.GOLD_FORGOTTEN).write(rows, "overwrite"))


def read(lake: Lake) -> Audit:
    """Read the table; generate a salt for a lake that has not forgotten an account."""
    rows: list[Row] = lake.store.rows(tables.GOLD_FORGOTTEN).to_pylist()
    if rows:
        return Audit(rows, rows[0]["salt"], rows[0]["iterations"])
    return Audit([], secrets.token_hex(16), ITERATIONS)


def require_known(lake: Lake, rows: Mapping[str, Mapping[str, int]]) -> Audit:
    """Return the audit, if for every account the lake has rows or an unfinished removal.

    Args:
        lake: the lake.
        rows: the number of rows, by account and table.

    Raises:
        UsageError: the lake has neither for an account.
    """
    audit = read(lake)
    for account, by_table in rows.items():
        if not by_table and not audit.is_unfinished(account):
            at = audit.finished_at(account)
            was = f"it was forgotten at {at:%Y-%m-%d %H:%M} UTC" if at else "no table and no landed file has it"
            raise UsageError(f"{account}: not found in {lake.name}: {was}")
    return audit
