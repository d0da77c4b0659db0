"""The desk's pages over a large lake: how long each takes, and when a verdict is visible to others.

usage: python -m benchmarks.desk [FOLDER] [--transactions 5000000] [--rounds 40]

The lake has a month of transactions with scores, in files that are clustered by account as ``optimize`` leaves them,
20,000 alerts in as many cases, and a queue of 100 for each of the last ten days. Pages are asked for as a browser does,
of another case each time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from starlette.testclient import TestClient

from fraudlake import tables
from fraudlake.lake import lake_format
from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import Settings
from fraudlake.tables import Table
from fraudlake_desk.web import server
from fraudlake_desk.web.application import application
from fraudlake_desk.web.role import Role

FIRST, DAYS, ACCOUNTS, TERMINALS, CASES, QUEUE = date(2026, 3, 1), 30, 200_000, 10_000, 20_000, 100
QUEUES = 10
"""Last days that have a queue."""
COLUMNS = '{"terminal_id": {"from": "terminalId", "type": "string"}}'
_NOW = datetime(2026, 3, 31, 6, tzinfo=UTC)


def make(root: Path, transactions: int) -> None:
    """Make the lake, the same each time."""
    lake_format.mark(root)
    random = np.random.default_rng(7)
    settings = Settings(lake=root, columns=COLUMNS, entities='{"terminal": "terminal_id"}')
    silver = tables.with_declared(tables.SILVER_TRANSACTIONS, settings.columns)
    _write(root, tables.SILVER_DEFINITION, {
        "change": [1, 1], "setting": ["columns", "entities"], "author": ["settings"] * 2, "changed_at": [_NOW] * 2,
        "value": [COLUMNS, '{"terminal": ["terminal_id"]}'],
    })  # fmt: skip
    _write(root, tables.BRONZE_TRANSACTIONS, {"dt": pa.array([], pa.timestamp("us", "UTC"))})
    for number in range(DAYS):
        day, rows = FIRST + timedelta(days=number), transactions // DAYS
        accounts = np.sort(random.integers(0, ACCOUNTS, rows))
        begin = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
        times = begin + random.integers(0, 86_400_000_000, rows)
        amounts = np.round(random.lognormal(3.5, 1.2, rows), 2)
        shared: dict[str, Any] = {
            "transaction_id": [f"{number}-{row}" for row in range(rows)],
            "account_id": [f"account-{account:06d}" for account in accounts.tolist()],
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "amount": amounts,
            "label": random.random(rows) < 0.002,
            "date": [day] * rows,
        }
        terminals = [f"terminal-{one}" for one in random.integers(0, TERMINALS, rows).tolist()]
        _write(
            root, silver, {**shared, "source": ["day"] * rows, "position": np.arange(rows), "terminal_id": terminals}
        )
        scored = {"probability": random.beta(1, 30, rows), "model_version": ["1"] * rows, "scored_at": [_NOW] * rows}
        _write(root, tables.GOLD_FRAUD_PREDICTIONS, {**shared, **scored})
    chosen = random.choice(transactions // DAYS, CASES // DAYS, replace=False)
    last = LocalStore(settings)
    for number in range(DAYS):
        day = FIRST + timedelta(days=number)
        ids = ", ".join(f"'{number}-{row}'" for row in sorted(chosen.tolist()))
        where = f"date = DATE '{day}' AND transaction_id IN ({ids})"
        raised = last.query(f"SELECT * FROM {silver.name} WHERE {where} ORDER BY transaction_id", silver)
        _alerts(root, raised)
    for number in range(DAYS - QUEUES, DAYS):
        _queue(root, last, FIRST + timedelta(days=number))


def _alerts(root: Path, rows: pa.Table) -> None:
    """Give each row an alert, which is a case."""
    count, ids = len(rows), [f"alert-{one}" for one in rows["transaction_id"].to_pylist()]
    key = {"entity": ["account"] * count, "entity_key": rows["account_id"], "account_id": rows["account_id"]}
    _write(root, tables.SILVER_ALERTS, {
        **key, "alert_id": ids, "rule": ["large"] * count, "kind": ["threshold"] * count, "rule_version": [1] * count,
        "detected_at": rows["timestamp"], "explanation": ["it is more than usual"] * count,
        **{name: rows[name] for name in ("transaction_id", "timestamp", "amount")},
    })  # fmt: skip
    _write(root, tables.GOLD_CASES, {
        **key, "case_id": ids, "opened_at": rows["timestamp"], "last_alert_at": rows["timestamp"], "date": rows["date"],
        "alerts": [1] * count, "rules": [["large"]] * count, "alert_ids": [[one] for one in ids],
        "accounts": [1] * count,
        "transaction_ids": [[one] for one in rows["transaction_id"].to_pylist()], "amount_at_risk": rows["amount"],
        "detected_at": rows["timestamp"],
    })  # fmt: skip


def _queue(root: Path, store: LocalStore, day: date) -> None:
    """Queue a day's most valuable cases."""
    cases = tables.GOLD_CASES
    where = f"WHERE date = DATE '{day}' ORDER BY amount_at_risk DESC LIMIT {QUEUE}"
    rows = store.query(f"SELECT * FROM {cases.name} {where}", cases)
    same = {name: rows[name] for name in ("case_id", "entity", "entity_key", "account_id", "amount_at_risk")}
    _write(root, tables.GOLD_REVIEW_QUEUE, {
        **same, "item_id": rows["case_id"], "day": [day] * len(rows), "rank": range(1, len(rows) + 1),
        "kind": ["case"] * len(rows), "probability": [0.5] * len(rows), "priority": rows["amount_at_risk"],
        "inclusion_probability": [1.0] * len(rows), "reasons": ["large raised 1 alert"] * len(rows),
        "built_at": [_NOW] * len(rows),
    })  # fmt: skip


