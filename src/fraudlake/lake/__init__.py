"""The lake: the one place that decides on the paths of tables, checkpoints and models, and on the session."""

from __future__ import annotations

from fraudlake.lake.lake import Lake
from fraudlake.lake.opening import open_lake

__all__ = ["Lake", "open_lake"]
