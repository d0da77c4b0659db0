from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.operations.status import Status, status
from fraudlake.operations.status.alerts import Alerts
from fraudlake.operations.status.model import Model
from fraudlake.operations.status.review import Review
from fraudlake.operations.status.rows import Rows
from fraudlake.operations.status.source import Source
from fraudlake.operations.status.streams import Streams
from fraudlake.operations.status.unfinished import Unfinished
from fraudlake.streams import aggregate, ingest, refine, stream
from tests import plain_lake
from tests.conftest import land_flink, run
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected, land

pytestmark = pytest.mark.stream


def refined(lake: Any, landing: Path) -> Any:
    """A lake that has read the ten rows of Flink's file up to silver."""
    land_flink(landing, "tutorial/int96")
    opened = lake()
    for step in (ingest.streams, refine.streams):
        stream.run(opened, step(opened), "available-now")
    return opened


def behind(lake: Any) -> list[str]:
    return [gap for gap in status(lake).gaps if "behind" in gap]


@pytest.mark.long
def test_a_step_that_has_stopped_shows_as_lag_behind_the_tables_that_it_reads(lake: Any) -> None:
    opened = lake()
    land(opened, [Row("1", MARCH_7, 0.5)])
    assert behind(opened) == []  # no step has begun
    detected(opened, [Row("1", MARCH_7 + SECOND, 600.0, position=1)])
    stream.run(opened, aggregate.streams(opened)[:1], "available-now")
    assert behind(opened) == []

    pair = [Row("2", MARCH_7, 0.5, position=2), Row("2", MARCH_7 + SECOND, 600.0, position=3)]
    detected(opened, pair)
    assert status(opened).streams.lag == {"account_daily": {"silver_transactions": 1, "silver_alerts": 1}}
    assert behind(opened) == [
        "account_daily is 1 commit behind silver_transactions: run 'fraudlake aggregate'",
        "account_daily is 1 commit behind silver_alerts: run 'fraudlake aggregate'",
    ]
    assert status(opened).streams.expiring == {}
    expired = [gap for gap in status(lake(retention=timedelta(0))).gaps if "VACUUM" in gap]
    assert [gap.partition(" on ")[0] for gap in expired] == [
        "account_daily has not read what silver_transactions got",
        "account_daily has not read what silver_alerts got",
    ]
    assert all(gap.endswith("run 'fraudlake aggregate' before VACUUM removes them") for gap in expired)
    opened.spark.sql("OPTIMIZE silver_transactions")
    stream.run(opened, aggregate.streams(opened)[:1], "available-now")
    opened.spark.sql("DELETE FROM silver_transactions WHERE position = 3")
    assert behind(opened) == []


@pytest.mark.long
def test_late_rows_of_a_detector_that_starts_over_are_neither_doubled_nor_left_behind(lake: Any) -> None:
    values = {"ordering": "event_time", "max_out_of_orderness": "10 seconds", "buckets": 2}
    opened = lake(**values)
    detected(opened, [Row("9", MARCH_7 + 100 * SECOND, 20.0)], [Row("1", MARCH_7, 20.0, position=1)])
    assert late(opened) == [1]

    shutil.rmtree(opened.checkpoint("detect").folder)
    opened.spark.sql("DROP TABLE silver_alerts")
    shutil.rmtree(opened.root / "tables" / "silver_alerts")
    again = lake(**values)
    # The rows that are there come in the order of their times, so that none is late.
    detected(again, [Row("9", MARCH_7 + 101 * SECOND, 20.0, position=2)], [Row("1", MARCH_7, 20.0, position=3)])
    assert late(again) == [3]


def late(lake: Any) -> list[int]:
    rows = lake.read(tables.SILVER_QUARANTINE).where("array_contains(reasons, 'late')").collect()
    return sorted(row["_source_row"] for row in rows)


def test_what_is_behind_is_told_with_the_command_that_runs_it_but_for_a_destination_of_alerts_and_new_verdicts() -> (
    None
):
    lags = {
        "deliver_webhook": {"silver_alerts": 2},
        "prediction_quality": {"gold_fraud_predictions": 1, "silver_verdicts": 3},
    }
    one = Status("lake", "landing", {}, Source(), Rows(), Alerts(), Model(), Streams(lag=lags), Unfinished(), Review())
    assert one.gaps == [
        "prediction_quality is 1 commit behind gold_fraud_predictions: run 'fraudlake score'",
    ]


