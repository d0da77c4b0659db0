"""The landing contract: a batch with any columns becomes the columns of bronze and the rescued data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.bronze import calendar, rescue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fraudlake.settings import DeclaredColumn


class Field(NamedTuple):
    """A field of the payload: the column of bronze that takes it, its name there, and the column's type in SQL."""

    column: str
    name: str
    type: str


@dataclass(frozen=True)
class Contract:
    """The landing contract: which fields of the payload become columns. It travels to Spark's tasks."""

    table: tables.Table
    """``bronze_transactions`` with the declared columns."""
    declared: tuple[Field, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Flink's four fields, ``dt`` first, the producer's own id of the transaction, and the declared ones."""
        return (*_OWN, *self.declared)


_NAMES = tables.BRONZE_TRANSACTIONS.schema.field("_misfits").type
_OWN = tuple(
    Field(column.name, column.name, column.type)
    for column in tables.BRONZE_TRANSACTIONS.fields
    if column.name in tables.PAYLOAD
)


def of(columns: Mapping[str, DeclaredColumn]) -> Contract:
    """Return the contract of a lake, with the columns that its settings declare."""
    declared = (Field(name, column.field, column.type.upper()) for name, column in columns.items())
    return Contract(tables.with_declared(tables.BRONZE_TRANSACTIONS, columns), tuple(declared))


FLINKS = of({})
"""The contract without declared columns."""


def fit(batch: pa.RecordBatch, timezone: str = "UTC", contract: Contract = FLINKS) -> dict[str, pa.Array]:
    """Split a batch into the contract's columns, ``_rescued_data`` and ``_misfits``.

    A field is matched by its name or, where exactly one column has the name in another case, by that. A value that
    converts to the contract's type without loss is converted. Every other value goes into the JSON object
    ``_rescued_data``, and is null in its contract column; so do columns that the contract does not name.
    docs/schema-evolution.md has the table of conversions.

    Args:
        batch: rows in any columns.
        timezone: the time zone of the Flink that wrote them. Flink shifts timestamps by it, unless parquet marks them
            as adjusted to UTC. A local time that the zone's clock skips in spring was moved by Flink and stays so.
        contract: the fields that become columns.

    Returns:
        The contract's columns by name; ``_rescued_data``, a text, null where nothing was rescued; and ``_misfits``, the
        names of declared columns whose value did not fit, null where all did.
    """
    columns: dict[str, pa.Array] = {}
    rest, occurrences = _columns_by_name(batch)
    names = {field.column: _column_name(field.name, occurrences) for field in contract.fields}
    for field in contract.fields:
        name, wanted = names[field.column], contract.table.schema.field(field.column).type
        column = rest.pop(name) if name is not None else None
        if column is None:
            columns[field.column] = pa.nulls(batch.num_rows, wanted)
            continue
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        fitting = _cast(column, wanted, timezone)
        if fitting is None:
            fitting = pa.nulls(batch.num_rows, wanted)
            rest[str(name)] = column
        elif fitting.null_count > column.null_count:  # some of its values did not fit
            rest[str(name)] = pc.if_else(pc.is_null(fitting), column, pa.scalar(None, column.type))
        columns[field.column] = fitting
    columns["_rescued_data"] = _rescued(rest, contract, batch.num_rows)
    declared = {field.column for field in contract.declared}
    misfits = {column: rest[name] for column, name in names.items() if column in declared and name in rest}
    columns["_misfits"] = _misfits(misfits, batch.num_rows)
    return columns


def _columns_by_name(batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], dict[str, int]]:
    """Return the columns by name, and the occurrences of each name; a repeated name gets its number behind it."""
    columns: dict[str, pa.Array] = {}
    occurrences: dict[str, int] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        occurrences[name] = occurrences.get(name, 0) + 1
        columns[name if occurrences[name] == 1 else f"{name} ({occurrences[name]})"] = column
    return columns, occurrences


def _column_name(wanted: str, occurrences: dict[str, int]) -> str | None:
    """Return the name of the column that is the contract's ``wanted``; None where there is none, or more than one."""
    if wanted in occurrences:
        return wanted if occurrences[wanted] == 1 else None
    alike = [name for name in occurrences if name.lower() == wanted.lower()]
    return alike[0] if len(alike) == 1 and occurrences[alike[0]] == 1 else None


def _rescued(rest: dict[str, pa.Array], contract: Contract, rows: int) -> pa.Array:
    """Encode the columns and values that do not fit; null in a row where all values fit and no column is extra."""
    known = {field.name.lower() for field in contract.fields}
    rescued = rescue.as_json(rest, rows)
    if not rest or any(name.lower() not in known for name in rest):
        return rescued
    masks = [pc.is_valid(column) for column in rest.values()]
    has_rescued = masks[0]
    for mask in masks[1:]:
        has_rescued = pc.or_(has_rescued, mask)
    return pc.if_else(has_rescued, rescued, pa.scalar(None, pa.string()))


def _misfits(rescued: dict[str, pa.Array], rows: int) -> pa.Array:
    """List, row by row, the names of the columns that have a value in ``rescued``; null where there are none."""
    if not rescued:
        return pa.nulls(rows, _NAMES)
    # Names hold no commas.
    named = [pc.if_else(column.is_valid(), f"{name},", "") for name, column in rescued.items()]
    joined = pc.utf8_rtrim(pc.binary_join_element_wise(*named, ""), ",")
    return pc.split_pattern(pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), joined), ",").cast(_NAMES)


