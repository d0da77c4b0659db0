"""Opening: opens the lake that the settings name, in a workspace or on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.lake.workspace import WorkspaceLake
from fraudlake.process import extras

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fraudlake.lake.definition import Change
    from fraudlake.lake.lake import Lake
    from fraudlake.settings import Settings


def open_lake(
    settings: Settings, spark: SparkSession | None = None, must_exist: bool = False, change: Change | None = None
) -> Lake:
    """Open the lake that the settings name: in a workspace if they name a catalog, otherwise on this machine.

    Opening makes missing tables, so that every table can be queried by its name from the start. The lake's settings are
    the given ones, completed by its definition.

    Args:
        settings: the settings.
        spark: the session of a lake in a workspace; by default the compute's own.
        must_exist: only read the lake, and make nothing; on this machine Spark starts on first use.
        change: change the lake's definition to the given settings, instead of refusing contradictions; with
            ``must_exist`` only check whether it can be changed.

    Raises:
        UsageError: the packages of local lakes are not installed, or a setting does not suit the place or the lake.
        FraudlakeError: the lake cannot be opened.
        MissingLakeError: with ``must_exist``: there is no such lake, or it lacks a table.
    """
    if settings.is_in_workspace:
        return WorkspaceLake(settings, spark, must_exist, change)
    with extras.required("local"):
        from fraudlake.lake.local import LocalLake
    return LocalLake(settings, must_exist, change)
