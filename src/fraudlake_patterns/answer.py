"""Answer: runs a query over an Arrow table, and returns an Arrow table with a row for each match."""

from __future__ import annotations

import pyarrow as pa

from fraudlake.errors import UsageError
from fraudlake_patterns import evaluation
from fraudlake_patterns.expressions import Column
from fraudlake_patterns.query import parse
from fraudlake_patterns.rows import sort
from fraudlake_patterns.values import BIGINT, BOOLEAN, DOUBLE, INT, INTERVAL, NULL, STRING, TIMESTAMP, Type

_TYPES = {
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.bool_(): BOOLEAN,
    pa.int32(): INT,
    pa.int64(): BIGINT,
    pa.float64(): DOUBLE,
}
"""Types of columns that a query may name, in addition to timestamps."""
_ARROW = {
    STRING: pa.string(),
    BOOLEAN: pa.bool_(),
    INT: pa.int32(),
    BIGINT: pa.int64(),
    DOUBLE: pa.float64(),
    TIMESTAMP: pa.timestamp("us"),
    INTERVAL: pa.duration("us"),
    NULL: pa.null(),
}


def match(sql: str, rows: pa.Table, time: str, name: str = "rows") -> pa.Table:
    """Answer a query.

    Args:
        sql: one query over one ``MATCH_RECOGNIZE``, in Flink SQL.
        rows: the rows; the query may name columns of type string, bool, int32, int64, float64 or timestamp (UTC).
        time: the first column of ``ORDER BY``, a timestamp without NULLs. Rows that are equal in all columns of
            ``ORDER BY`` keep the order of the table.
        name: the name of the rows in the query.

    Returns:
        The columns that the query selects, with a row for each match; times in microseconds.

    Raises:
        UsageError: the query is not valid, or something in it is not supported, with its position; ``time`` is not a
            timestamp without NULLs.
        FraudlakeError: ``AFTER MATCH SKIP`` names a variable that has no row in a match, or its first row.
    """
    types = {field.name: _type_of(field.type) for field in rows.schema}
    if types.get(time) != TIMESTAMP or rows[time].null_count:
        raise UsageError(f"{name}: '{time}' must be a column of timestamps without NULLs")
    columns = {column: Column(column, type_) for column, type_ in types.items() if type_ is not None}
    query = parse(sql, columns, time, (name,))
    ordered = sort(rows, query.time, query.partition_by, query.order_by, query.columns)
    selected = evaluation.results(query, ordered, evaluation.matches(query, ordered).matches)
    matched = [row for row in selected if row is not None]
    return pa.table(
        {
            output.name: pa.array([row[output.name] for row in matched], _arrow(output.expression.type))
            for output in query.select
        }
    )


def _type_of(column: pa.DataType) -> Type | None:
    return TIMESTAMP if pa.types.is_timestamp(column) else _TYPES.get(column)


def _arrow(type_: Type) -> pa.DataType:
    return pa.decimal128(type_.precision, type_.scale) if type_.name == "DECIMAL" else _ARROW[type_]