def test_a_replay_that_was_cut_is_the_remedy_for_what_it_has_left_different() -> None:
    again = "fraudlake replay --from 2026-03-07 --to 2026-03-07 --apply"
    landed, rows, cut = Source(landed=10), Rows(bronze=10, silver=6), Unfinished(cut_replay_of_days=again)
    assert Status("lake", "landing", {}, landed, rows, Alerts(), Model(), Streams(), cut, Review()).gaps == [
        f"a replay of days was interrupted: run '{again}', which finishes it",
        f"bronze holds 10 rows but silver and quarantine together 6: run '{again}'",
    ]


def test_late_items_of_the_review_are_told_with_the_oldest_and_its_queue(lake: Any) -> None:
    opened = lake()
    now = datetime.now(UTC)
    first = {"day": date(2026, 3, 7), "item_id": "a", "kind": "drawn", "built_at": now - timedelta(days=5, hours=1)}
    second = {"day": date(2026, 3, 8), "item_id": "b", "kind": "drawn", "built_at": now - timedelta(days=3)}
    third = {"day": date(2026, 3, 9), "item_id": "c", "kind": "drawn", "built_at": now}
    plain_lake.fill(opened.folder, tables.GOLD_REVIEW_QUEUE, first, second, third)
    found = status(opened)
    assert found.gaps == [
        "open for longer than review_limit: 2 items of the review, the oldest for 5 d: decide on them in "
        "'fraudlake desk'; 'fraudlake queue list --day 2026-03-07' has the oldest"
    ]
    assert (found.as_dict()["late_items"], found.as_dict()["oldest_late_item"]) == (2, first["built_at"])

    verdict = {"number": 1, "event_id": "e", "item_id": "a", "kind": "verdict", "verdict": "genuine", "at": now}
    plain_lake.fill(opened.folder, tables.SILVER_REVIEW_EVENTS, {**verdict, "analyst": "ann"})
    assert status(opened).review == Review(1, second["built_at"], second["day"])
    assert status(lake(review_limit=timedelta(days=4))).gaps == []


def test_accounts_whose_removal_was_cut_are_counted(lake: Any) -> None:
    opened = lake()
    gone: list[Any] = [
        {"account_hash": account, "table_name": name} for account in "ab" for name in ("silver", "bronze")
    ]
    plain_lake.fill(
        opened.folder, tables.GOLD_FORGOTTEN, *gone, {"account_hash": "c", "finished_at": datetime.now(UTC)}
    )
    assert status(opened).gaps == [
        "the removal of 2 accounts has not finished: repeat 'fraudlake forget --yes' with the same accounts"
    ]


@pytest.mark.long
def test_rows_that_were_deleted_by_hand_are_named_with_what_brings_them_back(lake: Any, landing: Path) -> None:
    opened = refined(lake, landing)
    assert status(opened).gaps == []
    version = opened.store.version(tables.SILVER_TRANSACTIONS)
    opened.spark.sql("DELETE FROM silver_transactions WHERE account_id = '2'")
    (gap,) = status(opened).gaps
    left = opened.store.count(tables.SILVER_TRANSACTIONS)
    assert gap.startswith(f"bronze holds 10 rows but silver and quarantine together {left}: version {version + 1} of ")
    assert f"'fraudlake restore silver_transactions --version {version} --allow-streams'" in gap
    assert "fraudlake replay --from DAY --to DAY --apply" in gap
    assert "run 'fraudlake refine'" not in gap

    run(opened.root, "restore", "silver_transactions", "--version", str(version), "--allow-streams")
    assert status(opened).gaps == []

    version = opened.store.version(tables.BRONZE_TRANSACTIONS)
    opened.spark.sql("DELETE FROM bronze_transactions WHERE accountId = '2'")
    gaps = status(opened).gaps
    assert gaps[0].startswith(f"10 rows landed and were read, but bronze holds {left}: version {version + 1} of bronze")
    assert all(f"'fraudlake restore bronze_transactions --version {version} --allow-streams'" in gap for gap in gaps)


@pytest.mark.long
def test_a_restore_that_took_rows_away_is_named_with_what_brings_them_back(lake: Any, landing: Path) -> None:
    opened = refined(lake, landing)
    version = opened.store.version(tables.SILVER_TRANSACTIONS)
    run(opened.root, "restore", "silver_transactions", "--version", "0", "--allow-streams")
    (gap,) = status(opened).gaps
    assert f"version {version + 1} of silver_transactions (restore of version 0, " in gap
    assert f"'fraudlake restore silver_transactions --version {version} --allow-streams'" in gap
    run(opened.root, "restore", "silver_transactions", "--version", str(version), "--allow-streams")
    assert status(opened).gaps == []
