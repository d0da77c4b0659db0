"""The lake: the one place that decides where tables, checkpoints and models are, and which session reads them."""

from __future__ import annotations

from fraudlake.lake.lake import Lake, open_lake

__all__ = ["Lake", "open_lake"]
