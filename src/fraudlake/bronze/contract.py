"""The landing contract: the fields that bronze takes from files and messages; every other value is rescued."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.bronze import forms, nested, rescue
from fraudlake.bronze.forms import Form
from fraudlake.bronze.nested import Path, Place, name_of
from fraudlake.bronze.plain import plain
from fraudlake.bronze.sizes import LARGEST_VALUE
from fraudlake.times import epochs
from fraudlake.values import size_in_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fraudlake.settings import Settings
    from fraudlake.settings.columns import DeclaredColumn
    from fraudlake.settings.payload import PayloadField


class Field(NamedTuple):
    """A field of the payload: its column of bronze, its name, the column's type in SQL, and its form."""

    column: str
    name: str
    type: str
    form: Form | None = None


_NAMES = tables.BRONZE_TRANSACTIONS.schema.field("_misfits").type
_OWN = tuple(
    Field(column.name, column.name, column.type)
    for column in tables.BRONZE_TRANSACTIONS.fields
    if column.name in tables.PAYLOAD
)


@dataclass(frozen=True)
class Contract:
    """The landing contract: the fields of the payload that become columns. It is sent to Spark's tasks."""

    table: tables.Table
    """``bronze_transactions`` with the declared columns."""
    declared: tuple[Field, ...]
    own: tuple[Field, ...] = _OWN
    """Flink's four fields, ``dt`` first, and the producer's own id of the transaction."""
    largest_value: int = LARGEST_VALUE
    """Most bytes of a value: a file with a larger value is not read."""

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The own fields, and the declared ones."""
        return (*self.own, *self.declared)

    @cached_property
    def is_flinks(self) -> bool:
        """Whether the own fields have Flink's names and units."""
        return self.own == _OWN

    @cached_property
    def takes_ts(self) -> bool:
        """Whether ``ts`` is another name of ``dt``."""
        return self.own[0] == _OWN[0]


def make(
    columns: Mapping[str, DeclaredColumn],
    payload: Mapping[str, PayloadField] | None = None,
    largest_value: int = LARGEST_VALUE,
) -> Contract:
    """Return the contract of a lake, with the columns and the payload that its settings declare."""
    declared = (Field(name, column.field, column.type.upper()) for name, column in columns.items())
    payload_fields = payload or {}
    own = tuple(_own(field, payload_fields[field.name]) if field.name in payload_fields else field for field in _OWN)
    return Contract(tables.with_declared(tables.BRONZE_TRANSACTIONS, columns), tuple(declared), own, largest_value)


def from_settings(settings: Settings) -> Contract:
    """Return the contract of a lake with these settings, which also limit the size of a value."""
    return make(settings.columns, settings.payload, size_in_bytes(settings.max_value_size))


def _own(field: Field, payload_field: PayloadField) -> Field:
    return field._replace(name=payload_field.field, form=forms.read_form(payload_field))


FLINKS = make({})
"""The contract without declared columns."""


def fit(batch: pa.RecordBatch, timezone: str = "UTC", contract: Contract = FLINKS) -> dict[str, pa.Array]:
    """Split a batch into the contract's columns, ``_rescued_data`` and ``_misfits``.

    A field is matched by its name or, if exactly one column has the name in another case, by that column. A value that
    converts to the contract's type without loss is converted. Every other value goes into the JSON object
    ``_rescued_data``, and is null in its contract column; so do columns that the contract does not name.
    docs/how-to/schema-evolution.md has the table of conversions.

    Args:
        batch: rows in any columns.
        timezone: the time zone of the Flink that wrote them. Flink shifts timestamps by it, unless parquet marks them
            as adjusted to UTC. A local time that the zone's clock skips in spring was moved by Flink and stays so.
        contract: the fields that become columns.

    Returns:
        The contract's columns by name; ``_rescued_data``, a text, null if nothing was rescued; and ``_misfits``: the
        names of declared columns whose value did not fit, and the likely unit of ``dt``, if it was read in another one
        (:func:`fraudlake.times.epochs.mark`); null if there are none.
    """
    rest, occurrences = _columns_by_name(batch)
    columns: dict[str, pa.Array] = {}
    misfits: dict[str, pa.Array] = {}
    left: dict[Path, pa.Array | None] = {}
    marks = None
    for field in contract.fields:
        place = _place(field.name, rest, occurrences)
        column = pa.nulls(batch.num_rows) if place is None or place.is_blocked else plain(place.value)
        if field.column == "dt":
            marks = _marks(column, field.form)
        columns[field.column] = forms.convert(column, field.type, field.form, timezone)
        if place is not None:
            misfit = plain(place.value) if place.is_blocked else _misfit(column, columns[field.column])
            if not place.is_blocked:
                left[place.path] = _either(left.get(place.path), misfit)
            if misfit is not None:
                misfits[field.column] = misfit
    columns["_rescued_data"] = _rescued(_remaining(rest, left), contract, left, batch.num_rows)
    declared = {field.column for field in contract.declared}
    named = {column: misfit for column, misfit in misfits.items() if column in declared}
    columns["_misfits"] = _misfits(named, marks, batch.num_rows)
    return columns


