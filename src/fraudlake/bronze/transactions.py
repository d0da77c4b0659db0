"""Bronze transactions: landed parquet files become rows in Flink's schema, with the place that each came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import clock
from fraudlake.bronze import landing, parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READ = """dt TIMESTAMP, accountId STRING, amount DOUBLE, alert BOOLEAN, transaction_id STRING,
 _rescued_data STRING, _source_row BIGINT, _source_file STRING"""


def from_files(files: DataFrame, timezone: str = "UTC") -> DataFrame:
    """Read files that have been found readable: all of each, or none of any.

    Args:
        files: one row a file: ``path, source, size, modified`` as :class:`fraudlake.bronze.landing.File` has them.
        timezone: that of the Flink that wrote them, see :func:`fraudlake.bronze.contract.fit`.

    Returns:
        The columns of ``bronze_transactions``; ``dt`` and ``_ingested_at`` in UTC. Reading them fails where a file is
        not, or no longer, the one that was found readable.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _rows(landing.File(row["path"], row["source"], row["size"], row["modified"]), timezone)

    return (
        files.select("path", "source", "size", "modified")
        .mapInArrow(read, _READ)
        .select(
            "dt",
            "accountId",
            "amount",
            "alert",
            "transaction_id",
            "_rescued_data",
            F.lit(None).cast("binary").alias("_raw"),
            F.lit(None).cast("string").alias("_error"),
            "_source_file",
            "_source_row",
            F.lit(None).cast("string").alias("_topic"),
            F.lit(None).cast("int").alias("_partition"),
            F.lit(None).cast("bigint").alias("_offset"),
            clock.now().alias("_ingested_at"),
            F.to_date("dt").alias("date"),
        )
    )


def _rows(file: landing.File, timezone: str) -> Iterator[pa.RecordBatch]:
    folder = file.path.removesuffix(file.source)
    for rows in parquet.batches(file.path, timezone):
        yield rows.append_column("_source_file", pa.repeat(file.source, rows.num_rows))
    if landing.seen(file.path, folder) != file:
        raise RuntimeError(f"{file.path} changed while it was read")
