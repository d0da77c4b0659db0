"""Silver transactions: bronze rows that keep every rule, in analysts' names; the others with the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import clock
from fraudlake.silver import rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql._typing import ColumnOrName

    from fraudlake.settings import Settings


_KAFKA = "kafka:"
"""How the ``source`` of a row from Kafka begins."""
SOURCE = f"coalesce(_source_file, '{_KAFKA}' || _topic || '/' || lpad(CAST(_partition AS STRING), 10, '0'))"
POSITION = "coalesce(_source_row, _offset)"
"""What :func:`source` and :func:`position` say, in SQL."""


def source() -> Column:
    """Name what a bronze row came from, the file or the topic and partition: with :func:`position`, its place."""
    return F.expr(SOURCE)


def is_from_kafka() -> Column:
    """Tell of a row of ``silver_transactions`` whether it came from Kafka."""
    return F.col("source").startswith(_KAFKA)


def position() -> Column:
    """Tell where in its source a bronze row stood: the row, or the offset."""
    return F.expr(POSITION)


def own_id() -> Column:
    """Return the producer's own id of a bronze row's transaction; null where there is none, or a blank one."""
    return F.when(F.length(F.trim("transaction_id")) > 0, F.col("transaction_id"))


def derived_id(source: ColumnOrName, position: ColumnOrName) -> Column:
    """Make a transaction's id from its place."""
    return F.format_string("%016x-%d", F.xxhash64(source), position)


def checked(bronze: DataFrame, settings: Settings, clock: Column | None = None) -> DataFrame:
    """Add the names of the rules that a row breaks.

    Args:
        bronze: rows of ``bronze_transactions``.
        settings: the rules' bounds and severities.
        clock: what "now" is to the rules; by default the time at which a row was ingested. It must not move from one
            reading of a row to the next, or a row could be valid to one table and invalid to the other.

    Returns:
        The rows with ``reasons``, an empty array for a valid row, and ``warnings``, null where there are none.
    """
    found = rules.checks(settings, F.col("_ingested_at") if clock is None else clock)
    reasons, warnings = (_broken(found, severity) for severity in ("reject", "warn"))
    return bronze.withColumns({"reasons": reasons, "warnings": F.when(F.size(warnings) > 0, warnings)})


def _broken(checks: list[rules.Check], severity: str) -> Column:
    broken = [F.when(~check.valid, F.lit(check.name)) for check in checks if check.severity == severity]
    return F.array_compact(F.array(*broken)) if broken else F.array().cast("array<string>")


def valid(checked_rows: DataFrame) -> DataFrame:
    """Valid rows in the columns of ``silver_transactions``.

    ``source`` and ``position`` are where the row landed: file and row, or topic, partition and offset. Sorted as text
    and number they give the order of rows of one time. ``transaction_id`` is the producer's own where it sends one,
    and else made from the place: the same row always has the same one.
    """
    return checked_rows.where(F.size("reasons") == 0).select(
        F.coalesce(own_id(), derived_id(source(), position())).alias("transaction_id"),
        F.col("accountId").alias("account_id"),
        F.col("dt").alias("timestamp"),
        "amount",
        F.col("alert").alias("label"),
        source().alias("source"),
        position().alias("position"),
        "warnings",
        "date",
    )


def quarantined(checked_rows: DataFrame) -> DataFrame:
    """Every other row, untouched, with its ``reasons`` and the time, in the columns of ``silver_quarantine``."""
    rejected = checked_rows.where(F.size("reasons") > 0).drop("date", "warnings")
    return rejected.withColumn("quarantined_at", clock.now())


def quarantined_late(late: DataFrame) -> DataFrame:
    """Rows that came too late for the detector, in the columns of ``silver_quarantine``.

    They are valid, so ``silver_transactions`` has them too; ``source`` and ``position`` are taken apart again.
    """
    of_kafka = F.col("source").startswith(_KAFKA)
    topic = F.regexp_extract("source", f"^{_KAFKA}(.*)/(\\d+)$", 1)
    partition = F.regexp_extract("source", f"^{_KAFKA}(.*)/(\\d+)$", 2).cast("int")
    return late.select(
        "dt",
        "accountId",
        "amount",
        "alert",
        *(F.lit(None).cast(kind).alias(name) for name, kind in _UNKNOWN_OF_LATE),
        F.when(~of_kafka, F.col("source")).alias("_source_file"),
        F.when(~of_kafka, F.col("position")).alias("_source_row"),
        F.when(of_kafka, topic).alias("_topic"),
        F.when(of_kafka, partition).alias("_partition"),
        F.when(of_kafka, F.col("position")).alias("_offset"),
        F.lit(None).cast("timestamp").alias("_ingested_at"),
        "reasons",
        clock.now().alias("quarantined_at"),
    )


_UNKNOWN_OF_LATE = (
    ("transaction_id", "string"),
    ("_rescued_data", "string"),
    ("_raw", "binary"),
    ("_error", "string"),
)
