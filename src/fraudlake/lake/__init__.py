"""The lake: the one place that decides on the paths of tables, checkpoints and models, and on the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fraudlake.lake.lake import Lake
    from fraudlake.lake.opening import open_lake

__all__ = ["Lake", "open_lake"]


def __getattr__(name: str) -> Any:
    # They load pyspark, and the desk, which reads tables through modules of this package, does without.
    if name == "Lake":
        from fraudlake.lake.lake import Lake

        return Lake
    if name == "open_lake":
        from fraudlake.lake.opening import open_lake

        return open_lake
    raise AttributeError(f"module {__name__} has no attribute {name}")
