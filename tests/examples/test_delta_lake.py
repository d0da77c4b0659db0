"""Document 003: Flink with Delta Lake."""

from __future__ import annotations

import pytest

from .conftest import Printed

pytestmark = [pytest.mark.stream, pytest.mark.long]

ALERTS = [
    "1970-01-01 00:00:01.002000 2 600.0 True",
    "1970-01-01 00:00:01.007000 4 520.0 True",
    "1970-01-01 00:00:01.009000 3 800.0 True",
]


def test_flinks_files_are_read_with_their_schema(printed: Printed) -> None:
    assert printed("flink_files") == [
        "root",
        " |-- dt: timestamp (nullable = true)",
        " |-- accountId: string (nullable = true)",
        " |-- amount: double (nullable = true)",
        " |-- alert: boolean (nullable = true)",
        "",
        "files: 5",
        *ALERTS,
    ]


def test_landed_files_reach_the_silver_table_once(printed: Printed) -> None:
    lines = printed("auto_loader")
    assert lines == ["timestamp accountId amount alert date", *(f"{alert} 1970-01-01" for alert in ALERTS)]


def test_auto_optimize_writes_one_file_for_five(printed: Printed) -> None:
    assert printed("auto_optimize") == ["none 5", "optimizeWrite 1", "autoCompact 1"]


def test_zorder_leaves_an_account_in_one_file(printed: Printed) -> None:
    assert printed("zorder") == ["before: 8", "after: 1"]


def test_a_delta_table_streams_what_is_appended(printed: Printed) -> None:
    assert printed("delta_source") == [
        "micro-batch 0",
        "1 1000 188.23",
        "2 1001 0.5",
        "micro-batch 1",
        "2 1002 600.0",
        "3 1003 42.0",
    ]
