"""Forget: an independent scan of every byte finds nothing of two accounts, and the streams continue exactly once."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake import tables
from fraudlake.bronze import fast_alerts, parquet
from fraudlake.detection.list_entries import Entry
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.forget import plan, removal, stream_state, table_rows
from fraudlake.gold import account_daily, account_tiles, detector_agreement
from fraudlake.lake import Lake, chain, checkpoint
from fraudlake.lake.local_store import LocalStore
from fraudlake.operations.status import status
from fraudlake.review import cases, event_log, item_state
from fraudlake.review.event import Event
from fraudlake.streams import aggregate, deliver, detect, ingest, refine, stream
from fraudlake_desk.queue import queue
from fraudlake_desk.review import actions
from fraudlake_tools import simulator

pytestmark = pytest.mark.stream

NAMED, NUMBERED, OTHER = "ACCT-77-zeta", "17", "ACCT-88-eta"
NOON = datetime(2026, 1, 1, 12)
TRAFFIC = simulator.Traffic(accounts=20, rate=1 / 30, fraud=0.2, bad=0.03, seed=3, columns=False)
SCHEMA = simulator.SCHEMA


def rows(*values: tuple[float, str | None, float]) -> pa.Table:
    """Rows of a landed file: seconds after noon, account, amount."""
    seconds, accounts, amounts = zip(*values, strict=True)
    times = [NOON + timedelta(seconds=second) for second in seconds]
    return pa.table([times, accounts, amounts, [False] * len(values)], SCHEMA.names).cast(SCHEMA)


def run(lake: Any) -> None:
    """Run what needs no model."""
    for step in (ingest.streams, refine.streams, detect.streams, aggregate.streams):
        stream.run(lake, step(lake), "available-now")
    stream.run(lake, deliver.streams(lake, "file"), "available-now")


def traces(folder: Path, account: str) -> set[str]:
    """Search all files for an account: cells of parquet files, and the bytes of the others."""
    is_named = not account.isdigit()
    # A number is also part of other numbers, so that it must be quoted.
    text = re.compile((re.escape(account) if is_named else rf'"{account}\\?"').encode())
    files = set()
    for file in (path for path in folder.rglob("*") if path.is_file()):
        parts = [file.read_bytes()]
        if not is_named:  # a commit may have taken so many milliseconds
            parts = [re.sub(rb'"operationMetrics":\{[^}]*\}', b"", parts[0])]
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                parts += [archive.read(name) for name in archive.namelist()]
        if parts[0].startswith(b"PAR1"):
            # A number would be found by chance in the bytes; footers and statistics are not compressed.
            parts = parts if is_named else []
            cells = {cell for row in pq.read_table(file, partitioning=None).to_pylist() for cell in leaves(row)}
            parts += [cell.encode() for cell in cells]
            if account in cells:
                parts.append(f'"{account}"'.encode())
        if any(text.search(part) for part in parts):
            files.add(str(file.relative_to(folder)))
    return files


def leaves(value: Any) -> Iterator[str]:
    """The texts of a row, nested ones included."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, str):
        yield value


def suppress(lake: Lake) -> None:
    """Suppress a rule for each account, with the reason that it is like another one, and an alert of each."""
    schema = tables.SILVER_LIST_ENTRIES.schema
    until = NOON + timedelta(days=1)
    entries = [
        Entry(
            account, "suppressed", "quiet", "account", account, account, NOON, until, f"as account {NAMED}", "ann", NOON
        ).added
        for account in (NAMED, NUMBERED, OTHER)
    ]
    lake.writer(tables.SILVER_LIST_ENTRIES).write(pa.Table.from_pylist(entries, schema), "append")
    held = [
        {"alert_id": account, "rule": "quiet", "account_id": account, "entity": "account", "entity_key": account}
        for account in (NAMED, NUMBERED, OTHER)
    ]
    schema = tables.SILVER_SUPPRESSED_ALERTS.schema
    lake.writer(tables.SILVER_SUPPRESSED_ALERTS).write(pa.Table.from_pylist(held, schema), "append")


