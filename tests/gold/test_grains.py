"""Aggregates at other grains than an account's day follow their sources through the real streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake.gold import gold_tables
from fraudlake.lake import contents
from fraudlake.lake.stream_notes import StreamNotes
from fraudlake.operations import retention
from fraudlake.operations.rebuild import rebuild
from fraudlake.streams import aggregate, detect, ingest, refine, stream
from tests import plain_lake, transactions
from tests.gold import account_hourly, merchant_hourly
from tests.oracle import HOUR, Row
from tests.transactions import MARCH_7 as MIDNIGHT

pytestmark = pytest.mark.stream

MARCH_7, MARCH_8 = date(2026, 3, 7), date(2026, 3, 8)
MERCHANT = {"merchant_id": {"from": "merchantId", "type": "string"}}
FROM_MARCH_8 = f"{(datetime.now(UTC).date() - MARCH_8).days}d"
"""The limit that lets the rows of 7 March leave."""


class Payment(NamedTuple):
    time: str
    account: str
    amount: float
    merchant: str | None

    @property
    def hour(self) -> str:
        return f"{self.time[:13]}:00:00"


FRAUD = [Payment("2026-03-07 12:59:50", "1", 0.5, "m1"), Payment("2026-03-07 13:00:10", "1", 600.0, "m1")]
OTHERS = [
    Payment("2026-03-07 12:10:00", "1", 20.0, None),
    Payment("2026-03-07 12:20:00", "2", 20.0, None),
    Payment("2026-03-08 12:00:00", "1", 20.0, "m2"),
]
LATE_FRAUD = [Payment("2026-03-07 12:30:00", "2", 0.5, None), Payment("2026-03-07 12:30:01", "2", 700.0, "m1")]


def land(folder: Path, name: str, payments: Iterable[Payment]) -> None:
    times, accounts, amounts, merchants = (list(column) for column in zip(*payments, strict=True))
    columns = {
        "dt": pa.array([datetime.fromisoformat(time).replace(tzinfo=UTC) for time in times], pa.timestamp("us", "UTC")),
        "accountId": accounts,
        "amount": amounts,
        "alert": [False] * len(times),
        "merchantId": pa.array(merchants, pa.string()),
    }
    pq.write_table(pa.table(columns), folder / name)


def take(lake: Any) -> None:
    for step in (ingest.streams, refine.streams, detect.streams):
        stream.run(lake, step(lake), "available-now")
    stream.run(lake, aggregate.streams(lake), "available-now")


def expected(payments: Iterable[Payment], alerted: Iterable[Payment]) -> tuple[Counter[Any], Counter[Any]]:
    """Transactions by account hour and by merchant hour; an account hour's alerts are a part of its group."""
    rows, raised = list(payments), Counter((payment.account, payment.hour) for payment in alerted)
    by_account = Counter((payment.account, payment.hour) for payment in rows)
    return (
        Counter({(*group, raised[group]): count for group, count in by_account.items()}),
        Counter((payment.merchant, payment.hour) for payment in rows),
    )


def stored(lake: Any) -> tuple[Counter[Any], Counter[Any]]:
    accounts = lake.store.rows(account_hourly.TABLE).to_pylist()
    merchants = lake.store.rows(merchant_hourly.TABLE).to_pylist()
    groups = [(row["account_id"], f"{row['hour']:%F %T}", row["alerts"]) for row in accounts]
    assert len(groups) == len(set(groups))
    return (
        Counter(dict(zip(groups, (row["transactions"] for row in accounts), strict=True))),
        Counter({(row["merchant_id"], f"{row['hour']:%F %T}"): row["transactions"] for row in merchants}),
    )


