"""Rules by entity in the stream: exactly the alerts of plain Python, over restarts and changes of rules."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.detection import backtest, rule_table
from fraudlake.detection.state import state
from fraudlake.streams import detect, stream
from tests.detection.test_entities import COLUMNS, ENTITIES, KINDS, Paid, expected, history
from tests.detection.test_live_rules import rule
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, silver

pytestmark = pytest.mark.stream

Alerts = list[tuple[str, str, tuple[int, ...]]]
PAIR, BUSY, PROBE, TRIPLE = (
    {**KINDS[kind], "entity": by}
    for kind, by in (("pair", "terminal"), ("busy", "place"), ("probe", "terminal"), ("triple", "account"))
)


def land(lake: Any, rows: list[Paid]) -> None:
    table = silver(paid.row for paid in rows)
    schema = tables.with_declared(tables.SILVER_TRANSACTIONS, lake.settings.columns).schema
    columns = {"terminal_id": [paid.terminal_id for paid in rows], "zone": [paid.zone for paid in rows]}
    whole = {name: columns.get(name) or table[name] for name in schema.names}
    lake.writer(tables.SILVER_TRANSACTIONS).write(pa.table(whole, schema=schema), "append")


def detected(lake: Any, *parts: list[Paid]) -> None:
    """Land each part and run the stream over it, as a restarted process does."""
    for rows in parts:
        land(lake, rows)
        stream.run(lake, detect.streams(lake), "available-now")


def raised(lake: Any, table: tables.Table = tables.SILVER_ALERTS) -> Alerts:
    alerts = []
    for row in lake.store.query(f"SELECT * FROM {table.name} WHERE rule != 'small_then_large'", table).to_pylist():
        positions = [int(part["transaction_id"].rpartition("-")[2]) for part in row["evidence"]]
        if row["kind"] == "threshold":
            positions = positions[-1:]
        alerts.append((row["rule"], row["entity_key"], tuple(positions)))
    return sorted(alerts)


def ended(alerts: Alerts, first: int, last: int) -> Alerts:
    return [alert for alert in alerts if first <= alert[2][-1] < last]


def numbered(rows: list[Paid]) -> list[Paid]:
    """Rows of one source whose positions are their order, from 7 March on."""
    return [
        paid._replace(row=paid.row._replace(source="part-0", position=number, time=MARCH_7 + paid.row.time))
        for number, paid in enumerate(rows)
    ]


def end_of(part: list[Paid], number: int) -> Paid:
    """A row that lets the watermark pass all others; it is of no entity but the account."""
    return Paid(Row("end", part[-1].row.time + 600 * SECOND, 20.0, f"end-{number}", 0), None, None)


@pytest.mark.long
@pytest.mark.parametrize("ordering", ["arrival", "event_time"])
def test_rules_of_two_entities_come_and_go_and_raise_what_they_would_have(lake: Any, ordering: str) -> None:
    opened = lake(
        rules=[PAIR, BUSY],
        columns=COLUMNS,
        entities=ENTITIES,
        ordering=ordering,
        max_out_of_orderness="1 minute",
        buckets=2,
    )
    rows, draw = numbered(history(7, 420)), random.Random(7)
    cuts = [next(n for n in range(cut, 420) if rows[n - 1].row.time < rows[n].row.time) for cut in (100, 210, 320)]
    moved = [sum(number >= cut for cut in cuts) * 1000 * SECOND for number in range(420)]
    rows = [
        paid._replace(row=paid.row._replace(time=paid.row.time + later))
        for paid, later in zip(rows, moved, strict=True)
    ]
    parts = [rows[first:last] for first, last in zip([0, *cuts], [*cuts, 420], strict=True)]
    if ordering == "event_time":
        parts = [
            [*sorted(part, key=lambda paid: paid.row.time + draw.randrange(60 * SECOND)), end_of(part, number)]
            for number, part in enumerate(parts)
        ]
    by_rule = {fields["name"]: expected(fields, rows) for fields in (PAIR, BUSY, PROBE, TRIPLE)}

    detected(opened, parts[0])
    rule_table.apply(opened, [(rule(PAIR), "live"), (rule(TRIPLE), "live"), (rule(PROBE), "shadow")], "test", None)
    detected(opened, parts[1])  # the buckets of place are empty from here on, those of the account begin warm
    rule_table.apply(opened, [(rule(fields), "live") for fields in (PAIR, BUSY, PROBE)], "test", None)
    detected(opened, parts[2], parts[3])

    live = by_rule["pair"] + ended(by_rule["busy"], 0, cuts[0]) + ended(by_rule["triple"], cuts[0], cuts[1])
    live += ended(by_rule["busy"], cuts[1], 420) + ended(by_rule["probe"], cuts[1], 420)
    assert raised(opened) == sorted(live)
    assert raised(opened, tables.SILVER_SHADOW_ALERTS) == ended(by_rule["probe"], cuts[0], cuts[1])
    assert {name for name, *_ in live} == {"pair", "busy", "triple", "probe"}
    held = state(opened).by_entity
    assert [*held] == ["place", "terminal"]
    landed = [paid for part in parts for paid in part]
    assert held["terminal"]["rows_without_key"] == sum(paid.terminal_id is None for paid in landed)
    assert held["place"]["rows_without_key"] == sum(None in (paid.terminal_id, paid.zone) for paid in landed)


@pytest.mark.long
def test_a_late_row_is_quarantined_once_and_a_backtest_raises_the_same(lake: Any) -> None:
    sql = (
        "SELECT * FROM transactions MATCH_RECOGNIZE (PARTITION BY terminal_id, amount ORDER BY dt "
        "MEASURES COUNT(*) AS many PATTERN (A B) DEFINE B AS B.accountId <> A.accountId)"
    )
    query = {"kind": "pattern", "name": "same_amount", "sql": sql}
    opened = lake(
        rules=[PAIR, BUSY, PROBE, query],
        columns=COLUMNS,
        entities=ENTITIES,
        ordering="event_time",
        max_out_of_orderness="1 minute",
        buckets=2,
    )
    rows = numbered(history(9, 300))
    detected(opened, [*rows, end_of(rows, 0)])
    late = Paid(Row("1", MARCH_7, 0.5, "late", 0), "17", 1)
    detected(opened, [late, end_of([late._replace(row=late.row._replace(time=rows[-1].row.time + SECOND))], 1)])
    quarantined = opened.store.query(
        f"SELECT _source_file, reasons FROM {tables.SILVER_QUARANTINE.name}", tables.SILVER_QUARANTINE
    ).to_pylist()
    assert quarantined == [{"_source_file": "late", "reasons": ["late"]}]
    name = opened.name_of(tables.SILVER_TRANSACTIONS)
    opened.spark.sql(f"DELETE FROM {name} WHERE source = 'late'")
    live = opened.store.query(f"SELECT * FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS).to_pylist()
    assert {row["rule"]: row["entity"] for row in live} == {
        "pair": "terminal",
        "busy": "place",
        "probe": "terminal",
        "same_amount": "terminal",
    }
    for each in opened.settings.rules:
        report, alerts = backtest.backtest(opened, each, None, None)
        tried = sorted((row["entity_key"], row["transaction_ids"]) for row in alerts.toArrow().to_pylist())
        own = [row for row in live if row["rule"] == each.name]
        assert tried == sorted((row["entity_key"], [part["transaction_id"] for part in row["evidence"]]) for row in own)
        assert len(tried) > 3
        assert set(report.samples) <= {row["explanation"] for row in own}
    accounts = {paid.row.position: paid.row.account_id for paid in rows}
    for row in live:
        ids = [int(part["transaction_id"].rpartition("-")[2]) for part in row["evidence"]]
        assert [dict(part)["account_id"] for part in row["evidence_columns"]] == [accounts[id_] for id_ in ids]
        assert json.dumps(row["entity_key"]) and row["explanation"].startswith(row["entity"].capitalize())