def fast_alert_messages() -> pa.Table:
    """Rows of bronze_fast_alerts: an alert of each account, and a message that is none and names one."""
    alert = '{"data": {"alert_id": "%s", "rule": "r", "account_id": "%s", "transaction_id": "t", "timestamp": 0, '
    alert += '"amount": 900, "kind": "threshold", "evidence": [{"transaction_id": "t", "timestamp": 0}]}, '
    alert += '"transactionpartition": 0, "transactionoffset": %d, "transactiontime": 0}'
    values = [alert % (number, account, number) for number, account in enumerate((NAMED, NUMBERED, OTHER))]
    values.append(f'{{"of": "{NAMED}"}}')
    columns = [values, ["fast"] * 4, [0] * 4, range(4), [NOON] * 4]
    types = [pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("ms", "UTC")]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, list(fast_alerts.KAFKA_COLUMNS))
    return pa.Table.from_batches(fast_alerts.read(iter([batch])))


def others(lake: Any, table: tables.Table) -> Counter[tuple[Any, ...]]:
    """Rows of a table that are of neither account, without the times at which they were made."""
    columns = [name for name in lake.table(table).column_names if name not in ("quarantined_at", "detected_at")]
    account = "accountId" if "accountId" in columns else "account_id"
    # Not by delta-rs: it takes times that Spark wrote for nanoseconds, which wrap around after the year 2262.
    rows = [row.asDict() for row in lake.read(table).select(*columns).collect()]
    return Counter(
        tuple(map(str, row.values()))
        for row in rows
        if row[account] not in (NAMED, NUMBERED)
        and NAMED not in str(row.get("_rescued_data"))
        and any(row[name] is not None for name in tables.PAYLOAD if name in columns)  # else it was made null
    )


@pytest.fixture
def open_lake(lake: Any, tmp_path: Path) -> Any:
    def open_() -> Any:
        opened = lake(buckets=4, shuffle_partitions=2, delivery_folder=str(tmp_path / "delivered"))
        # So that the bytes of the state's files can be searched.
        opened.spark.conf.set("spark.sql.streaming.stateStore.rocksdb.compression", "none")
        return opened

    return open_


FOLLOWED = (
    tables.BRONZE_TRANSACTIONS,
    tables.BRONZE_FAST_ALERTS,
    tables.SILVER_TRANSACTIONS,
    tables.SILVER_QUARANTINE,
    tables.SILVER_ALERTS,
    tables.SILVER_DELIVERIES,
    account_tiles.TABLE,
    account_daily.TABLE,
)


