"""The desk's store in a workspace: statements of a SQL warehouse, whose answers are Arrow behind links, or texts."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config
from databricks.sdk.service.sql import ExternalLink

from fraudlake.errors import FraudlakeError
from fraudlake.lake import contents, lake_format
from fraudlake.settings import load
from fraudlake.tables import GOLD_CASES, GOLD_REVIEW_QUEUE, SILVER_DEFINITION, SILVER_REVIEW_EVENTS, Table
from fraudlake_workspace import answers
from fraudlake_workspace.warehouse import WarehouseStore
from tests.desk.small_lake import write
from tests.workspace.warehouse import LIMIT, Warehouse, serving
from tests.workspace_http import TOKEN

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    root = tmp_path / "lake"
    root.mkdir()
    lake_format.mark(root)
    for table in (SILVER_REVIEW_EVENTS, SILVER_DEFINITION, GOLD_REVIEW_QUEUE):
        write(root, table, [])
    with serving(Warehouse(root)) as served:
        yield served


@pytest.fixture(params=["links", "texts"])
def store(request: pytest.FixtureRequest, warehouse: Warehouse) -> WarehouseStore:
    warehouse.has_links = request.param == "links"
    return opened(warehouse)


def opened(warehouse: Warehouse) -> WarehouseStore:
    config = Config(host=warehouse.host, token=TOKEN, auth_type="pat", http_timeout_seconds=5, retry_timeout_seconds=1)
    return WarehouseStore(load(catalog="main", schema_name="fraud", warehouse="sql"), WorkspaceClient(config=config))


def a_value(kind: pa.DataType, number: int) -> Any:
    """A value of a type, with the milliseconds, marks and letters that a wire may lose."""
    if pa.types.is_list(kind):
        return [a_value(kind.value_type, number), None, a_value(kind.value_type, number + 1)]
    if pa.types.is_map(kind):
        return [(f"key {number} ${{x}}", a_value(kind.item_type, number)), ("none", None)]
    if pa.types.is_struct(kind):
        return {field.name: a_value(field.type, number) for field in kind}
    return {
        pa.string(): f'it\'s "{number}" \\ ü 😀\n',
        pa.binary(): bytes([0, 255, number]),
        pa.bool_(): number % 2 == 0,
        pa.int32(): -(2**31),
        pa.int64(): 2**63 - 1,
        pa.float64(): 0.1 + number,
        pa.date32(): date(1969, 12, 31),
        pa.timestamp("us", tz="UTC"): datetime(2026, 3, 7, 23, 59, 59, 123000, UTC),
    }[kind]


@pytest.mark.parametrize("table", contents.TABLES, ids=lambda table: table.name)
def test_every_column_of_a_lake_comes_as_it_is(store: WarehouseStore, warehouse: Warehouse, table: Table) -> None:
    rows = [{field.name: a_value(field.type, number) for field in table.schema} for number in range(2)]
    of_lake = pa.Table.from_pylist([*rows, dict.fromkeys(table.schema.names)], table.schema)
    warehouse.answers["SELECT all"], warehouse.answers["SELECT none"] = of_lake, of_lake.slice(0, 0)

    assert store.query("SELECT all") == of_lake
    assert store.query("SELECT none") == of_lake.slice(0, 0)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.decimal128(10, 2), [Decimal("-12345678.90"), Decimal("0.10")]),
        (pa.float64(), [math.inf, -math.inf, 5e-324]),
        (pa.float32(), [1.5]),
        (pa.int8(), [-128]),
        (pa.int16(), [32767]),
        (pa.timestamp("us"), [datetime(2026, 3, 29, 2, 30)]),
        (pa.null(), [None]),
        (pa.list_(pa.field("element", pa.decimal128(4, 1))), [[Decimal("1.5")], []]),
        (pa.map_(pa.int64(), pa.list_(pa.field("element", pa.binary()))), [[(7, [b"\xff"])], None]),
        (
            pa.struct([("a b", pa.struct([("at", pa.timestamp("us", tz="UTC"))]))]),
            [{"a b": {"at": NOON}}, {"a b": None}],
        ),
    ],
    ids=str,
)
def test_other_types_of_a_query_come_as_they_are(
    store: WarehouseStore, warehouse: Warehouse, kind: pa.DataType, values: list[Any]
) -> None:
    warehouse.answers["SELECT x"] = pa.table({"x": pa.array(values, kind)})
    answer = store.query("SELECT x")["x"]
    assert (answer.type, answer.to_pylist()) == (kind, values)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ARRAY<STRING>", pa.list_(pa.field("element", pa.string()))),
        (
            "STRUCT<`a b`: STRING NOT NULL, c: DECIMAL(10,2)>",
            pa.struct({"a b": pa.string(), "c": pa.decimal128(10, 2)}),
        ),
        ("MAP<STRING, ARRAY<MAP<INT, DATE>>>", None),
        ("INTERVAL DAY TO SECOND", pa.string()),
        ("VARIANT", pa.string()),
    ],
)
def test_a_type_is_read_as_the_manifest_writes_it(text: str, kind: pa.DataType | None) -> None:
    of_map = pa.map_(pa.string(), pa.list_(pa.field("element", pa.map_(pa.int32(), pa.date32()))))
    assert answers.type_of(text) == (kind or of_map)


def test_links_keep_microseconds_and_texts_milliseconds(warehouse: Warehouse) -> None:
    exact = datetime(2026, 3, 7, 12, 0, 0, 123_456, UTC)
    warehouse.answers["SELECT at"] = pa.table({"at": pa.array([exact], pa.timestamp("us", tz="UTC"))})
    store = opened(warehouse)
    assert store.query("SELECT at")["at"].to_pylist() == [exact]
    warehouse.has_links = False
    assert store.query("SELECT at")["at"].to_pylist() == [exact.replace(microsecond=123_000)]


def test_an_answer_of_more_than_25_mib_comes_in_parts(warehouse: Warehouse) -> None:
    large = pa.table({"id": [f"{number:0128}" for number in range(LIMIT // 100)]})
    assert large.nbytes > LIMIT
    warehouse.answers["SELECT id"], warehouse.chunk = large, 50_000
    store = opened(warehouse)
    assert store.query("SELECT id") == large
    warehouse.has_links = False
    with pytest.raises(FraudlakeError, match=r"^SQL failed \(Inline byte limit exceeded"):
        store.query("SELECT id")


def test_a_storage_that_refuses_is_a_line_without_its_link(warehouse: Warehouse) -> None:
    store, warehouse.storage = opened(warehouse), 403
    warehouse.answers["SELECT 1"] = pa.table({"one": [1]})
    host = warehouse.host.removeprefix("http://")
    line = (
        f"{host}, which has the answer, refuses it with 403: let the network of the desk reach the workspace's storage"
    )
    with pytest.raises(FraudlakeError, match=f"^{re.escape(line)}$"):
        store.query("SELECT 1")


def test_a_storage_that_cannot_be_reached_is_a_line_without_its_link() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"
        link = ExternalLink(external_link=f"http://{host}/rows?signature=secret")
        with pytest.raises(FraudlakeError, match=f"^{host}, which has the answer, cannot be reached: let the network"):
            answers.fetch_links([link], pa.schema([("one", pa.int64())]))


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
    assert merged.startswith("MERGE INTO silver_review_events t USING (SELECT * FROM (VALUES (CAST(3 AS BIGINT), ")
    columns = ", ".join(SILVER_REVIEW_EVENTS.schema.names)
    assert merged.endswith(f" AS given({columns})) s ON t.number = s.number WHEN NOT MATCHED THEN INSERT *")
    assert "CAST(concat('it', chr(39), 's ', chr(36), '{x} ', chr(92)) AS STRING)" in merged
    assert "CAST(TIMESTAMP '2026-03-07 12:00:00.000000Z' AS TIMESTAMP)" in merged
    assert "CAST(array('t1', concat('t', chr(39), '2')) AS ARRAY<STRING>)" in merged
    names = ("number", "note", "at", "transaction_ids")
    written = store.query(f"SELECT {', '.join(names)} FROM silver_review_events", SILVER_REVIEW_EVENTS)
    assert written.to_pylist() == rows.select(names).to_pylist()


def test_all_events_are_inserted_or_none_if_the_number_of_one_is_there(
    store: WarehouseStore, warehouse: Warehouse
) -> None:
    store.insert_all(SILVER_REVIEW_EVENTS, pa.table({"number": [3, 4]}), "number")
    store.insert_all(SILVER_REVIEW_EVENTS, pa.table({"number": [4, 5]}), "number")

    assert warehouse.statements[-1].endswith(") s ON t.number IN (4, 5) WHEN NOT MATCHED THEN INSERT *")
    written = store.query("SELECT number FROM silver_review_events ORDER BY number", SILVER_REVIEW_EVENTS)
    assert written["number"].to_pylist() == [3, 4]


def test_the_queue_of_a_day_is_replaced_in_one_statement(store: WarehouseStore, warehouse: Warehouse) -> None:
    store.replace(GOLD_REVIEW_QUEUE, pa.table({"day": [date(2026, 3, 7)]}), "day = DATE '2026-03-07'")

    begun = "INSERT INTO gold_review_queue REPLACE WHERE day = DATE '2026-03-07' SELECT * FROM (VALUES (CAST("
    assert warehouse.statements[-1].startswith(begun)


@pytest.mark.stream
def test_spark_reads_the_rows_of_a_thousand_events_as_they_were_given(warehouse: Warehouse, spark: Any) -> None:
    events = [
        {
            "number": number,
            "note": f"it's ${{x}} \\ {number}" if number % 2 else None,
            "transaction_ids": ["t1", f"t'{number}"][: number % 3],
            "fraud_amount": (0.1 + number, 1e300, None)[number % 3],
        }
        for number in range(1_000)
    ]

    opened(warehouse).insert_all(SILVER_REVIEW_EVENTS, pa.Table.from_pylist(events), "number")

    source = re.findall(r" USING \((.*)\) s ON ", warehouse.statements[-1])[0]
    read = spark.sql(source).select(*events[0]).toArrow()
    assert sorted(read.to_pylist(), key=lambda event: int(event["number"])) == events


def test_a_warehouse_that_refuses_is_a_line(store: WarehouseStore, warehouse: Warehouse) -> None:
    warehouse.failure = "[INSUFFICIENT_PERMISSIONS] you may not\nread this"

    with pytest.raises(FraudlakeError, match=r"^SQL failed \(\[INSUFFICIENT_PERMISSIONS\] you may not\): SELECT 1$"):
        store.query("SELECT 1")
