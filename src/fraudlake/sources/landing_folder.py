"""The landing folder of a lake: a folder on this machine's disk or, in a workspace, in a volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.sources.local_folder import LocalFolder
from fraudlake.sources.volume import Volume

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.sources.folder import LandingFolder


def landing_folder(lake: Lake) -> LandingFolder:
    """Return the landing folder that a lake's settings name."""
    return Volume(lake) if lake.is_in_workspace else LocalFolder(lake)