def cut(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


CUTS = (
    (table_rows, "_empty_landed_rows"),
    (checkpoint.Checkpoint, "erase_past_state"),
)


@pytest.mark.long
@pytest.mark.parametrize("cuts", [(), CUTS], ids=["at once", "every call is cut"])
def test_two_accounts_leave_no_trace_and_the_streams_go_on(
    open_lake: Any, landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: tuple[tuple[Any, str], ...]
) -> None:
    simulator.simulate(landing, TRAFFIC, rows=400, file_rows=200)
    # An alert of each account, an amount that no rule allows, and a flag that is open at the end.
    mine = rows(
        *((second, account, 0.5) for second, account in ((0, NAMED), (1, NUMBERED), (2, OTHER))),
        *((second, account, 900.0) for second, account in ((5, NAMED), (6, NUMBERED), (7, OTHER))),
        *((second, account, -1.0) for second, account in ((10, NAMED), (11, OTHER))),
    )
    parquet.write_own(mine, landing / "part-own-0.parquet")
    late = 86_400 * 3
    flags = rows(*((late + second, account, 0.25) for second, account in ((0, NAMED), (1, NUMBERED), (2, OTHER))))
    parquet.write_own(flags, landing / "part-own-1.parquet")
    rescued = rows((20, None, 5.0), (21, OTHER, 5.0)).append_column("note", pa.array([NAMED, "nothing"]))
    pq.write_table(rescued, landing / "part-flink-1.parquet")
    (landing / "part-flink-0.parquet").write_text(f"damaged, of {NAMED}")
    lake = open_lake()
    run(lake)
    lake.spark.sql(
        "INSERT INTO silver_verdicts SELECT transaction_id, true, 'ann', "
        f"if(account_id = '{OTHER}' AND amount = 900, 'with {NAMED}', account_id), timestamp, date "
        f"FROM silver_transactions WHERE account_id IN ('{NAMED}', '{OTHER}')"
    )
    lake.writer(tables.BRONZE_FAST_ALERTS).write(fast_alert_messages(), "append")
    review_cases(lake)
    suppress(lake)
    before = {table.name: others(lake, table) for table in FOLLOWED}
    versions = {table.name: lake.store.version(table) for table in FOLLOWED}
    assert status(lake).gaps == []
    for account in (NAMED, NUMBERED):
        left = traces(tmp_path, account)
        assert {path.split("/")[1] for path in left if path.startswith("lake/")} >= {"tables", "landing"}
        assert {path.split("/")[0] for path in left} >= {"lake", "delivered"}
    assert any("/state/" in path for path in traces(tmp_path, NAMED))
    assert any("_delta_log" in path for path in traces(tmp_path, NAMED))

    planned = plan.plan(lake, [NAMED, NUMBERED])
    assert planned.rows[NAMED]["bronze_transactions"] == 5
    assert planned.rows[NAMED]["silver_quarantine"] == planned.rows[NAMED]["bronze_fast_alerts"] == 2
    assert any("3 messages of the topic fast" in sentence for sentence in planned.stays)
    assert planned.rows[NAMED]["silver_alerts"] == planned.rows[NAMED]["delivered files"] == 1
    assert planned.rows[NAMED]["gold_cases"] == planned.rows[NAMED]["silver_review_events"] == 1
    assert {table.name: lake.store.version(table) for table in FOLLOWED} == versions

    for owner, name in cuts:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, cut)
            with pytest.raises((KeyboardInterrupt, FraudlakeError)):
                removal.forget(lake, [NAMED, NUMBERED])
    result = removal.forget(open_lake(), [NAMED, NUMBERED])

    assert result.traces == []
    flinks = {"lake/landing/part-flink-0.parquet", "lake/landing/part-flink-1.parquet"}
    assert any("part-flink-0.parquet, part-flink-1.parquet" in sentence for sentence in result.stays)
    assert traces(tmp_path, NAMED) == flinks
    assert traces(tmp_path, NUMBERED) == set()
    lake = open_lake()
    assert {table.name: others(lake, table) for table in FOLLOWED} == before
    assert status(lake).gaps == []
    gone, event, merged = sorted(
        lake.store.rows(tables.SILVER_REVIEW_EVENTS).to_pylist(), key=lambda row: row["number"]
    )
    assert (gone["kind"], gone["analyst"], gone["item_id"], gone["transaction_ids"]) == ("erased", None, None, None)
    assert (event["account_id"], event["note"]) == (OTHER, "erased: it named an account that was forgotten")
    assert len(event["transaction_ids"]) == 1
    assert (merged["account_id"], merged["reason"], merged["merged_into"]) == (OTHER, "one thief", None)
    (entry,) = lake.store.rows(tables.SILVER_LIST_ENTRIES).to_pylist()
    assert (entry["account_id"], entry["reason"]) == (OTHER, "erased: it named an account that was forgotten")
    reasons = lake.store.rows(tables.SILVER_VERDICTS)["reason"].to_pylist()
    assert sorted(set(reasons)) == [OTHER, "erased: it named an account that was forgotten"]
    assert lake.store.rows(tables.SILVER_SUPPRESSED_ALERTS)["account_id"].to_pylist() == [OTHER]
    verified = chain.verify(event_log.read_events(LocalStore(lake.settings)))
    assert (verified.events, verified.erased, verified.faults) == (3, 3, [])
    bronze = lake.read(tables.BRONZE_TRANSACTIONS).select(*tables.PAYLOAD).collect()
    assert status(lake).rows.reasons["forgotten"] == sum(all(value is None for value in row) for row in bronze)
    audited = {row["table_name"]: row for row in audit(lake, NAMED)}
    assert audited["bronze_transactions"]["rows"] == 5
    emptied = lake.read(tables.BRONZE_FAST_ALERTS).orderBy("_offset").select("_offset", "value", "account_id").collect()
    assert [(row["_offset"], row["value"] is None, row["account_id"]) for row in emptied] == [
        (0, True, None),
        (1, True, None),
        (2, False, OTHER),
        (3, True, None),
    ]
    assert all(row["finished_at"] for row in audited.values())
    with pytest.raises(UsageError, match="it was forgotten at"):
        removal.forget(lake, [NAMED])

    # The small transactions of all three were before: only the one that nobody forgot raises an alert.
    parquet.write_own(
        rows(*((late + 30 + second, account, 700.0) for second, account in ((0, NAMED), (1, NUMBERED), (2, OTHER)))),
        landing / "part-own-3.parquet",
    )
    run(lake)
    assert status(lake).gaps == []
    after = {table.name: others(lake, table) for table in FOLLOWED}
    assert len(after["bronze_transactions"]) == len(before["bronze_transactions"]) + 1
    (alert,) = (after["silver_alerts"] - before["silver_alerts"]).elements()
    assert OTHER in alert
    silver = lake.read(tables.SILVER_TRANSACTIONS).collect()
    assert [[row["account_id"] for row in silver].count(account) for account in (NAMED, NUMBERED)] == [1, 1]
    days = Counter(row["date"] for row in silver)
    agreement = {row["date"]: row["transactions"] for row in lake.read(detector_agreement.TABLE).collect()}
    assert agreement == days


