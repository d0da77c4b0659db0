"""delta-rs reader: SQL over Delta tables becomes Arrow rows, by DataFusion, since Spark takes ten seconds to start."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from fraudlake.lake.data_file import DataFile

_NOT_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def is_readable(delta: DeltaTable) -> bool:
    """Return whether delta-rs reads the table: not if rows are marked as deleted (seen in 1.6)."""
    return "deletionVectors" not in (delta.protocol().reader_features or ())


def query(statement: str, registered: Mapping[str, DeltaTable]) -> pa.Table:
    """Return the rows of a query over tables, given by the names that it has for them.

    It goes past Arrow's own reader of delta-rs, whose threads call Python, which aborts if it is about to end
    (``terminate called``, seen with deltalake 1.6).
    """
    engine = QueryBuilder()
    for name, delta in registered.items():
        engine.register(name, delta)
    rows = pa.table(engine.execute(statement))
    return rows.cast(pa.schema([field.with_type(_without_views(field.type)) for field in rows.schema]))


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return a type without views, which Arrow can neither sort nor filter."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    return _NOT_VIEWS.get(kind, kind)


def files(delta: DeltaTable) -> list[DataFile]:
    """Return the files of a table as it is now, from its log."""
    columns = delta.metadata().partition_columns
    return [
        DataFile(
            file["path"],
            file["size_bytes"],
            file["modification_time"],
            {column: _text(file["partition"][column]) for column in columns},
        )
        for file in pa.table(delta.get_add_actions()).to_pylist()
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
