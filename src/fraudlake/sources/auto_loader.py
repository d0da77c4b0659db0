"""Auto Loader: streams landed files by Databricks' file source.

Auto Loader only lists the files; this package reads them, in a workspace as on a laptop. Option names are those of
Databricks' reference, "Auto Loader options".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from fraudlake.settings import Settings


def options(settings: Settings) -> dict[str, str]:
    """Return the options of ``cloudFiles``, Spark's name of Auto Loader.

    Args:
        settings: ``file_events``, ``max_files_per_trigger`` and ``max_bytes_per_trigger``.
    """
    options = {
        # One row per file, in a fixed schema, without schema inference and evolution.
        "cloudFiles.format": "binaryFile",
        "cloudFiles.maxFilesPerTrigger": str(settings.max_files_per_trigger),
        # The names of Flink's bucket folders are not data: no `day` and `hour` columns.
        "cloudFiles.partitionColumns": "",
        "recursiveFileLookup": "true",
        # A deleted file does not stop the stream; the ledger of files rejects it.
        "ignoreMissingFiles": "true",
        # Flink's file names need not have a suffix. A name that starts with a dot or an underscore is unfinished.
        "pathGlobFilter": "[!._]*",
        # Set in any case, since from runtime 18.1 on Auto Loader uses a location's file events by default.
        "cloudFiles.useManagedFileEvents": "true" if settings.file_events == "managed" else "false",
    }
    if settings.max_bytes_per_trigger:
        options["cloudFiles.maxBytesPerTrigger"] = settings.max_bytes_per_trigger
    return options


def read_stream(spark: SparkSession, landing: str, settings: Settings) -> DataFrame:
    """Stream the files of a landing folder, in a Unity Catalog volume: ``path, modificationTime, length``."""
    reader = spark.readStream.format("cloudFiles").options(**options(settings))
    return reader.load(landing).select("path", "modificationTime", "length")


def posix_path(landing: str, uri: str) -> str:
    """Turn Databricks' URI of a landed file (``dbfs:/Volumes/…``) into the path that Python opens.

    The URI may name a file in a former landing folder, which the stream has listed before; its path stays there.
    """
    _, folder, rest = uri.rpartition(_folder(landing))
    is_elsewhere = not folder and re.match(r"(\w+:)?/", uri)
    return f"/{uri.partition(':')[2] or uri}".replace("//", "/") if is_elsewhere else f"{landing.rstrip('/')}/{rest}"


def source(path: str, landing: str) -> Column:
    """Return the column ``path`` relative to the landing folder, as :func:`posix_path` splits it."""
    return F.substring_index(path, _folder(landing), -1)


def _folder(landing: str) -> str:
    return f"/{landing.partition(':')[2] or landing}".replace("//", "/").rstrip("/") + "/"
