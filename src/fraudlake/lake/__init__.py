"""The lake: the one place that decides on the paths of tables, checkpoints and models, and on the session."""

from __future__ import annotations

from fraudlake.lake.lake import Lake, open_lake

__all__ = ["Lake", "open_lake"]
