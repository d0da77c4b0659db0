"""Missing version: an error of Spark becomes whether a table's version has left by the setting ``retention``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_SIGNS = ("VERSION_NOT_FOUND", "VersionNotFound", "FILE_NOT_EXIST", "FILE_NOT_FOUND", "FileNotFoundException")
"""Parts of Spark's and Delta's messages about a version whose log or files are gone."""


def is_missing(error: PySparkException) -> bool:
    """Return whether an error says that a table's version is gone."""
    return any(sign in str(error) for sign in _SIGNS)
