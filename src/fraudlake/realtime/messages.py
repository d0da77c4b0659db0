"""Messages of Kafka become rows of bronze in Spark's own expressions: Real-time Mode calls no Python.

:mod:`fraudlake.bronze.messages` is stricter. A message that has a key twice, text behind its object, a time as a text
of digits, or an account that is a fraction or a boolean, is read here and quarantined there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.bronze import calendar, contract, conversions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.settings import Settings

_NUMBER = r"\A-?\d+(\.\d+)?([eE][+-]?\d+)?\z"
_TIME = rf"\A(?:{conversions.TIME.pattern})\z"


def bronze(kafka: DataFrame, settings: Settings) -> DataFrame:
    """Return messages in the columns of ``bronze_transactions`` that the quality rules and silver need.

    Args:
        kafka: rows of Spark's Kafka source.
        settings: the declared columns.

    Returns:
        ``dt, accountId, amount, alert, transaction_id``, the declared columns, ``date``, where the message is
        (``_topic, _partition, _offset``), ``_key`` (text) and ``_appended`` (when Kafka's partition got it). A value
        that does not fit is null; ``_misfits`` names declared columns of which that is so. Without any field is what
        is no JSON.
    """
    fields = contract.of(settings.columns).fields
    text = F.col("value").cast("string")
    rows = kafka.select("*", _parsed(text, {"ts": "TIMESTAMP"} | {field.name: field.type for field in fields}))
    if settings.columns:
        given = {settings.columns[name].field: "STRING" for name in settings.columns}
        rows = rows.select("*", _parsed(text, given, "given"))
    values = {field.column: _value(field.name, field.type) for field in fields}
    values["dt"] = F.coalesce(values["dt"], _value("ts", "TIMESTAMP"))
    misfits = [
        F.when(F.col(f"given.`{field.name}`").isNotNull() & values[field.column].isNull(), field.column)
        for field in fields
        if field.column in settings.columns
    ]
    return rows.select(
        *(value.alias(name) for name, value in values.items()),
        F.to_date(values["dt"]).alias("date"),
        (F.array_compact(F.array(*misfits)) if misfits else F.lit(None).cast("array<string>")).alias("_misfits"),
        F.lit(None).cast("string").alias("_error"),
        F.lit(None).cast("string").alias("_source_file"),
        F.lit(None).cast("bigint").alias("_source_row"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("key").cast("string").alias("_key"),
        F.col("timestamp").alias("_appended"),
    )


def _parsed(text: Column, fields: dict[str, str], name: str = "parsed") -> Column:
    # A time is a text or a number.
    schema = ", ".join(f"`{field}` {'STRING' if kind == 'TIMESTAMP' else kind}" for field, kind in fields.items())
    return F.from_json(text, schema, {"allowNonNumericNumbers": "false"}).alias(name)


def _value(field: str, kind: str) -> Column:
    value = F.col(f"parsed.`{field}`")
    return _time(value) if kind == "TIMESTAMP" else value


def _time(text: Column) -> Column:
    """Read a time in whole microseconds: a number is epoch milliseconds, a text without a zone is UTC."""
    micros = (F.round(text.try_cast("decimal(30,6)") * 1000)).try_cast("bigint")
    in_range = micros.between(calendar.FIRST, calendar.LAST)
    return F.when(text.rlike(_NUMBER), F.when(in_range, F.timestamp_micros(micros))).when(
        text.rlike(_TIME), text.try_cast("timestamp")
    )
