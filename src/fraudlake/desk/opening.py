"""Opening: a lake that is open becomes the store of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.desk.store import SparkStore

if TYPE_CHECKING:
    from fraudlake.desk.store import Store
    from fraudlake.lake import Lake


def of(lake: Lake) -> Store:
    """Return the tables of a lake that is open; one on this machine is read without Spark."""
    if lake.settings.is_in_workspace:
        return SparkStore(lake)
    from fraudlake.desk.local_store import LocalStore  # delta-rs, which a workspace has not

    return LocalStore(lake.settings)
