"""Messages: parses JSON from Kafka into rows of bronze; a message that cannot be parsed is stored raw."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze import conversions, forms, nested, transactions
from fraudlake.bronze.contract import FLINKS, Contract, Field
from fraudlake.bronze.forms import Form
from fraudlake.bronze.nested import Path, name_of
from fraudlake.times import epochs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KAFKA_COLUMNS = ("value", "topic", "partition", "offset")
"""The columns of Spark's Kafka source that are read."""

# The exact text that Flink writes: from SQL, with either `json.timestamp-format.standard`, and from a Java class.
# Declared fields follow in their order; each is optional. Unusual values do not match: `parse` reads their messages.
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

_TS = Field("dt of ts", "ts", "TIMESTAMP")
"""The time of a message from a Java class of Flink, which is used if there is no ``dt``."""
_DIGITS = 20
"""Number of digits from which a text is not a 64-bit integer."""
_HEADERS = {
    b"\xef\xbb\xbf": "byte order mark",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\x04\x22\x4d\x18": "LZ4",
    b"\x82SNAPPY\x00": "Snappy",
    b"\xff\x06\x00\x00sNaPpY": "Snappy",
    b"Obj\x01": "Avro container",
    b"\xc3\x01": "Avro single object",
    b"\x00": "schema registry header",  # Confluent's: a zero, and the schema's number in four bytes
    b"\x03\x00": "schema registry header",  # that of AWS Glue, with the content as it is or, below, compressed
    b"\x03\x05": "schema registry header",
    b"PAR1": "parquet",
    b"\xac\xed\x00\x05": "Java serialization",
}
"""First bytes of known formats other than JSON, and the reason for each."""
Row = tuple[Any, ...]
"""One message in the columns that :func:`columns_of` names; times in microseconds since 1970."""


class UnreadableError(Exception):
    """A message cannot be parsed; the text is the reason."""


def columns_of(contract: Contract) -> list[str]:
    """Return the columns of a parsed message: the contract's, and the values that did not fit."""
    return [*(field.column for field in contract.fields), "_rescued_data", "_misfits", "_raw", "_error"]


def from_messages(messages: DataFrame, contract: Contract = FLINKS) -> DataFrame:
    """Parse messages whose ``value`` is one JSON object: ``dt`` (or ``ts``), ``accountId``, ``amount``, ``alert``.

    Args:
        messages: rows of Spark's Kafka source, at least :data:`KAFKA_COLUMNS`.
        contract: the fields that become columns.

    Returns:
        The columns of ``bronze_transactions``, one row per message. A field that does not fit is null in its column and
        goes, like additional fields, into ``_rescued_data`` (a JSON object). A message that is not one JSON object is
        in ``_raw`` (bytes; null for a tombstone), with the reason in ``_error``. A message larger than the contract's
        largest value has only the reason: its bytes are in the topic.
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
    largest = contract.largest_value
    if value is not None and len(value) > largest:
        reason = f"{len(value):,} bytes, more than {largest:,} (the setting max_value_size)"
        return *[None] * (len(contract.fields) + 3), reason
    try:
        return _row(json_object(value), contract)
    except UnreadableError as reason:
        return *[None] * (len(contract.fields) + 2), value, str(reason)
    except RecursionError:
        return *[None] * (len(contract.fields) + 2), value, "nested too deeply"


class _Step(NamedTuple):
    """The source of a column's value: the field at ``path``, or a field within objects that ``parts`` names."""

    column: str
    convert: Callable[[Any], Any]
    path: Path | None
    parts: Path | None


def _row(message: dict[Any, Any], contract: Contract) -> Row:
    values: list[Any] = []
    misfits: list[str] = []
    paths: list[Path] = []
    left: list[Path] = []
    raw_values: list[Any] = []
    for column, convert, path, parts in _steps_of(message, contract):
        if path is not None:
            raw = message[path[0]]
        else:
            path, raw = _within(message, parts)
        value = None if raw is None or path is None else convert(raw)
        values.append(value)
        raw_values.append(raw)
        if path is not None:
            paths.append(path)
        if value is None and raw is not None:
            misfits.append(column)
            left.append(path or ())
    mark = _mark(raw_values[0], values[0], contract.own[0].form)
    rest = _rest(message, paths, left)
    named = [field.column for field in contract.declared if field.column in misfits] + ([mark] if mark else [])
    return *values, _ENCODER.encode(rest) if rest else None, named or None, None, None


def _steps_of(message: dict[Any, Any], contract: Contract) -> tuple[_Step, ...]:
    """Return the steps of a message. If ``dt`` is null, it is removed, and ``ts`` counts."""
    keys = tuple(message)
    steps = _steps(keys, contract.fields)
    path = steps[0].path
    if not contract.takes_ts or (path is not None and message[path[0]] is not None):
        return steps
    if path is not None:
        del message[path[0]]
    return _steps(keys, (_TS, *contract.fields[1:]))


@lru_cache
def _steps(keys: tuple[str, ...], fields: tuple[Field, ...]) -> tuple[_Step, ...]:
    """Return the steps of all messages with these keys."""
    occurrences = dict.fromkeys(keys, 1)
    steps = []
    for field in fields:
        name = name_of(field.name, occurrences)
        path = None if name is None else (name,)
        parts = tuple(field.name.split(".")) if name is None and "." in field.name else None
        steps.append(_Step(field.column, forms.json_converter(field.type, field.form), path, parts))
    return tuple(steps)


def _within(message: dict[Any, Any], parts: Path | None) -> tuple[Path | None, Any]:
    """Return a field of nested objects and its value; without the field, the value that blocks its path."""
    place = None if parts is None else nested.in_object(message, parts)
    if place is None:
        return None, None
    return None if place.is_blocked else place.path, place.value


