"""Auto Loader: Databricks' file source, set up so that it gives the columns of ``bronze_transactions``.

Option names are those of Databricks' reference, "Auto Loader options".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import clock
from fraudlake.bronze.contract import CONTRACT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from fraudlake.settings import Settings

SCHEMA_HINTS = "dt TIMESTAMP, accountId STRING, amount DOUBLE, alert BOOLEAN, transaction_id STRING"
"""The landing contract: a column that no file has yet has its type from here."""
RESCUED = "_rescued_data"


def options(settings: Settings, schema_location: str) -> dict[str, str]:
    """Return the options of ``cloudFiles``.

    Args:
        settings: ``schema_evolution``, ``file_events`` and the bounds of a micro-batch.
        schema_location: a folder in which Auto Loader keeps the schema; the stream's checkpoint will do.
    """
    chosen = {
        "cloudFiles.format": "parquet",
        "cloudFiles.schemaLocation": schema_location,
        "cloudFiles.schemaHints": SCHEMA_HINTS,
        "cloudFiles.schemaEvolutionMode": settings.schema_evolution,
        "cloudFiles.maxFilesPerTrigger": str(settings.max_files_per_trigger),
        # Bucket folders are where a file lies, not a part of what it says: no `day` and `hour` columns.
        "cloudFiles.partitionColumns": "",
        "rescuedDataColumn": RESCUED,
        # As the local reader: a name in other case is the contract's.
        "readerCaseSensitive": "false",
        "recursiveFileLookup": "true",
        # A file that cannot be read, or is gone, does not stop the stream; the ledger of files tells of it.
        "ignoreCorruptFiles": "true",
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


def read_stream(spark: SparkSession, landing: str, settings: Settings, schema_location: str) -> DataFrame:
    """Read a landing folder (a Unity Catalog volume or an external location) as bronze rows."""
    reader = spark.readStream.format("cloudFiles").options(**options(settings, schema_location))
    return transactions(reader.load(landing).select("*", "_metadata"), landing, settings.landing_timezone)


def transactions(files: DataFrame, landing: str, timezone: str = "UTC") -> DataFrame:
    """Turn what a parquet reader gives into the columns of ``bronze_transactions``.

    Args:
        files: the contract's columns, ``_rescued_data``, other columns (those that ``addNewColumns`` brought; they are
            kept), and Spark's ``_metadata``.
        landing: the folder that ``_source_file`` is given relative to.
        timezone: that of the Flink that wrote the files. Spark's reader does not tell timestamps marked as adjusted to
            UTC from the others: with another zone than UTC no file may have them.
    """
    place = {
        "_raw": F.lit(None).cast("binary"),
        "_error": F.lit(None).cast("string"),
        "_source_file": _relative(landing),
        "_source_row": F.col("_metadata.row_index"),
        "_topic": F.lit(None).cast("string"),
        "_partition": F.lit(None).cast("int"),
        "_offset": F.lit(None).cast("bigint"),
        "_ingested_at": clock.now(),
    }
    added = [name for name in files.columns if name not in {*CONTRACT.names, RESCUED, "_metadata"}]
    dt = F.col("dt") if timezone == "UTC" else F.from_utc_timestamp("dt", timezone)
    return files.where(~F.col("_metadata.file_name").contains(".inprogress.")).select(
        dt.alias("dt"),
        *CONTRACT.names[1:],
        RESCUED,
        *(column.alias(name) for name, column in place.items()),
        F.to_date(dt).alias("date"),
        *added,
    )


def _relative(landing: str) -> Column:
    """Cut the landing folder off a file's URI, in which a blank is ``%20``."""
    path = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    return F.substring_index(path, _folder(landing), -1)


def below(landing: str, uri: str) -> str:
    """Return a landed file's path as Python opens it, from what Databricks calls it (``dbfs:/Volumes/…``)."""
    return f"{landing.rstrip('/')}/{uri.rpartition(_folder(landing))[2]}"


def _folder(landing: str) -> str:
    return f"/{landing.partition(':')[2] or landing}".replace("//", "/").rstrip("/") + "/"


def new_column(failure: str) -> str | None:
    """Say in one line that Auto Loader stopped at a new column, if this is what it says."""
    if "UNKNOWN_FIELD_EXCEPTION" not in failure and "UnknownFieldException" not in failure:
        return None
    return "a column landed that bronze has not, and it was added: run it again, it goes on with the column"
