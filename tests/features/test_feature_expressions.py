"""Expressions over features, columns and time against values that are computed by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from fraudlake.features.feature_expressions import FeatureExpressions
from fraudlake.settings import Settings

COLUMNS = {"country": "string", "items": "bigint", "is_online": "boolean"}
ROWS = {
    "timestamp": [datetime(2026, 3, 1, 23, 5, tzinfo=UTC), datetime(2026, 3, 2, 4, 0, 0, 500, tzinfo=UTC), None],
    "amount": [150.0, 12.5, -3.0],
    "count_hour": [2.0, 0.0, 1.0],
    "week": [4.0, None, 0.0],
    "country": ["DE", None, "FR"],
    "items": [3, 0, None],
    "is_online": [True, None, False],
}


def computed(**expressions: str) -> dict[str, list[Any]]:
    """Compute expressions of the first two rows, or of all if none reads the time."""
    week = {"name": "week", "aggregate": "count", "window": "7 days"}
    features = [*({"name": name, "expression": text} for name, text in expressions.items()), week]
    settings = Settings(columns=COLUMNS, features=features)
    rows = pa.table(ROWS).slice(0, 2)
    sent = cloudpickle.dumps(FeatureExpressions.from_settings(settings))  # as a stream sends them to its workers
    added = cloudpickle.loads(sent).add_to(rows)
    return {name: added[name].to_pylist() for name in expressions}


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("count_hour / (week + 1)", [0.4, None]),
        ("amount / count_hour", [75.0, None]),  # divided by zero
        ("amount / items", [50.0, None]),
        ("items / 2", [1.0, 0.0]),  # whole numbers, as in Flink
        ("COALESCE(week, 0) + 0.5", [4.5, 0.5]),
        ("HOUR(dt)", [23.0, 4.0]),
        ("DAYOFWEEK(`timestamp`)", [1.0, 2.0]),  # a Sunday is 1
        ("EXTRACT(MINUTE FROM dt) + MONTH(dt) * 100", [305.0, 300.0]),
        ("country = 'DE'", [1.0, None]),
        ("is_online", [1.0, None]),
        ("FLOOR(amount / 50) * 50 = amount", [1.0, 0.0]),
        ("CASE WHEN country IS NULL THEN 1 ELSE 0 END", [0.0, 1.0]),
        ("1", [1.0, 1.0]),
    ],
)
def test_an_expression_is_sql(expression: str, values: list[float | None]) -> None:
    assert computed(e=expression) == {"e": values}


def test_an_expression_may_name_another_one_that_is_declared_later() -> None:
    assert computed(b="a * 2", a="amount + c", c="items + 0.5") == {
        "b": [307.0, 26.0],
        "a": [153.5, 13.0],
        "c": [3.5, 0.5],
    }


def test_columns_that_only_expressions_read_leave_the_rows() -> None:
    settings = Settings(columns=COLUMNS, features=[{"name": "e", "expression": "items + amount + count_hour"}])
    expressions = FeatureExpressions.from_settings(settings)
    assert [field.name for field in expressions.columns] == ["items"]
    assert "items" not in expressions.add_to(pa.table(ROWS).slice(0, 2)).column_names