@pytest.mark.long
def test_an_aggregate_that_comes_later_has_all_days_and_follows(
    lake: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake()
    early = [Row("1", MIDNIGHT + hour * HOUR, 1.0, position=hour) for hour in (0, 1, 30)]
    transactions.land(opened, early)
    stream.run(opened, aggregate.streams(opened), "available-now")

    monkeypatch.setattr(gold_tables, "GROUPED", (*gold_tables.GROUPED, account_hourly.AGGREGATE))
    monkeypatch.setattr(contents, "TABLES", (*contents.TABLES, account_hourly.TABLE))

    def hours(lake: Any) -> dict[str, int]:
        rows = lake.store.rows(account_hourly.TABLE).to_pylist()
        return {f"{row['hour']:%d %H}": row["transactions"] for row in rows}

    opened = lake()
    (shared,) = aggregate.streams(opened)
    with monkeypatch.context() as killed, pytest.raises(OSError, match="killed"):
        killed.setattr(StreamNotes, "note_also_writes", Mock(side_effect=OSError("killed")))
        stream.run(opened, [shared], "available-now")
    assert [done.batches for done in stream.run(opened, [shared], "available-now")] == [0]
    assert hours(opened) == {"07 00": 1, "07 01": 1, "08 06": 1}

    transactions.land(opened, [Row("1", MIDNIGHT, 1.0, "late")])
    stream.run(opened, aggregate.streams(opened), "available-now")
    assert hours(opened) == {"07 00": 2, "07 01": 1, "08 06": 1}


@pytest.fixture
def with_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more aggregates, as two modules of ``gold/`` would be."""
    added = (account_hourly.AGGREGATE, merchant_hourly.AGGREGATE)
    monkeypatch.setattr(gold_tables, "GROUPED", (*gold_tables.GROUPED, *added))
    monkeypatch.setattr(contents, "TABLES", (*contents.TABLES, *(one.table for one in added)))


@pytest.mark.long
@pytest.mark.usefixtures("with_hours")
def test_hours_follow_late_rows_a_repeated_micro_batch_a_rebuild_and_retention(
    lake: Callable[..., Any], landing: Path
) -> None:
    opened = lake(columns=MERCHANT)
    land(landing, "part-a-0", [*FRAUD, *OTHERS])
    take(opened)
    assert stored(opened) == expected([*FRAUD, *OTHERS], [FRAUD[1]])

    land(landing, "part-a-1", LATE_FRAUD)
    take(opened)
    rows, alerted = [*FRAUD, *OTHERS, *LATE_FRAUD], [FRAUD[1], LATE_FRAUD[1]]
    assert stored(opened) == expected(rows, alerted)

    for step in ("account_daily", "merchant_hourly"):  # as if it had been killed before it noted its micro-batch
        latest = max((opened.checkpoints / step / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        latest.unlink()
        latest.with_name(f".{latest.name}.crc").unlink(missing_ok=True)
        assert opened.checkpoint(step).pending_batch() is not None
    take(opened)
    assert stored(opened) == expected(rows, alerted)

    noon = datetime(2026, 3, 7, 12, tzinfo=UTC)
    nobody = {"hour": noon, "date": MARCH_7, "transactions": 3}
    plain_lake.fill(opened.folder, account_hourly.TABLE, {**nobody, "account_id": "9", "alerts": 1})
    plain_lake.fill(opened.folder, merchant_hourly.TABLE, {**nobody, "merchant_id": "m9"})
    opened.spark.sql("DELETE FROM gold_merchant_hourly WHERE merchant_id IS NULL")
    rebuild(opened, MARCH_7, MARCH_7, apply=True)
    assert stored(opened) == expected(rows, alerted)

    limited = lake(columns=MERCHANT, row_retention={"silver_transactions": FROM_MARCH_8}, max_idle=FROM_MARCH_8)
    assert retention.remove_old_rows(limited)["silver_transactions"] == 6
    newer = Payment("2026-03-08 12:00:30", "1", 20.0, None)
    land(landing, "part-a-2", [Payment("2026-03-07 12:00:00", "1", 20.0, "m1"), newer])
    take(limited)
    assert stored(limited) == expected([*rows, newer], alerted)
