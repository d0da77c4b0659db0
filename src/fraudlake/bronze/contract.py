"""The landing contract: a batch with any columns becomes the columns of bronze and the rescued data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.bronze import conversions, epochs, rescue
from fraudlake.bronze.plain import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fraudlake.settings.columns import DeclaredColumn


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


def name_of(wanted: str, occurrences: dict[str, int]) -> str | None:
    """Return the name of the column, or the key, that is the contract's ``wanted``.

    Args:
        wanted: the field's name in the contract.
        occurrences: the names of a file's columns or a message's keys, and how often each occurs.

    Returns:
        The name itself or, if exactly one is alike but for its case, that; None if there is none, or more than one.
    """
    if wanted in occurrences:
        return wanted if occurrences[wanted] == 1 else None
    alike = [name for name in occurrences if name.lower() == wanted.lower()]
    return alike[0] if len(alike) == 1 and occurrences[alike[0]] == 1 else None


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
        The contract's columns by name; ``_rescued_data``, a text, null if nothing was rescued; and ``_misfits``, the
        names of declared columns whose value did not fit and the unit that ``dt`` is likely in, if it was read in
        another one (:func:`fraudlake.bronze.epochs.mark`), null if all is well.
    """
    columns: dict[str, pa.Array] = {}
    marks = None
    rest, occurrences = _columns_by_name(batch)
    names = {field.column: name_of(field.name, occurrences) for field in contract.fields}
    for field in contract.fields:
        name = names[field.column]
        column = pa.nulls(batch.num_rows) if name is None else plain(rest.pop(name))
        if field.column == "dt":
            marks = _marks(column)
        fitting = conversions.of_arrow(column, field.type, timezone)
        if fitting.null_count == batch.num_rows > column.null_count:
            rest[str(name)] = column
        elif fitting.null_count > column.null_count:  # some of its values did not fit
            rest[str(name)] = pc.if_else(pc.is_null(fitting), column, pa.scalar(None, column.type))
        columns[field.column] = fitting
    columns["_rescued_data"] = _rescued(rest, contract, batch.num_rows)
    declared = {field.column for field in contract.declared}
    misfits = {column: rest[name] for column, name in names.items() if column in declared and name in rest}
    columns["_misfits"] = _misfits(misfits, marks, batch.num_rows)
    return columns


def _columns_by_name(batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], dict[str, int]]:
    """Return the columns by name, and the occurrences of each name; a repeated name gets a number that no other has."""
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


def _rescued(rest: dict[str, pa.Array], contract: Contract, rows: int) -> pa.Array:
    """Encode the columns and values that do not fit; null in a row without misfits and extra columns."""
    known = {field.name.lower() for field in contract.fields}
    rescued = rescue.as_json(rest, rows)
    if not rest or any(name.lower() not in known for name in rest):
        return rescued
    masks = [pc.is_valid(column) for column in rest.values()]
    has_rescued = masks[0]
    for mask in masks[1:]:
        has_rescued = pc.or_(has_rescued, mask)
    return pc.if_else(has_rescued, rescued, pa.scalar(None, pa.string()))


def _marks(times: pa.Array) -> pa.Array | None:
    """Mark the times that are likely in another unit than that of their type; None if there are none."""
    if pa.types.is_timestamp(times.type):
        return epochs.all_misread(times.cast(pa.int64()), times.type.unit)
    return epochs.all_misread(times.cast(pa.int64()), None) if pa.types.is_int64(times.type) else None


def _misfits(rescued: dict[str, pa.Array], marks: pa.Array | None, rows: int) -> pa.Array:
    """List, row by row, the names of the columns that have a value in ``rescued``, and the marks; null without any."""
    # Names hold no commas.
    named = [pc.if_else(column.is_valid(), f"{name},", "") for name, column in rescued.items()]
    if marks is not None:
        named.append(pc.fill_null(pc.binary_join_element_wise(marks, ",", ""), ""))
    if not named:
        return pa.nulls(rows, _NAMES)
    joined = pc.utf8_rtrim(pc.binary_join_element_wise(*named, ""), ",")
    return pc.split_pattern(pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), joined), ",").cast(_NAMES)
