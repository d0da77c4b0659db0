"""Messages: JSON from Kafka becomes rows of bronze with their topic, partition and offset; unreadable ones stay raw."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze import calendar, transactions
from fraudlake.bronze.contract import FLINKS, Contract, Field, integer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KAFKA_COLUMNS = ("value", "topic", "partition", "offset")
"""The columns of Spark's Kafka source that are read."""

# Every form of Flink (`2026-03-07 00:00:01.18`, also with `T` or `Z`), and other dates with a time of ISO-8601.
TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]([01]\d|2[0-3]):\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?", re.ASCII
)
"""A time as a text."""
# The exact text that Flink writes: from SQL, with either `json.timestamp-format.standard`, and from a Java class.
# Declared fields follow in their order, each or not. Messages with unusual values do not match; `parse` reads them.
_DAY = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
_ACCOUNT = r'"accountId": ?"(?P<accountId>[ !#-\[\]-~]*)"'
_REST = r'"amount": ?(?P<amount>(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?), ?"alert": ?(?P<alert>true|false)'
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_TEXT_OF = {
    "STRING": r'"[ !#-\[\]-~]*"',
    "BIGINT": "0|-?[1-9][0-9]{0,17}",
    "DOUBLE": r"(?:0|-?[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?",
    "BOOLEAN": "true|false",
    "TIMESTAMP": rf'"[1-9][0-9]{{3}}-(?:{_DAY})[T ]{_CLOCK}Z?"',
}
"""A usual value of a declared field in a message, by the type of its column."""
_SQL = rf'^\{{"dt": ?"(?P<dt>[1-9][0-9]{{3}}-(?:{_DAY})[T ]{_CLOCK})Z?", ?{_ACCOUNT}, ?{_REST}'
_POJO = rf'^\{{{_ACCOUNT}, ?"ts": ?(?P<ts>0|[1-9][0-9]{{0,12}}), ?{_REST}'

Row = tuple[Any, ...]
"""One message in the columns that :func:`columns_of` names; times in microseconds since 1970."""


class UnreadableError(Exception):
    """A message is not what it should be; the text is the reason."""


def columns_of(contract: Contract) -> list[str]:
    """Return the columns of a parsed message: the contract's, and what could not be parsed."""
    return [*(field.column for field in contract.fields), "_rescued_data", "_misfits", "_raw", "_error"]


def from_messages(messages: DataFrame, contract: Contract = FLINKS) -> DataFrame:
    """Parse messages whose ``value`` is one JSON object: ``dt`` (or ``ts``), ``accountId``, ``amount``, ``alert``.

    Args:
        messages: rows of Spark's Kafka source, at least :data:`KAFKA_COLUMNS`.
        contract: the fields that become columns.

    Returns:
        The columns of ``bronze_transactions``, one row a message. A field that does not fit is null in its column and
        goes, like additional fields, into ``_rescued_data`` (a JSON object). A message that is not one JSON object is
        in ``_raw`` (bytes; null for a tombstone), with the reason in ``_error``.
    """
    return messages.select(*KAFKA_COLUMNS).mapInArrow(partial(read, contract=contract), contract.table.columns)


def read(batches: Iterator[pa.RecordBatch], contract: Contract = FLINKS) -> Iterator[pa.RecordBatch]:
    """Parse batches of :data:`KAFKA_COLUMNS` into batches of ``bronze_transactions``."""
    for batch in batches:
        if batch.num_rows:
            position = {f"_{name}": batch.column(name) for name in ("topic", "partition", "offset")}
            yield transactions.bronze_batch(parse_all(batch.column("value"), contract) | position, contract)


def parse(value: bytes | None, contract: Contract = FLINKS) -> Row:
    """Parse one message; never raises."""
    try:
        return _row(json_object(value), value, contract)
    except UnreadableError as reason:
        return *[None] * (len(contract.fields) + 2), value, str(reason)
    except RecursionError:
        return *[None] * (len(contract.fields) + 2), value, "nested too deeply"


def _row(message: dict[str, Any], value: bytes | None, contract: Contract) -> Row:
    rest: dict[str, Any] = {}
    time = _fitting(message, "dt" if "dt" in message else "ts", _micros, rest)
    others = [_fitting(message, field.name, CONVERSIONS[field.type], rest) for field in contract.fields[1:]]
    misfits = [field.column for field in contract.declared if field.name in rest]
    rest |= message
    return time, *others, _json(rest, value) if rest else None, misfits or None, None, None


