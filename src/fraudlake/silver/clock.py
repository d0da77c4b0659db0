"""Clock: the current time, as a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def now() -> Column:
    """Return the time at which the query began, the same for all of its rows.

    Spark writes a plain timestamp as a literal into generated code, and so compiles that code again for each
    micro-batch. A timestamp from an array, with an index unknown to the planner, is not a literal.
    """
    return F.get(F.array(F.current_timestamp()), F.pmod(F.spark_partition_id(), F.lit(1)))
