"""Numbered append: appends files' rows to bronze under a number, which only one process can use."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.errors import FraudlakeError

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.lake.writer import Transaction

_LATEST = 100
"""Number of latest commits in which a number is searched; Kafka's rows and maintenance commit in between."""


@dataclass(frozen=True)
class NumberedAppend:
    """An append of files' rows to ``bronze_transactions``, which may be repeated.

    Delta silently skips an append if its number, or a larger one, is in the table's log (``txnVersion``). So each
    append writes a unique name into its commit, and the appending process looks for it.
    """

    application: str
    """The ledger's identity: a new ledger counts from the start again."""
    number: int
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def transaction(self) -> Transaction:
        """Delta's ``txnAppId`` and ``txnVersion``."""
        return self.application, self.number

    @property
    def metadata(self) -> str:
        """The text for the commit."""
        return json.dumps({"files_of": self.application, "number": self.number, "name": self.name})

    def require_commit(self, lake: Lake) -> None:
        """Check that the rows are in bronze.

        Raises:
            FraudlakeError: they are not, because another append had the number.
        """
        if all(commit.metadata != self.metadata for commit in lake.store.history(tables.BRONZE_TRANSACTIONS, _LATEST)):
            raise FraudlakeError("another process ingests files into this lake: let it finish, or stop it first")


def last_number(lake: Lake, application: str) -> int | None:
    """Return the number of the last append to bronze; None if the latest commits have no number."""
    for commit in lake.store.history(tables.BRONZE_TRANSACTIONS, _LATEST):
        record = commit.record
        if record.get("files_of") == application:
            return int(record["number"])
    return None
