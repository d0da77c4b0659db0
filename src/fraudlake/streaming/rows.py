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
    with _persisted(rows) as is_kept:
        if is_kept and at_once:
            _count(rows)
        yield rows


@contextmanager
def counted(rows: DataFrame) -> Iterator[int | None]:
    """Keep rows for the length of the block and give their number; None where they are not kept."""
    with _persisted(rows) as is_kept:
        yield _count(rows) if is_kept else None


@contextmanager
def _persisted(rows: DataFrame) -> Iterator[bool]:
    """Tell whether the compute keeps the rows for the length of the block."""
    try:
        rows.persist()
    except PySparkException:
        yield False
        return
    try:
        yield True
    finally:
        rows.unpersist()


def _count(rows: DataFrame) -> int:
    """Compute kept rows on all cores: to look whether there are any, Spark would take one partition after the other."""
    return rows.count()


def has_rows(rows: DataFrame) -> bool:
    """Tell whether there are any rows; Spark generates and compiles code for each ``isEmpty``, for this only once."""
    return bool(rows.select(F.lit(True)).take(1))