def _place(name: str, columns: dict[str, pa.Array], occurrences: dict[str, int]) -> Place | None:
    """Return a field's place: the column with its name or, if there is none, a field within a column."""
    own = name_of(name, occurrences)
    if own is not None:
        return Place((own,), columns[own])
    outer, *inner = name.split(".")
    within = name_of(outer, occurrences) if inner else None
    return None if within is None else nested.in_struct(columns[within], tuple(inner), (within,))


def _misfit(column: pa.Array, fitting: pa.Array) -> pa.Array | None:
    """Return the values that did not fit, null in the other rows; None if all values fit."""
    if fitting.null_count == column.null_count:
        return None
    if fitting.null_count == len(column):
        return column
    return pc.if_else(pc.is_null(fitting), column, pa.scalar(None, column.type))


def _either(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    if one is None or other is None:
        return other if one is None else one
    return pc.coalesce(one, other)


def _remaining(columns: dict[str, pa.Array], left: Mapping[Path, pa.Array | None]) -> dict[str, pa.Array]:
    """Return the values to rescue; ``left`` has the values that do not fit, by the path of their field."""
    for name in dict.fromkeys(path[0] for path in left):
        misfits = {path[1:]: misfit for path, misfit in left.items() if path[0] == name}
        remaining = nested.without(columns[name], misfits)
        if () in misfits or remaining is None:
            del columns[name]
        if remaining is not None:
            columns[name] = remaining
    return columns


def _columns_by_name(batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], dict[str, int]]:
    """Return the columns by name, and the occurrences of each name; a repeated name gets a unique number."""
    columns: dict[str, pa.Array] = {}
    repeated = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in columns:
            repeated.append((name, column))
        else:
            columns[name] = column
    occurrences = Counter(batch.schema.names)
    for name, column in repeated:
        columns[next(new for number in count(2) if (new := f"{name} ({number})") not in columns)] = column
    return columns, occurrences


def _rescued(rest: dict[str, pa.Array], contract: Contract, paths: Iterable[Path], rows: int) -> pa.Array:
    """Encode extra columns and values that do not fit; null in a row without any."""
    names = {field.name.lower() for field in contract.fields} | {path[0].lower() for path in paths}
    rescued = rescue.as_json(rest, rows)
    if not rest or any(name.lower() not in names for name in rest):
        return rescued
    masks = [pc.is_valid(column) for column in rest.values()]
    has_rescued = masks[0]
    for mask in masks[1:]:
        has_rescued = pc.or_(has_rescued, mask)
    return pc.if_else(has_rescued, rescued, pa.scalar(None, pa.string()))


def _marks(times: pa.Array, form: Form | None) -> pa.Array | None:
    """Mark the times whose unit is likely not that of their type or form; None if there are none."""
    if pa.types.is_timestamp(times.type):
        return epochs.all_misread(times.cast(pa.int64()), times.type.unit)
    if form is not None and form.unit is not None:
        ticks = forms.ticks(times)
        return None if ticks is None else epochs.all_misread(ticks, form.unit)
    return epochs.all_misread(times.cast(pa.int64()), None) if pa.types.is_int64(times.type) else None


def _misfits(rescued: dict[str, pa.Array], marks: pa.Array | None, rows: int) -> pa.Array:
    """Return, by row, the names of the columns with a value in ``rescued``, and the marks; null if there are none."""
    # Names contain no commas.
    named = [pc.if_else(column.is_valid(), f"{name},", "") for name, column in rescued.items()]
    if marks is not None:
        named.append(pc.fill_null(pc.binary_join_element_wise(marks, ",", ""), ""))
    if not named:
        return pa.nulls(rows, _NAMES)
    joined = pc.utf8_rtrim(pc.binary_join_element_wise(*named, ""), ",")
    return pc.split_pattern(pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), joined), ",").cast(_NAMES)