def review_cases(lake: Any) -> None:
    """Queue the cases, and decide on those of two accounts; one names the other, into which it is merged then."""
    store = LocalStore(lake.settings)
    queue.build(
        store,
        lake.store.query(f"SELECT min(date) AS day FROM {tables.GOLD_CASES.name}", tables.GOLD_CASES)["day"][0].as_py(),
    )
    by_account = {row["account_id"]: cases.item(row) for row in cases.listed(store).to_pylist()}
    theirs = by_account[NAMED].transaction_ids
    items = {NAMED: by_account[NAMED], OTHER: by_account[OTHER]}
    items[OTHER] = replace(items[OTHER], transaction_ids=(*theirs, *items[OTHER].transaction_ids))
    note = f"as {NAMED} did"
    for account, item in items.items():
        event_log.record(
            store,
            item,
            account,
            lambda state, item=item, id_=account: actions.decide(item, state, "ann", "unsure", id_, note=note),
        )

    def merged(before: item_state.State) -> Event:
        return actions.relate(items[OTHER], before, "ann", "merged", "merge", "one thief", items[NAMED], before)

    event_log.record(store, items[OTHER], "merge", merged)


def audit(lake: Any, account: str) -> list[Any]:
    """The rows of gold_forgotten of an account, as the documentation says how to find them."""
    rows = lake.read(tables.GOLD_FORGOTTEN).collect()
    salt, iterations = bytes.fromhex(rows[0]["salt"]), rows[0]["iterations"]
    account_hash = hashlib.pbkdf2_hmac("sha256", account.encode(), salt, iterations).hex()
    return [row for row in rows if row["account_hash"] == account_hash]


@pytest.mark.long
def test_an_account_that_is_nowhere_and_a_step_that_is_behind_are_refused(lake: Any, landing: Path) -> None:
    parquet.write_own(rows((0, NAMED, 5.0)), landing / "part-own-0.parquet")
    opened = lake()
    stream.run(opened, ingest.streams(opened), "available-now")
    stream.run(opened, refine.streams(opened), "available-now")
    with pytest.raises(UsageError, match="nobody: not found in"):
        removal.forget(opened, ["nobody"])
    parquet.write_own(rows((1, NAMED, 5.0)), landing / "part-own-1.parquet")
    stream.run(opened, ingest.streams(opened), "available-now")
    with pytest.raises(FraudlakeError, match="refine has not read all of bronze_transactions"):
        removal.forget(opened, [NAMED])
    with opened.exclusive("ingest"), pytest.raises(FraudlakeError, match="already runs 'ingest'"):
        removal.forget(opened, [NAMED])
    assert opened.read(tables.BRONZE_TRANSACTIONS).where(f"accountId = '{NAMED}'").count() == 2


def test_the_state_is_written_anew_until_no_file_of_before_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = {tmp_path / "000008.sst"}
    for left, expected in (([older, set()], set()), ([older] * 9, older)):
        answers = iter(left)
        monkeypatch.setattr(stream_state, "_empty_once", lambda *_, answers=answers: next(answers))
        assert stream_state.empty(None, tmp_path, [NAMED]) == expected
