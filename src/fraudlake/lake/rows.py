"""Rows: computed once where they are used several times, and checked for being empty at little cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def persisted(rows: DataFrame, eager: bool = True) -> Iterator[DataFrame]:
    """Persist rows for the length of the block; without ``eager``, the first action on all of them computes them.

    Serverless compute refuses ``persist`` (Databricks documentation, "Serverless compute limitations"). There each
    action computes the rows again, which is slower and gives the same result.
    """
    with _try_persist(rows) as is_persisted:
        if is_persisted and eager:
            _count(rows)
        yield rows


@contextmanager
def persisted_count(rows: DataFrame) -> Iterator[int | None]:
    """Persist rows for the length of the block and return their number; None where the compute refuses ``persist``."""
    with _try_persist(rows) as is_persisted:
        yield _count(rows) if is_persisted else None


@contextmanager
def _try_persist(rows: DataFrame) -> Iterator[bool]:
    """Return whether the compute has persisted the rows for the length of the block."""
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
    """Compute persisted rows on all cores; ``isEmpty`` would compute one partition after the other."""
    return rows.count()


def has_rows(rows: DataFrame) -> bool:
    """Return whether there are any rows; Spark compiles new code for each ``isEmpty``, but only once for this query."""
    return bool(rows.select(F.lit(True)).take(1))
