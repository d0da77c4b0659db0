"""Silver transactions: the bronze rows that pass every quality rule, in analysts' names, and the others' reasons."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.silver import clock, quality_rules
from fraudlake.silver.source_position import KAFKA, POSITION, SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql._typing import ColumnOrName

    from fraudlake.settings import Settings
    from fraudlake.tables import Table


def source() -> Column:
    """Return the source of a bronze row: its file, or its topic and partition.

    Source and :func:`position` together are the row's source position. Bronze takes each source position once.
    """
    return F.expr(SOURCE)


def is_from_kafka() -> Column:
    """Return whether a row of ``silver_transactions`` came from Kafka."""
    return F.col("source").startswith(KAFKA)


def position() -> Column:
    """Return the position of a bronze row in its source: the row number in a file, or the offset in a partition."""
    return F.expr(POSITION)


def since(transactions: DataFrame, time: int) -> DataFrame:
    """Return the transactions from a time on (microseconds since 1970 UTC); other days are not read."""
    first = F.timestamp_micros(F.lit(time))
    return transactions.where((F.col("date") >= first.cast("date")) & (F.col("timestamp") >= first))


def newest(transactions: DataFrame) -> int | None:
    """Return the time of the newest transaction, microseconds since 1970 UTC; None if there is none."""
    time: int | None = transactions.agg(F.unix_micros(F.max("timestamp"))).collect()[0][0]
    return time


def own_id() -> Column:
    """Return the transaction id that the producer sent with a bronze row; null if it is missing or blank."""
    return F.when(~quality_rules.is_blank("transaction_id"), F.col("transaction_id"))


def derived_id(source: ColumnOrName, position: ColumnOrName) -> Column:
    """Make a transaction id from the source position."""
    # `lower` of an upper-case `hex` takes 0.1 µs a row less, but its first call in a process loads Unicode's tables of
    # cases, which takes two seconds (seen in Spark 4.2).
    return F.concat(F.format_string("%016x", F.xxhash64(source)), F.lit("-"), position)


def checked(bronze: DataFrame, settings: Settings, clock: Column | None = None) -> DataFrame:
    """Add the names of the quality rules that a row breaks.

    Args:
        bronze: rows of ``bronze_transactions``.
        settings: the rules' bounds and severities.
        clock: the current time for the rules; by default a row's time of ingestion. It must be the same each time a row
            is computed: otherwise a row could be valid for one table and invalid for the other.

    Returns:
        The rows with ``reasons``, an empty array for a valid row, and ``warnings``, null if there are none.
    """
    rules = quality_rules.make_rules(settings, F.col("_ingested_at") if clock is None else clock)
    reasons, warnings = (_broken(rules, severity) for severity in ("reject", "warn"))
    return bronze.withColumns({"reasons": reasons, "warnings": F.when(F.size(warnings) > 0, warnings)})


def _broken(rules: list[quality_rules.QualityRule], severity: str) -> Column:
    of_severity = [rule for rule in rules if rule.severity == severity]
    none = F.array().cast("array<string>")
    if not of_severity:
        return none
    is_broken = functools.reduce(operator.or_, (~F.coalesce(rule.valid, F.lit(True)) for rule in of_severity))
    # Spark interprets array_compact with all that is in it (seen in 4.2), which takes long, so most rows go without.
    broken = F.array(*(F.when(~rule.valid, F.lit(rule.name)) for rule in of_severity))
    return F.when(is_broken, F.array_compact(broken)).otherwise(none)


def valid(checked_rows: DataFrame, columns: Iterable[str] = ()) -> DataFrame:
    """Return the valid rows in the columns of ``silver_transactions``, and in those that the settings declare.

    ``source`` and ``position`` say where the row landed: file and row, or topic, partition and offset. Rows of the same
    time are ordered by ``source`` as text, then by ``position``. ``transaction_id`` is the producer's own if it sent
    one. Otherwise it is made from the source position, so the same row always has the same id.
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
        *columns,
    )


def quarantined(checked_rows: DataFrame) -> DataFrame:
    """Return every other row, unchanged, with its ``reasons`` and the time, in the columns of ``silver_quarantine``."""
    rejected = checked_rows.where(F.size("reasons") > 0).drop("date", "warnings")
    return rejected.withColumn("quarantined_at", clock.now())


def quarantined_late(late: DataFrame, quarantine: Table) -> DataFrame:
    """Return the rows that came too late for the detector, in the columns of the table ``quarantine``.

    They are valid, so ``silver_transactions`` has them too. ``source`` and ``position`` are split into file and row, or
    topic, partition and offset. Columns that the detector does not have, such as declared ones, are null.
    """
    of_kafka = F.col("source").startswith(KAFKA)
    topic = F.regexp_extract("source", f"^{KAFKA}(.*)/(\\d+)$", 1)
    partition = F.regexp_extract("source", f"^{KAFKA}(.*)/(\\d+)$", 2).cast("int")
    columns = {name: F.col(name) for name in ("dt", "accountId", "amount", "alert", "reasons")} | {
        "_source_file": F.when(~of_kafka, F.col("source")),
        "_source_row": F.when(~of_kafka, F.col("position")),
        "_topic": F.when(of_kafka, topic),
        "_partition": F.when(of_kafka, partition),
        "_offset": F.when(of_kafka, F.col("position")),
        "quarantined_at": clock.now(),
    }
    return late.select(
        *(columns.get(column.name, F.lit(None).cast(column.type)).alias(column.name) for column in quarantine.fields)
    )
