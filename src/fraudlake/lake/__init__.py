"""The lake: the one place that decides where tables, checkpoints, models and input are, and which session reads it."""

from __future__ import annotations

from fraudlake.lake.lake import Lake

__all__ = ["Lake"]