def _write(root: Path, table: Table, columns: dict[str, Any]) -> None:
    count = len(next(iter(columns.values())))
    arrays = [
        pa.nulls(count, one.type) if one.name not in columns else _array(columns[one.name], one.type)
        for one in table.schema
    ]
    folder = root / "tables" / table.name
    if not DeltaTable.is_deltatable(str(folder)):
        DeltaTable.create(folder, table.schema, partition_by=list(table.partitioned_by))
    if count:
        write_deltalake(folder, pa.table(arrays, schema=table.schema), mode="append")


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return values.cast(kind)
    return pa.array(values if isinstance(values, np.ndarray) else list(values), kind)


def browse(store: LocalStore, name: str) -> TestClient:
    """Return a browser of somebody who is let in."""
    site, access = server.site_of_one(store, name, Role.ANALYST, ("127.0.0.1", 1))
    browser = TestClient(application(site), base_url="http://127.0.0.1:1")
    browser.get(f"/?token={access.token}")
    return browser


def measure(what: str, rounds: int, ask: Callable[[int], Any]) -> None:
    """Print the median and the 95th percentile of the seconds that a question takes."""
    seconds = []
    for number in range(rounds):
        begun = time.perf_counter()
        answer = ask(number)
        seconds.append(time.perf_counter() - begun)
        assert answer.status_code == 200, answer.text
    p95 = statistics.quantiles(seconds, n=20)[-1]
    print(f"{what:<24} p50 {statistics.median(seconds) * 1000:6.0f} ms   p95 {p95 * 1000:6.0f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--transactions", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    root = given.folder or Path(tempfile.mkdtemp(prefix="fraudlake-desk-"))
    if not (root / "lake.json").exists():
        begun = time.perf_counter()
        make(root, given.transactions)
        print(f"made {given.transactions:,} transactions in {root} ({time.perf_counter() - begun:.0f} s)", flush=True)
    store = LocalStore(Settings(lake=root))
    anna, bert = browse(store, "anna"), browse(store, "bert")
    queue = tables.GOLD_REVIEW_QUEUE
    items = store.query(f"SELECT item_id FROM {queue.name} ORDER BY day DESC, rank", queue)["item_id"].to_pylist()
    measure("queue", given.rounds, lambda number: anna.get("/"))
    measure("case", given.rounds, lambda number: anna.get(f"/items/{items[number % len(items)]}"))
    measure("rules", given.rounds, lambda number: anna.get("/rules"))
    measure("health", given.rounds, lambda number: anna.get("/health"))

    def decide(number: int) -> Any:
        item = items[number % len(items)]
        page = anna.get(f"/items/{item}").text
        fields = {name: page.partition(f'name="{name}" value="')[2].partition('"')[0] for name in ("form", "event_id")}
        begun = time.perf_counter()
        anna.post(f"/items/{item}/verdict", data={**fields, "verdict": "genuine"}, follow_redirects=False)
        answer = bert.get(f"/items/{item}")
        assert "by anna" in answer.text
        visible.append(time.perf_counter() - begun)
        return answer

    visible: list[float] = []
    measure("case, verdict, other's", given.rounds, decide)
    print(f"a verdict is on another's page after {statistics.quantiles(visible, n=20)[-1] * 1000:.0f} ms (p95)")


if __name__ == "__main__":
    main()
