"""Opening: chooses the store through which the tables of an open lake are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake_desk.store import SparkStore

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake_desk.store import Store


def of(lake: Lake) -> Store:
    """Return the store of an open lake; a lake on this machine is read without Spark."""
    if lake.settings.is_in_workspace:
        return SparkStore(lake)
    from fraudlake_desk.local_store import LocalStore  # needs delta-rs, which a workspace lacks

    return LocalStore(lake.settings)
