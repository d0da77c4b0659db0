"""Attachments: removes the attached files of accounts, and attached files that name one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.forget import traces

if TYPE_CHECKING:
    from pathlib import Path

    from fraudlake.lake import Lake

_UNDER_WAY = 3600.0
"""Seconds after which a file without an event was left by a killed process: normally its event follows at once."""


def count(lake: Lake, accounts: Sequence[str]) -> Counter[str]:
    """Count the attached files of accounts, by account."""
    return Counter(account for account, _ in _named(lake) if account in accounts)


def remove(lake: Lake, accounts: Sequence[str]) -> None:
    """Remove files that no event on other accounts refers to, and files that name an account.

    It must run before the events are erased, so that the call after an interrupted one finds the files again.
    """
    named = _named(lake)
    others = {hash_ for account, hash_ in named if account not in accounts}
    theirs = {hash_ for account, hash_ in named if account in accounts} - others
    search = traces.Search(accounts)
    for file in _files(lake):
        is_left = file.name not in others and time.time() - file.stat().st_mtime > _UNDER_WAY
        if file.name in theirs or is_left or search.in_file(file):
            file.unlink()


def _files(lake: Lake) -> Iterator[Path]:
    folder = lake.settings.attachments_path
    yield from sorted(folder.iterdir()) if folder.is_dir() else ()


def _named(lake: Lake) -> set[tuple[str, str]]:
    """Return, for each account, the hashes of files that events on it refer to."""
    named = lake.read(tables.SILVER_REVIEW_EVENTS).where("file_hash IS NOT NULL")
    rows = named.select("account_id", "file_hash").distinct().collect()
    return {(row["account_id"], row["file_hash"]) for row in rows}
