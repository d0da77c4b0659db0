"""Missing version: recognises the error of reading a table's version that the setting ``retention`` has removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake.lake import Lake
    from fraudlake.tables import Table

Result = TypeVar("Result")

_SIGNS = ("VERSION_NOT_FOUND", "VersionNotFound", "FILE_NOT_EXIST", "FILE_NOT_FOUND", "FileNotFoundException")
"""Parts of Spark's and Delta's messages about a version whose log or files are gone."""


def is_missing(error: PySparkException) -> bool:
    """Return whether an error says that a table's version is gone."""
    return any(sign in str(error) for sign in _SIGNS)


def compute_at(lake: Lake, table: Table, version: int, compute: Callable[[DataFrame], Result]) -> Result | None:
    """Return the result of ``compute`` for the rows of a table's version; None if the version is gone."""
    try:
        return compute(lake.read_version(table, version))
    except PySparkException as error:
        if not is_missing(error):
            raise
        return None
