"""Clock: the current time, as a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def now() -> Column:
    """Return the time at which the query began, the same for all of its rows.

    Spark writes a plain timestamp as a literal into the code that it generates, and so compiles that code again for
    each micro-batch. A timestamp taken from an array, by an index that the planner does not know, is not a literal.
    """
    return F.get(F.array(F.current_timestamp()), F.pmod(F.spark_partition_id(), F.lit(1)))
