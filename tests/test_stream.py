from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fraudlake import steps, stream, tables
from fraudlake.lake import Lake
from tests.conftest import land_flink

pytestmark = pytest.mark.stream


def test_streams_over_what_is_there_all_come_to_their_end(lake: Callable[..., Lake], landing: Path) -> None:
    land_flink(landing, "tutorial/int96")
    one = lake()
    for step in (steps.ingest, steps.refine, steps.detect):
        stream.run(one, step(one), "available-now")

    # Ten transactions and three alerts.
    done = stream.run(one, steps.aggregate(one), "available-now")
    assert {each.step: each.rows for each in done} == dict.fromkeys(
        ("account_daily", "detector_agreement", "alert_windows"), 13
    )
    assert one.read(tables.GOLD_ACCOUNT_DAILY).count() == 4
    assert one.read(tables.GOLD_DETECTOR_AGREEMENT).count() == 1
    assert one.read(tables.GOLD_ALERT_WINDOWS).count() > 0
