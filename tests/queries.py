"""Queries: counts those that Spark runs, Delta's own among them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Queries:
    """Queries of a block, counted when it ends."""

    number = 0


@contextmanager
def counted(spark: Any) -> Iterator[Queries]:
    """Count the queries that all sessions of this process's Spark run in the block."""
    queries, before = Queries(), _last(spark)
    yield queries
    queries.number = _last(spark) - before


def _last(spark: Any) -> int:
    """Return the number of the latest query; Spark numbers them in order."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    return int(executions.last().executionId()) if executions.nonEmpty() else -1
