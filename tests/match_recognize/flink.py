"""Flink SQL's result of a query: its rows, read as texts, and ours in the same form."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from fraudlake.rules.columns import TABLES, TIME, query_columns
from fraudlake.settings.columns import DeclaredColumn
from fraudlake_patterns import evaluation, query, rows, values
from fraudlake_patterns.expressions import json_value, microseconds
from fraudlake_patterns.values import BOOLEAN, DOUBLE, Type

DECLARED = {
    "merchant_id": DeclaredColumn.model_validate({"from": "merchantId", "type": "string"}),
    "kind": DeclaredColumn.model_validate({"from": "kind", "type": "string"}),
}
COLUMNS = query_columns(DECLARED)
_SCHEMA = pa.schema(
    [
        ("transaction_id", pa.string()),
        ("account_id", pa.string()),
        ("amount", pa.float64()),
        ("timestamp", pa.timestamp("us")),
        ("label", pa.bool_()),
        ("merchant_id", pa.string()),
        ("kind", pa.string()),
    ]
)
_FIELDS = ("transaction_id", "accountId", "amount", "dt", "alert", "merchantId", "kind")


def table(lines: Iterable[str]) -> pa.Table:
    """Read rows as the peer reads them: a JSON object a line, in the payload's names."""
    given = [json.loads(line) for line in lines]
    columns = [[row.get(name) for row in given] for name in _FIELDS]
    columns[3] = [microseconds(text) for text in columns[3]]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], _SCHEMA)


def parse(sql: str) -> query.Query:
    """Read a query over the rows of :func:`table`."""
    return query.parse(sql, COLUMNS, TIME, TABLES)


def results(sql: str, given: pa.Table) -> list[list[str | None]]:
    """Return what our engine says of a query, in Flink's texts and in no order."""
    parsed = parse(sql)
    sorted_rows = rows.sort(given, TIME, parsed.partition_by, parsed.order_by, _SCHEMA.names)
    found = evaluation.results(parsed, sorted_rows, evaluation.matches(parsed, sorted_rows).matches)
    types = [output.expression.type for output in parsed.select]
    return [[_text(value, type_) for value, type_ in zip(row.values(), types, strict=True)] for row in found if row]


def _text(value: Any, type_: Type) -> str | None:
    if value is None:
        return None
    if type_ == DOUBLE:
        return values.double_text(value)
    if type_ == BOOLEAN:
        return "true" if value else "false"
    return str(value) if type_.is_numeric else str(json_value(value, type_))


def answer(path: Path) -> list[list[str | None]]:
    """Read the rows that the peer wrote."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def unordered(result: list[list[str | None]]) -> list[str]:
    """Return rows in an order that depends on nothing but them."""
    return sorted(map(json.dumps, result))
