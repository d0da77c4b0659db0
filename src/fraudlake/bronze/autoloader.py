"""Auto Loader: Databricks' file source, set up so that it tells of landed files.

It lists the files; the package reads them, here as on a laptop. Option names are those of Databricks' reference, "Auto
Loader options".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from fraudlake.settings import Settings


def options(settings: Settings) -> dict[str, str]:
    """Return the options of ``cloudFiles``.

    Args:
        settings: ``file_events`` and the bounds of a micro-batch.
    """
    chosen = {
        # A row a file. Its schema is fixed: nothing is inferred, and nothing evolves.
        "cloudFiles.format": "binaryFile",
        "cloudFiles.maxFilesPerTrigger": str(settings.max_files_per_trigger),
        # Bucket folders are where a file lies, not a part of what it says: no `day` and `hour` columns.
        "cloudFiles.partitionColumns": "",
        "recursiveFileLookup": "true",
        # A file that is gone does not stop the stream; the ledger of files tells of it.
        "ignoreMissingFiles": "true",
        # Flink's names have a suffix or not; what starts with a dot or an underscore is unfinished.
        "pathGlobFilter": "[!._]*",
    }
    if settings.max_bytes_per_trigger:
        chosen["cloudFiles.maxBytesPerTrigger"] = settings.max_bytes_per_trigger
    if settings.file_events == "managed":
        chosen["cloudFiles.useManagedFileEvents"] = "true"
    elif settings.file_events == "notifications":
        chosen["cloudFiles.useNotifications"] = "true"
    return chosen


def read_stream(spark: SparkSession, landing: str, settings: Settings) -> DataFrame:
    """Stream the files of a landing folder, in a Unity Catalog volume: ``path, modificationTime, length``."""
    reader = spark.readStream.format("cloudFiles").options(**options(settings))
    return reader.load(landing).select("path", "modificationTime", "length")


def below(landing: str, uri: str) -> str:
    """Return a landed file's path as Python opens it, from what Databricks calls it (``dbfs:/Volumes/…``).

    The path of a file of another landing folder, which the stream has listed before, is given as it is.
    """
    _, folder, rest = uri.rpartition(_folder(landing))
    is_elsewhere = not folder and re.match(r"(\w+:)?/", uri)
    return f"/{uri.partition(':')[2] or uri}".replace("//", "/") if is_elsewhere else f"{landing.rstrip('/')}/{rest}"


def source(path: str, landing: str) -> Column:
    """Return the column ``path`` of a landed file relative to the landing folder, as :func:`below` cuts it."""
    return F.substring_index(path, _folder(landing), -1)


def _folder(landing: str) -> str:
    return f"/{landing.partition(':')[2] or landing}".replace("//", "/").rstrip("/") + "/"
