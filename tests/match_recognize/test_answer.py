"""A query over any Arrow table, in a process that has imported nothing else of the package."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

import fraudlake_patterns as match_recognize
from fraudlake.errors import UsageError

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
SQL = """
SELECT * FROM payments MATCH_RECOGNIZE (
  PARTITION BY card, shop ORDER BY paid_at
  MEASURES FIRST(A.amount) AS small, B.amount AS large, B.paid_at AS at, CAST(B.amount AS DECIMAL(8, 2)) AS cents
  PATTERN (A B) WITHIN INTERVAL '1' MINUTE
  DEFINE A AS amount < 1, B AS amount > 500)
"""


def payments(seconds: list[int], amounts: list[float | None], unit: str = "ns") -> pa.Table:
    times = [NOON + timedelta(seconds=second) for second in seconds]
    return pa.table(
        {
            "paid_at": pa.array(times, pa.timestamp(unit, "UTC")),
            "shop": pa.array([7] * len(times), pa.int32()),
            "card": pa.array(["a"] * len(times), pa.large_string()),
            "amount": pa.array(amounts, pa.float64()),
            "raw": pa.array([b"?"] * len(times)),
        }
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_query_gives_a_row_for_each_match(unit: str) -> None:
    # Out of order: the large payment at 30 s follows the small one at 10 s.
    answer = match_recognize.match(SQL, payments([30, 10, 200, 90], [900, 0.5, 700, 0.25], unit), "paid_at", "payments")
    assert answer.schema.names == ["shop", "card", "small", "large", "at", "cents"]
    assert answer.to_pylist() == [
        {
            "shop": 7,
            "card": "a",
            "small": 0.5,
            "large": 900.0,
            "at": (NOON + timedelta(seconds=30)).replace(tzinfo=None),
            "cents": Decimal("900.00"),
        }
    ]


def test_without_rows_or_matches_the_answer_has_its_columns_and_types() -> None:
    answer = match_recognize.match(SQL, payments([], []), "paid_at", "payments")
    types = [pa.int32(), pa.string(), pa.float64(), pa.float64(), pa.timestamp("us"), pa.decimal128(8, 2)]
    assert (len(answer), answer.schema.types) == (0, types)


@pytest.mark.parametrize(
    ("time", "sql", "reason"),
    [
        ("shop", SQL, "rows: 'shop' must be a column of timestamps without NULLs"),
        ("nothing", SQL, "rows: 'nothing' must be a column of timestamps without NULLs"),
        ("paid_at", SQL, "SQL: line 2, column 15: there is no table 'payments': a query reads rows"),
        ("paid_at", SQL.replace("payments", "rows").replace("BY paid_at", "BY shop"), "the time, paid_at, ascending"),
        ("paid_at", SQL.replace("payments", "rows").replace("A AS amount", "A AS raw"), "there is no column 'raw'"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_line(time: str, sql: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        match_recognize.match(sql, payments([1], [2.0]), time)
    assert reason in str(refused.value)


def test_it_needs_only_arrays_and_errors_of_the_package() -> None:
    script = (
        "import fraudlake_patterns, sys; "
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('fraudlake.')}), "
        "'pyspark' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "['arrays', 'errors'] False"
