"""Rules at the desk: the days on which a moved limit is tried."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from fraudlake.lake.local_store import LocalStore
from fraudlake.review.window import Window
from fraudlake.settings import Settings
from fraudlake_desk import rules
from tests.desk import small_lake


def test_days_in_the_future_are_not_the_latest_ones(tmp_path: Path) -> None:
    root = small_lake.make(tmp_path / "lake")
    paid = small_lake.transactions()[0]
    small_lake.write(root, small_lake.SILVER, [{**paid, "transaction_id": "ahead", "date": date(9999, 12, 31)}])

    assert rules.latest_days(LocalStore(Settings(lake=root)), 25) == Window(small_lake.DAY, small_lake.DAY)
