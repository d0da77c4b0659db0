"""Arrays: hashes against those of Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from fraudlake.arrays import hashes_of

VALUES = {
    "string": pa.array(["", "a", "card-ü7", "x" * 100, None, "a"]),
    "bigint": pa.array([0, -1, 2**63 - 1, -(2**63), None, 7]),
    "double": pa.array([0.0, -0.0, 1.5, float("nan"), None, float("-inf")]),
    "boolean": pa.array([True, False, None, True, False, None]),
}


@pytest.mark.stream
def test_hashes_are_those_of_spark(spark: Any) -> None:
    listed = [tuple(values) for values in zip(*(column.to_pylist() for column in VALUES.values()), strict=True)]
    frame = spark.createDataFrame(listed, ", ".join(f"{name} {name}" for name in VALUES))
    hashed = [F.when(F.col(name).isNotNull(), F.xxhash64(name)).alias(name) for name in VALUES]
    expected = [row.asDict() for row in frame.select(*hashed).collect()]
    found = {name: hashes_of(pa.chunked_array([column])).to_pylist() for name, column in VALUES.items()}
    assert pa.table(found).to_pylist() == expected
