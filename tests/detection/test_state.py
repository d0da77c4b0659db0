from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fraudlake.detection.state import state
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected

pytestmark = pytest.mark.stream


def test_a_stream_that_never_ran_holds_nothing(lake: Any) -> None:
    snapshot = state(lake())
    assert (snapshot.open_flags, snapshot.waiting_rows, snapshot.watermark, snapshot.bytes_on_disk) == (0, 0, None, 0)


def test_open_flags_are_counted_by_age(lake: Any) -> None:
    opened = lake()
    flags = [Row("1", MARCH_7, 0.5, position=0), Row("2", MARCH_7 + 95 * SECOND, 0.5, position=1)]
    cleared = [Row("3", MARCH_7 + 99 * SECOND, 0.5, position=2), Row("3", MARCH_7 + 100 * SECOND, 20.0, position=3)]
    detected(opened, flags + cleared)
    snapshot = state(opened)
    assert snapshot.open_flags == 2
    assert snapshot.flags_by_age == {"up to 10 s": 1, "up to 60 s": 0, "up to 600 s": 1, "up to 3600 s": 0, "older": 0}
    assert snapshot.newest == datetime(2026, 3, 7, 0, 1, 35, tzinfo=UTC)
    assert snapshot.bytes_on_disk > 0


def test_waiting_rows_and_the_watermark_are_reported(lake: Any) -> None:
    opened = lake(ordering="event_time", max_out_of_orderness="10 seconds")
    detected(opened, [Row(str(i), MARCH_7 + i * SECOND, 20.0, position=i) for i in range(31)])
    snapshot = state(opened)
    assert snapshot.watermark == datetime(2026, 3, 7, 0, 0, 20, tzinfo=UTC)
    assert snapshot.waiting_rows == 11
    assert snapshot.open_flags == 0


@pytest.mark.long
def test_state_shrinks_back_when_100_000_accounts_have_gone_by(lake: Any) -> None:
    opened = lake()
    crowd = [Row(str(i), MARCH_7 + i, 0.5, position=i) for i in range(100_000)]
    detected(opened, crowd)
    full = state(opened).open_flags
    later = [Row(f"x{i}", MARCH_7 + 3600 * SECOND, 20.0, "part-1", i) for i in range(200)]
    detected(opened, later)
    assert full == 100_000
    assert state(opened).open_flags == 0