def _rest(message: dict[Any, Any], paths: list[Path], left: list[Path]) -> dict[Any, Any]:
    """Remove the contract's fields, except values that do not fit; the message's own values come first."""
    rest = {}
    for path in paths:
        if path not in left:
            if path[1:]:
                nested.remove(message, path)
            else:
                message.pop(path[0], None)
        elif not path[1:] and path[0] in message:
            rest[path[0]] = message.pop(path[0])
    return rest | message


def _mark(value: object, time: int | None, form: Form | None) -> str | None:
    """Mark a time whose unit is likely not the one in which it was read, or which is a text of digits in some unit."""
    unit = (form and form.unit) or "ms"
    if time is not None:
        return epochs.misread(time // forms.MICROSECONDS[unit], unit)
    if isinstance(value, str) and len(value) < _DIGITS and value.isascii() and value.isdigit():
        return epochs.misread(int(value), None)
    if conversions.is_number(value) and -(2**63) <= value < 2**63:
        return epochs.misread(int(value), unit)
    return None


def parse_all(values: pa.Array, contract: Contract = FLINKS) -> dict[str, pa.Array]:
    """Parse messages (binary) into the columns that :func:`columns_of` names, with the results of :func:`parse`.

    Messages in exactly Flink's format are parsed with Arrow's regular expressions, which is several times as fast; only
    the others are parsed one by one, and all of them if the settings declare another payload.
    """
    if not contract.is_flinks:
        return _one_by_one(values, contract)
    is_large = pc.greater(pc.binary_length(values), contract.largest_value)
    small = pc.if_else(is_large, None, values) if pc.any(is_large).as_py() else values
    text = pc.cast(small, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
    end = "".join(_declared(field) for field in contract.declared) + r"\}$"
    sql, pojo = (pc.extract_regex(text, form + end) for form in (_SQL, _POJO))
    is_flinks = pc.or_(sql.is_valid(), pojo.is_valid())
    types = _types(contract)
    columns = {name: pa.nulls(len(values), kind) for name, kind in types.items()}
    columns["dt"] = pc.coalesce(
        pc.assume_timezone(pc.struct_field(sql, "dt").cast(pa.timestamp("us")), "UTC"),
        pc.struct_field(pojo, "ts").cast(pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
    )
    for name in ("accountId", "amount", "alert"):
        columns[name] = pc.coalesce(pc.struct_field(sql, name), pc.struct_field(pojo, name)).cast(types[name])
    for field in contract.declared:
        texts = pc.coalesce(*(pc.struct_field(form, f"_{field.column}") for form in (sql, pojo)))
        columns[field.column] = _values(texts, types[field.column])
    marks = epochs.all_misread(pc.divide(columns["dt"].cast(pa.int64()), 1000), "ms")
    if marks is not None:
        columns["_misfits"] = pa.array([mark and [mark] for mark in marks.to_pylist()], types["_misfits"])
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


def _one_by_one(values: pa.Array, contract: Contract) -> dict[str, pa.Array]:
    rows = [parse(value, contract) for value in values.to_pylist()]
    types = _types(contract).items()
    return {name: pa.array([row[at] for row in rows], kind) for at, (name, kind) in enumerate(types)}


def _types(contract: Contract) -> dict[str, pa.DataType]:
    return {name: contract.table.schema.field(name).type for name in columns_of(contract)}


def _declared(field: Field) -> str:
    """Return the regular expression of a declared field, which follows others and may be null or missing."""
    name = re.escape(json.dumps(field.name))
    return rf"(?:, ?{name}: ?(?:null|(?P<_{field.column}>{_TEXT_OF[field.type]})))?"


def _values(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Turn the texts of a declared field into values; the empty text of a missing field becomes null."""
    present = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(present, 1, -1)
    if pa.types.is_timestamp(kind):
        return pc.assume_timezone(pc.utf8_trim(present, '"Z').cast(pa.timestamp("us")), "UTC")
    return present.cast(kind)


def json_object(value: bytes | None) -> dict[str, Any]:
    """Decode a message by RFC 8259, strictly: one object, UTF-8, no NaN, no duplicate key.

    Raises:
        UnreadableError: it is not such an object; the text is the reason.
    """
    if value is None:
        raise UnreadableError("tombstone")
    if not value:
        raise UnreadableError("empty")
    try:
        message = _DECODER.decode(value.decode())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UnreadableError(_problem(value, error)) from None
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise UnreadableError("number too long") from None
    if not isinstance(message, dict):
        raise UnreadableError("not an object")
    return message


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys: JSON parsers differ in the value that they choose."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise UnreadableError("duplicate key")
    return fields


def _no_constant(name: str) -> None:
    raise UnreadableError(f"{name} is not JSON")


class _Written(Decimal):
    """A number with a fraction or an exponent: its exact value, and its text."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> _Written:
        try:
            number = super().__new__(cls, text)
        except InvalidOperation:  # an exponent of more than eighteen digits
            number = super().__new__(cls, "Infinity")
        number.text = text
        return number


_DECODER = json.JSONDecoder(object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_Written)


def _problem(value: bytes, error: UnicodeDecodeError | json.JSONDecodeError) -> str:
    """Return why bytes are not JSON: the known format of their first bytes, or the decoder's message."""
    for header, name in _HEADERS.items():
        if value.startswith(header):
            return name
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "text after the JSON value" if error.msg == "Extra data" else "not JSON"


def _encoded(number: _Written) -> float | str:
    """Encode a rescued number as a double if it is exactly one, otherwise as its text."""
    nearest = float(number)
    return nearest if Decimal(repr(nearest)) == number else number.text


_ENCODER = json.JSONEncoder(default=_encoded)
