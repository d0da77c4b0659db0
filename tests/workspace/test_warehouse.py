"""The desk's store in a workspace: statements of a SQL warehouse, whose answers are texts in parts."""

from __future__ import annotations

from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from databricks.sdk.service.sql import StatementState

from fraudlake.errors import FraudlakeError
from fraudlake.settings import load
from fraudlake.tables import GOLD_CASES, GOLD_REVIEW_QUEUE, SILVER_REVIEW_EVENTS
from fraudlake.workspace.warehouse import WarehouseStore

TABLES = ("silver_review_events", "silver_definition", "gold_review_queue")
NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


class Warehouse:
    """A client of a workspace with a warehouse; ``answers`` are columns with types, and parts of rows."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.answers: dict[str, tuple[dict[str, str], list[list[list[Any]]]]] = {}
        self.failure: str | None = None
        self.config = SimpleNamespace(warehouse_id=None)
        running = SimpleNamespace(id="w1", name="sql", state=SimpleNamespace(value="RUNNING"))
        self.warehouses = SimpleNamespace(list=lambda: [running])
        self.statement_execution = self

    def execute_statement(self, statement: str, warehouse: str, **given: Any) -> Any:
        assert (warehouse, given["catalog"], given["schema"]) == ("w1", "main", "fraud")
        self.statements.append(statement)
        if self.failure is not None:
            failed = SimpleNamespace(state=StatementState.FAILED, error=SimpleNamespace(message=self.failure))
            return SimpleNamespace(status=failed, result=None, manifest=None, statement_id="s")
        columns, parts = self.answers.get(statement, ({}, [[]]))
        if statement == "SHOW TABLES":
            parts = [[["fraud", name, "false"] for name in TABLES]]
        described = [
            SimpleNamespace(name=name, type_name=SimpleNamespace(value=kind)) for name, kind in columns.items()
        ]
        self.parts = parts
        return SimpleNamespace(
            status=SimpleNamespace(state=StatementState.SUCCEEDED),
            manifest=SimpleNamespace(schema=SimpleNamespace(columns=described)),
            result=self.get_statement_result_chunk_n("s", 0),
            statement_id="s",
        )

    def get_statement_result_chunk_n(self, statement_id: str, number: int) -> Any:
        following = number + 1 if number + 1 < len(self.parts) else None
        return SimpleNamespace(data_array=self.parts[number], next_chunk_index=following)


@pytest.fixture
def warehouse() -> Warehouse:
    return Warehouse()


@pytest.fixture
def store(warehouse: Warehouse) -> WarehouseStore:
    return WarehouseStore(load(catalog="main", schema_name="fraud", warehouse="sql"), warehouse)


def test_rows_come_in_parts_with_the_types_of_their_columns(store: WarehouseStore, warehouse: Warehouse) -> None:
    columns = {
        "id": "STRING",
        "n": "LONG",
        "x": "DOUBLE",
        "is_it": "BOOLEAN",
        "day": "DATE",
        "at": "TIMESTAMP",
        "ids": "ARRAY",
    }
    parts = [
        [["a", "1", "0.5", "true", "2026-03-07", "2026-03-07T12:00:00.000Z", '["x","y"]']],
        [[None] * 7],
    ]
    warehouse.answers["SELECT"] = (columns, parts)

    first, second = store.query("SELECT").to_pylist()

    assert first == {
        "id": "a", "n": 1, "x": 0.5, "is_it": True, "day": date(2026, 3, 7), "at": NOON, "ids": ["x", "y"],
    }  # fmt: skip
    assert set(second.values()) == {None}


def test_a_table_that_is_not_there_has_no_rows(store: WarehouseStore, warehouse: Warehouse) -> None:
    store.query("SELECT case_id FROM gold_cases", GOLD_CASES)

    assert warehouse.statements[-1].startswith("WITH gold_cases AS (SELECT CAST(NULL AS STRING) AS case_id, ")
    assert warehouse.statements[-1].endswith(" WHERE false) SELECT case_id FROM gold_cases")
    with pytest.raises(FraudlakeError, match=r"main\.fraud has no table gold_cases yet"):
        store.append(GOLD_CASES, GOLD_CASES.schema.empty_table())


def test_an_event_is_inserted_if_its_number_is_new_whatever_its_texts_contain(
    store: WarehouseStore, warehouse: Warehouse
) -> None:
    rows = pa.table({"number": [3], "note": ["it's ${x} \\"], "at": [NOON], "transaction_ids": [["t1", "t'2"]]})

    store.insert(SILVER_REVIEW_EVENTS, rows, ("number",))

    merged = warehouse.statements[-1]
    assert merged.startswith("MERGE INTO silver_review_events t USING (SELECT CAST(3 AS BIGINT) AS number, ")
    assert merged.endswith(") s ON t.number = s.number WHEN NOT MATCHED THEN INSERT *")
    assert "CAST(concat('it', chr(39), 's ', chr(36), '{x} ', chr(92)) AS STRING) AS note" in merged
    assert "CAST(TIMESTAMP '2026-03-07 12:00:00.000000Z' AS TIMESTAMP) AS at" in merged
    assert "CAST(array('t1', concat('t', chr(39), '2')) AS ARRAY<STRING>) AS transaction_ids" in merged


def test_the_queue_of_a_day_is_replaced_in_one_statement(store: WarehouseStore, warehouse: Warehouse) -> None:
    store.replace(GOLD_REVIEW_QUEUE, pa.table({"day": [date(2026, 3, 7)]}), "day = DATE '2026-03-07'")

    begun = (
        "INSERT INTO gold_review_queue REPLACE WHERE day = DATE '2026-03-07' SELECT CAST(DATE '2026-03-07' AS DATE) "
    )
    assert warehouse.statements[-1].startswith(begun)


def test_a_warehouse_that_refuses_is_a_line(store: WarehouseStore, warehouse: Warehouse) -> None:
    warehouse.failure = "[INSUFFICIENT_PERMISSIONS] you may not\nread this"

    with pytest.raises(FraudlakeError, match=r"^SQL failed \(\[INSUFFICIENT_PERMISSIONS\] you may not\): SELECT 1$"):
        store.query("SELECT 1")
