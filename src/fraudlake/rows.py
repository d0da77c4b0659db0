"""Rows: computed once where they are used several times; and whether there are any, at little cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def kept(rows: DataFrame, at_once: bool = True) -> Iterator[DataFrame]:
    """Keep rows for the length of the block; they are computed at its beginning, or by the first use of all of them.

    Serverless compute refuses to (Databricks documentation, "Serverless compute limitations"): there they are computed
    anew for each use, which is slower and gives the same.
    """
    if at_once:
        with counted(rows):
            yield rows
        return
    is_kept = _persist(rows)
    try:
        yield rows
    finally:
        if is_kept:
            rows.unpersist()


@contextmanager
def counted(rows: DataFrame) -> Iterator[int | None]:
    """Keep rows for the length of the block and give their number; None where they are not kept."""
    if not _persist(rows):
        yield None
        return
    try:
        # On all cores: to look whether there are any rows, Spark would compute one partition after the other.
        yield rows.count()
    finally:
        rows.unpersist()


def _persist(rows: DataFrame) -> bool:
    try:
        rows.persist()
    except PySparkException:
        return False
    return True


def has_rows(rows: DataFrame) -> bool:
    """Tell whether there are any rows; Spark generates and compiles code for each ``isEmpty``, for this only once."""
    return bool(rows.select(F.lit(True)).take(1))
