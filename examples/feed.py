"""Feed: rows in Python become a stream whose micro-batches are the lists they were given in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARRIVAL = 1_700_000_000
"""Modification time of the first file, in seconds since 1970; each further file is a minute later."""

Row = tuple[Any, ...]

TRANSACTION = "account_id LONG, timestamp LONG, amount DOUBLE"
TRANSACTIONS: list[Row] = [
    (1, 1000, 188.23),
    (2, 1001, 0.50),
    (2, 1002, 600.00),
    (3, 1003, 42.00),
    (1, 1004, 0.89),
    (1, 1005, 300.00),
    (4, 1006, 0.10),
    (4, 1007, 520.00),
    (3, 1008, 0.75),
    (3, 1009, 800.00),
]
"""The ten transactions of Flink's tutorial: account, milliseconds since 1970, amount."""


def stream(spark: SparkSession, folder: Path, batches: Sequence[Iterable[Row]], schema: str) -> DataFrame:
    """Return a stream with the columns of ``schema`` and a micro-batch for each list of rows."""
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(batches):
        land(folder, number, rows, schema)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def land(folder: Path, number: int, rows: Iterable[Row], schema: str) -> None:
    """Put rows into the next file of a stream's folder; Spark reads files by their time."""
    folder.mkdir(exist_ok=True)
    names = [column.split()[0] for column in schema.split(",")]
    file = folder.parent / f"{folder.name}-{number}"
    file.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    os.utime(file, (ARRIVAL + 60 * number,) * 2)
    file.rename(folder / f"{number}.json")
