"""Clock: the time now, as a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def now() -> Column:
    """Return the time of the query, the same in all of its rows.

    A timestamp by itself becomes a number in the code that Spark generates, which then is another code, compiled anew,
    for each micro-batch. Taken out of an array, by an index that Spark does not know beforehand, it stays out of it.
    """
    return F.get(F.array(F.current_timestamp()), F.pmod(F.spark_partition_id(), F.lit(1)))