def _cast(column: pa.Array, wanted: pa.DataType, timezone: str) -> pa.Array | None:
    """Cast a column; a value that would lose something is null. None where no value of this type can be cast."""
    given = column.type
    if pa.types.is_null(given):
        return pa.nulls(len(column), wanted)
    if pa.types.is_timestamp(wanted):
        return _instants(column, timezone) if pa.types.is_timestamp(given) else None
    if pa.types.is_floating(wanted):
        return _doubles(column)
    if pa.types.is_integer(wanted):
        return _integers(column)
    if pa.types.is_string(wanted):
        return _strings(column)
    return column if given == wanted else None


def _instants(column: pa.Array, timezone: str) -> pa.Array:
    """Turn timestamps of any unit into UTC instants in whole microseconds; null outside the years 1 to 9999."""
    try:
        micros = column.cast(pa.timestamp("us", tz=column.type.tz))
    except pa.ArrowInvalid:
        # An unsafe cast cuts nanoseconds off. In coarser units, a value beyond the range of microseconds wraps around:
        # casting it back gives another value.
        micros = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        if column.type.unit != "ns":
            same = pc.equal(micros.cast(column.type, safe=False), column)
            micros = pc.if_else(same, micros, pa.scalar(None, micros.type))
    utc = micros.cast(pa.timestamp("us", tz="UTC"))
    if column.type.tz is None and timezone != "UTC":
        # A clock of that zone shows this instant as the UTC time that Flink meant.
        utc = pc.local_timestamp(utc.cast(pa.timestamp("us", tz=timezone))).cast(utc.type)
    outside = calendar.outside(utc)
    return utc if outside is None else pc.if_else(outside, pa.scalar(None, utc.type), utc)


def _doubles(column: pa.Array) -> pa.Array | None:
    given = column.type
    if pa.types.is_decimal(given):  # the nearest double, as if the amount had been written as one
        return column.cast(pa.float64())
    if pa.types.is_floating(given):
        return column.cast(pa.float64())
    if not pa.types.is_integer(given):
        return None
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:  # beyond 2**53 not every integer is a double
        doubles = column.cast(pa.float64(), safe=False)
        exact = pc.less(pc.abs(doubles), 2.0**53)
        return pc.if_else(exact, doubles, pa.scalar(None, pa.float64()))


def _integers(column: pa.Array) -> pa.Array | None:
    given = column.type
    if not (pa.types.is_integer(given) or pa.types.is_floating(given) or pa.types.is_decimal(given)):
        return None
    try:
        return column.cast(pa.int64())  # checks for fractions and the range
    except pa.ArrowInvalid:
        return pa.array([None if value is None else integer(value) for value in column.to_pylist()], pa.int64())


def integer(value: float | Decimal) -> int | None:
    """Return a number as an integer of 64 bits; None where that would change it."""
    whole = int(value) if math.isfinite(value) else None
    return whole if whole is not None and whole == value and -(2**63) <= whole < 2**63 else None


def _strings(column: pa.Array) -> pa.Array | None:
    given = column.type
    if pa.types.is_integer(given):
        return column.cast(pa.string())
    if pa.types.is_decimal(given) and given.scale == 0:
        return column.cast(pa.string())
    if not (pa.types.is_string(given) or pa.types.is_large_string(given) or _is_binary(given)):
        return None
    raw = column.cast(pa.binary())
    try:
        return raw.cast(pa.string())  # checks the UTF-8, which parquet's readers do not
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in raw.to_pylist()], pa.string())


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