def parse_all(values: pa.Array, contract: Contract = FLINKS) -> dict[str, pa.Array]:
    """Parse messages (binary) into the columns that :func:`columns_of` names, with the results of :func:`parse`.

    Messages in exactly Flink's text are parsed with Arrow's regular expressions, which is several times as fast; only
    the others are parsed one by one.
    """
    text = pc.cast(values, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
    end = "".join(_declared(field) for field in contract.declared) + r"\}$"
    sql, pojo = (pc.extract_regex(text, form + end) for form in (_SQL, _POJO))
    is_flinks = pc.or_(sql.is_valid(), pojo.is_valid())
    types = {name: contract.table.schema.field(name).type for name in columns_of(contract)}
    columns = {name: pa.nulls(len(values), kind) for name, kind in types.items()}
    columns["dt"] = pc.coalesce(
        pc.assume_timezone(pc.struct_field(sql, "dt").cast(pa.timestamp("us")), "UTC"),
        pc.struct_field(pojo, "ts").cast(pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
    )
    for name in ("accountId", "amount", "alert"):
        columns[name] = pc.coalesce(pc.struct_field(sql, name), pc.struct_field(pojo, name)).cast(types[name])
    for field in contract.declared:
        given = pc.coalesce(*(pc.struct_field(form, f"_{field.column}") for form in (sql, pojo)))
        columns[field.column] = _values(given, types[field.column])
    if pc.all(is_flinks).as_py():
        return columns
    others = pc.invert(is_flinks)
    parsed = zip(*(parse(value, contract) for value in values.filter(others).to_pylist()), strict=True)
    is_other = others.to_numpy(zero_copy_only=False)
    at = pa.array(np.where(is_other, len(values) + np.cumsum(is_other) - 1, np.arange(len(values))))
    return {
        name: pa.concat_arrays([columns[name], pa.array(column, kind)]).take(at)
        for column, (name, kind) in zip(parsed, types.items(), strict=True)
    }


def _declared(field: Field) -> str:
    """Return the regular expression of a declared field behind others: it may be null, or not there."""
    name = re.escape(json.dumps(field.name))
    return rf"(?:, ?{name}: ?(?:null|(?P<_{field.column}>{_TEXT_OF[field.type]})))?"


def _values(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Turn the texts of a declared field into values; the empty text, of a field that is not there, becomes null."""
    given = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(given, 1, -1)
    if pa.types.is_timestamp(kind):
        return pc.assume_timezone(pc.utf8_trim(given, '"Z').cast(pa.timestamp("us")), "UTC")
    return given.cast(kind)


def json_object(value: bytes | None) -> dict[str, Any]:
    """Decode a message by RFC 8259, strictly: one object, UTF-8, no NaN, no duplicate key.

    Raises:
        UnreadableError: it is none; the text is the reason.
    """
    if value is None:
        raise UnreadableError("tombstone")
    if not value:
        raise UnreadableError("empty")
    try:
        message = _DECODER.decode(value.decode())
    except UnicodeDecodeError:
        raise UnreadableError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise UnreadableError("text after the JSON value" if error.msg == "Extra data" else "not JSON") from None
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise UnreadableError("number too long") from None
    if not isinstance(message, dict):
        raise UnreadableError("not an object")
    return message


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys: which of their values counts depends on the reader."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise UnreadableError("duplicate key")
    return fields


def _no_constant(name: str) -> None:
    raise UnreadableError("not JSON")  # NaN, Infinity and -Infinity are no JSON


_DECODER = json.JSONDecoder(object_pairs_hook=_no_key_twice, parse_constant=_no_constant)


def _fitting(message: dict[str, Any], name: str, fit: Any, rest: dict[str, Any]) -> Any:
    """Remove a field from a message and return its value; a value that does not fit goes to ``rest`` instead."""
    value = message.pop(name, None)
    if value is None:
        return None
    fitted = fit(value)
    if fitted is None:
        rest[name] = value
    return fitted


def _micros(value: object) -> int | None:
    """Read a time in whole microseconds: a number is epoch milliseconds, a text without a zone is UTC."""
    if isinstance(value, str):
        if not TIME.fullmatch(value):
            return None
        try:
            time = datetime.fromisoformat(value)
        except ValueError:  # such as 30 February
            return None
        micros = ((time if time.tzinfo else time.replace(tzinfo=UTC)) - calendar.EPOCH) // calendar.MICROSECOND
    elif isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:
        return None
    else:
        micros = value * 1000 if isinstance(value, int) else round(value * 1000)
    return micros if calendar.FIRST <= micros <= calendar.LAST else None


def _text(value: object) -> str | None:
    if isinstance(value, str):
        # JSON allows half of a surrogate pair; a column of text does not.
        return value if value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value) else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _integer(value: object) -> int | None:
    return integer(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _integer_of_32_bits(value: object) -> int | None:
    number = _integer(value)
    return number if number is not None and -(2**31) <= number < 2**31 else None


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "TIMESTAMP": _micros,
    "STRING": _text,
    "DOUBLE": _number,
    "BOOLEAN": _flag,
    "BIGINT": _integer,
    "INT": _integer_of_32_bits,
}
"""What a value of JSON becomes, by the type of its column; None where it does not fit."""


def _json(rest: dict[str, Any], value: bytes | None) -> str:
    """Encode rescued fields; a number beyond the range of a double, which Python reads as infinite, becomes a text."""
    try:
        return json.dumps(rest, allow_nan=False)
    except ValueError:
        exact = json.loads(value or b"", parse_float=lambda text: float(text) if math.isfinite(float(text)) else text)
        return json.dumps({name: exact[name] for name in rest})
