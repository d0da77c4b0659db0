"""The landing contract: a batch of whatever columns becomes the columns of bronze, and the rescued rest."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze import calendar, rescue

CONTRACT = pa.schema(
    [
        ("dt", pa.timestamp("us", tz="UTC")),
        ("accountId", pa.string()),
        ("amount", pa.float64()),
        ("alert", pa.bool_()),
        ("transaction_id", pa.string()),
    ]
)
"""What is read of a file: Flink's four fields and, where a producer sends one, its own id of the transaction."""


def fit(batch: pa.RecordBatch, timezone: str = "UTC") -> tuple[list[pa.Array], pa.Array]:
    """Split a batch into :data:`CONTRACT`'s columns and ``_rescued_data``.

    A column is found by its name, else by its name in other case where only one has that. A value with a lossless way
    into the contract takes it; what has none, and columns that the contract does not name, are kept as a JSON object
    in ``_rescued_data``, their contract column being null. docs/schema-evolution.md has the table.

    Args:
        batch: rows in any columns.
        timezone: that of the Flink that wrote them: a timestamp that is not marked as adjusted to UTC was shifted from
            it. A local time that the zone's clock skips in spring has been moved by Flink already, for good.
    """
    columns: list[pa.Array] = []
    rest, places = _named(batch)
    for field in CONTRACT:
        name = _found(field.name, places)
        given = rest.pop(name) if name is not None else None
        if given is None:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        if pa.types.is_dictionary(given.type):
            given = given.dictionary_decode()
        fitting = _cast(given, field.type, timezone)
        if fitting is None:
            fitting = pa.nulls(batch.num_rows, field.type)
            rest[str(name)] = given
        elif fitting.null_count > given.null_count:  # some of its values did not fit
            rest[str(name)] = pc.if_else(pc.is_null(fitting), given, pa.scalar(None, given.type))
        columns.append(fitting)
    return columns, _only_where_any(rest, columns, batch.num_rows)


def _named(batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], dict[str, int]]:
    """Return the columns by name, and how often each name is there: of two of one name neither is the contract's."""
    columns: dict[str, pa.Array] = {}
    times: dict[str, int] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        times[name] = times.get(name, 0) + 1
        columns[name if times[name] == 1 else f"{name} ({times[name]})"] = column
    return columns, times


def _found(wanted: str, times: dict[str, int]) -> str | None:
    if wanted in times:
        return wanted if times[wanted] == 1 else None
    alike = [name for name in times if name.lower() == wanted.lower()]
    return alike[0] if len(alike) == 1 and times[alike[0]] == 1 else None


def _only_where_any(rest: dict[str, pa.Array], columns: list[pa.Array], rows: int) -> pa.Array:
    """Encode the rest; a row none of whose contract values was refused and that has no extra column has null."""
    contract = {name.lower() for name in CONTRACT.names}
    rescued = rescue.as_json(rest, rows)
    if not rest or any(name.lower() not in contract for name in rest):
        return rescued
    refused = [pc.is_valid(column) for column in rest.values()]
    some = refused[0]
    for one in refused[1:]:
        some = pc.or_(some, one)
    return pc.if_else(some, rescued, pa.scalar(None, pa.string()))


def _cast(column: pa.Array, wanted: pa.DataType, timezone: str) -> pa.Array | None:
    """Cast what loses nothing, null where a value would; None where the types do not meet."""
    given = column.type
    if pa.types.is_null(given):
        return pa.nulls(len(column), wanted)
    if pa.types.is_timestamp(wanted):
        return _instants(column, timezone) if pa.types.is_timestamp(given) else None
    if pa.types.is_floating(wanted):
        return _doubles(column)
    if pa.types.is_string(wanted):
        return _strings(column)
    return column if given == wanted else None


def _instants(column: pa.Array, timezone: str) -> pa.Array:
    """Turn timestamps of any unit into UTC instants in microseconds, null outside the calendar; finer is cut off."""
    try:
        micros = column.cast(pa.timestamp("us", tz=column.type.tz))
    except pa.ArrowInvalid:
        # Cut off nanoseconds; a value beyond the range of microseconds wraps around and does not come back as it was.
        micros = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        if column.type.unit != "ns":
            same = pc.equal(micros.cast(column.type, safe=False), column)
            micros = pc.if_else(same, micros, pa.scalar(None, micros.type))
    utc = micros.cast(pa.timestamp("us", tz="UTC"))
    if column.type.tz is None and timezone != "UTC":
        # What the clock of that zone showed is the time that was meant.
        utc = pc.local_timestamp(utc.cast(pa.timestamp("us", tz=timezone))).cast(utc.type)
    outside = calendar.outside(utc)
    return utc if outside is None else pc.if_else(outside, pa.scalar(None, utc.type), utc)


def _doubles(column: pa.Array) -> pa.Array | None:
    given = column.type
    if pa.types.is_decimal(given):  # an amount in a currency: the nearest double is what it would have been written as
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
        return raw.cast(pa.string())  # checks that it is UTF-8, which parquet's readers do not
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in raw.to_pylist()], pa.string())


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
