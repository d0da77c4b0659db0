"""Rows: persists rows that are used several times, and checks cheaply whether there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fraudlake.errors import FraudlakeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def persisted(rows: DataFrame, eager: bool = True) -> Iterator[DataFrame]:
    """Persist rows during the block; without ``eager``, the first action on all of them computes them.

    Serverless compute refuses ``persist`` (Databricks documentation, "Serverless compute limitations"). There each
    action computes the rows again, which is slower and gives the same result.
    """
    with _try_persist(rows) as is_persisted:
        if is_persisted and eager:
            _count(rows)
        yield rows


@contextmanager
def persisted_batch(rows: DataFrame) -> Iterator[Callable[[int], None]]:
    """Persist rows of a micro-batch during the block; the first action in it computes them.

    Serverless compute, which refuses ``persist``, was seen to give a micro-batch's rows to one action only, and none to
    the next, without an error. So between its first action and its first write, the block calls the function that it
    gets, with the number of rows that the first action saw.

    Returns:
        The function that counts again, unless the rows are persisted, and raises FraudlakeError if the number differs.
    """
    with _try_persist(rows) as is_persisted:

        def require_again(number: int) -> None:
            again = number if is_persisted else _count(rows)
            if again != number:
                raise FraudlakeError(
                    f"the micro-batch had {number:,} rows when it was first read, and {again:,} when it was read "
                    "again: this compute gives its rows only once; nothing of it was written: run the step on a "
                    "cluster (docs/how-to/workspace.md, 'A micro-batch is read more than once')"
                )

        yield require_again


@contextmanager
def _try_persist(rows: DataFrame) -> Iterator[bool]:
    """Persist the rows during the block, and return whether the compute does so."""
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
    """Compute persisted rows on all cores; ``isEmpty`` would compute the partitions one by one."""
    return rows.count()


def has_rows(rows: DataFrame) -> bool:
    """Return whether there are any rows; Spark compiles new code for each ``isEmpty``, but only once for this query."""
    return bool(rows.select(F.lit(True)).take(1))
