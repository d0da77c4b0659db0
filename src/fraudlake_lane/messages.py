"""Messages of Kafka: parses them to rows of bronze with Spark's expressions, since Real-time Mode calls no Python.

:mod:`fraudlake.bronze.messages` is stricter. It quarantines a message with a duplicate key, with text after its object,
with a time as a text of digits, or with a fraction or a boolean as the account; this module accepts it. That module
also accepts a key in another case, which counts as missing here.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.bronze import contract, conversions
from fraudlake.errors import UsageError
from fraudlake.kafka import client
from fraudlake.times import calendar, epochs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from fraudlake.settings import Settings

_NUMBER = r"\A-?\d+(\.\d+)?([eE][+-]?\d+)?\z"
_TIME = rf"\A(?:{conversions.TIME.pattern})\z"


def require_flinks(settings: Settings) -> None:
    """Refuse a payload with other names or units than Flink's, which Spark's expressions do not read.

    Raises:
        UsageError: the settings declare such a payload.
    """
    if not contract.make({}, settings.payload).is_flinks:
        raise UsageError(
            "realtime reads only Flink's own dt, accountId, amount and alert, and [payload] names other fields: rename "
            "them in the topic that it reads, or let 'fraudlake detect' raise the alerts"
        )


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Return the stream of the topic's messages, as Spark's Kafka source returns them."""
    return (
        spark.readStream.format("kafka")
        .options(**client.options(settings))
        .option("subscribe", settings.topic)
        .option("startingOffsets", settings.starting_offsets)
        .option("failOnDataLoss", settings.fail_on_data_loss)
        .load()
    )


def bronze(kafka: DataFrame, settings: Settings) -> DataFrame:
    """Return messages in the columns of ``bronze_transactions`` that the quality rules and silver need.

    Args:
        kafka: rows of Spark's Kafka source.
        settings: the declared columns.

    Returns:
        ``dt, accountId, amount, alert, transaction_id``, the declared columns, ``date``, the position of the message
        (``_topic, _partition, _offset``), ``_key`` (text) and ``_appended`` (when Kafka appended it). A value that does
        not fit is null; ``_misfits`` names such declared columns, and the likely unit of the time. All fields of a
        message that is not JSON are null.
    """
    fields = contract.make(settings.columns).fields
    text = F.col("value").cast("string")
    rows = kafka.select("*", _parsed(text, {"ts": "TIMESTAMP"} | {field.name: field.type for field in fields}))
    if settings.columns:
        types = {settings.columns[name].field: "STRING" for name in settings.columns}
        rows = rows.select("*", _parsed(text, types, "given"))
    values = {field.column: _value(text, field.name, field.type) for field in fields}
    time = F.coalesce("parsed.dt", "parsed.ts")
    values["dt"] = _time(time)
    misfits = [
        F.when(_declared_text(text, field.name).isNotNull() & values[field.column].isNull(), field.column)
        for field in fields
        if field.column in settings.columns
    ]
    return rows.select(
        *(value.alias(name) for name, value in values.items()),
        F.to_date(values["dt"]).alias("date"),
        F.array_compact(F.array(*misfits, *_marks(time))).alias("_misfits"),
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
    return F.from_json(text, schema, {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}).alias(name)


def _value(text: Column, field: str, kind: str) -> Column:
    value = F.col(f"parsed.`{field}`")
    if "." in field:
        value = F.coalesce(value, _within(text, field).try_cast("STRING" if kind == "TIMESTAMP" else kind))
    if kind == "TIMESTAMP":
        return _time(value)
    return _exact(value, text, field) if kind == "DOUBLE" else value


def _declared_text(text: Column, field: str) -> Column:
    value = F.col(f"given.`{field}`")
    return F.coalesce(value, _within(text, field)) if "." in field else value


def _within(text: Column, field: str) -> Column:
    """Return the text of a field of an object, such as ``merchant.id``."""
    return F.get_json_object(text, "$" + "".join(f"['{name}']" for name in field.split(".")))


def _exact(double: Column, text: Column, field: str) -> Column:
    """Return a double, or null if the message has an integer that a double cannot represent."""
    digits = F.regexp_extract(text, rf"{re.escape(json.dumps(field))}\s*:\s*(-?\d+)\s*[,}}]", 1)
    fits = (F.abs(double) < 2.0**63) & (double.try_cast("bigint") == digits.try_cast("bigint"))
    return F.when((F.abs(double) < 2.0**53) | (digits == "") | fits, double)


def _marks(time: Column) -> list[Column]:
    """Mark a time that is likely in another unit than milliseconds."""
    number = F.when(time.rlike(_NUMBER), F.floor(time.try_cast("decimal(30,6)")))
    ticks = F.coalesce(number, F.floor(F.unix_micros(_time(time)) / 1000))
    return [F.when((ticks >= first) & (ticks < end), mark) for mark, (first, end) in epochs.windows("ms").items()]


def _time(text: Column) -> Column:
    """Read a time in whole microseconds: a number is epoch milliseconds, a text without a zone is UTC."""
    micros = (F.floor(text.try_cast("decimal(30,6)") * 1000)).try_cast("bigint")
    in_range = micros.between(calendar.FIRST, calendar.LAST)
    return F.when(text.rlike(_NUMBER), F.when(in_range, F.timestamp_micros(micros))).when(
        text.rlike(_TIME), text.try_cast("timestamp")
    )
