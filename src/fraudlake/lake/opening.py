"""Opening: settings become the lake that they name, in a workspace or on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.errors import UsageError
from fraudlake.lake.workspace import WorkspaceLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fraudlake.lake.definition import Change
    from fraudlake.lake.lake import Lake
    from fraudlake.settings import Settings


def open_lake(
    settings: Settings, spark: SparkSession | None = None, must_exist: bool = False, change: Change | None = None
) -> Lake:
    """Open the lake that the settings name: in a workspace where they name a catalog, otherwise on this machine.

    Opening makes the tables that are missing, so that every table can be queried by its name from the start. The lake's
    settings are those given, with its own definition.

    Args:
        settings: the settings.
        spark: the session of a lake in a workspace; by default the compute's own.
        must_exist: make nothing. That is for who only reads; on this machine Spark starts on first use.
        change: change the lake's definition to what the settings give, instead of refusing what contradicts it; with
            ``must_exist`` only say whether it can be.

    Raises:
        UsageError: what only local lakes need is not installed, or a setting does not suit the place or the lake.
        FraudlakeError: the lake cannot be opened.
        MissingLakeError: with ``must_exist``: there is no such lake, or it lacks a table.
    """
    if settings.is_in_workspace:
        return WorkspaceLake(settings, spark, must_exist, change)
    try:
        from fraudlake.lake.local import LocalLake
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'fraudlake[local]'") from None
    return LocalLake(settings, must_exist, change)
