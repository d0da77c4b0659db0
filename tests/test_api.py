"""``import fraudlake`` in a program: what it offers over the main job's lake, and what it says to mistakes."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import fraudlake
from fraudlake import tables
from fraudlake.errors import MissingLakeError, UsageError

pytestmark = pytest.mark.stream

TUTORIAL = {"kind": "small_then_large", "name": "tutorial", "small_below": 1, "large_above": 500, "within": "1 minute"}


def test_a_program_opens_a_lake_and_asks_for_its_status(main_job: Any) -> None:
    lake = fraudlake.open_lake(lake=main_job.root)
    found = fraudlake.status(lake)
    assert found.gaps == []
    assert found.as_dict()["alerts"] == 2776


def test_an_alert_is_traced_to_the_file_that_flink_wrote(main_job: Any) -> None:
    lake = fraudlake.open_lake(lake=main_job.root)
    first = lake.read(tables.SILVER_ALERTS).orderBy("timestamp").first()
    story = fraudlake.explain(lake, first["alert_id"])
    assert [origin.transaction["amount"] for origin in story.transactions] == [0.5, 600.0]
    assert all(origin.landed["file"].startswith("tutorial_int96/") for origin in story.transactions)


def test_a_rule_in_the_form_of_the_settings_is_backtested(main_job: Any) -> None:
    """Flink's own detector flags 2,773 transactions of the two days, and three of the tutorial's."""
    lake = fraudlake.open_lake(lake=main_job.root)
    report, alerts = fraudlake.backtest(lake, TUTORIAL, date(2026, 3, 7))
    assert (report.alerts, alerts.count()) == (2773, 2773)
    assert fraudlake.backtest(lake, TUTORIAL, last=date(2026, 3, 6))[0].alerts == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"within": "soon"}, "rule.within = 'soon': "),
        ({"entity": "device"}, "tutorial: entity = 'device' is not declared"),
        ({"kind": "guess"}, "rule"),
    ],
)
def test_a_rule_that_is_not_valid_is_refused_in_one_line(main_job: Any, change: dict[str, str], said: str) -> None:
    lake = fraudlake.open_lake(lake=main_job.root)
    with pytest.raises(UsageError) as refused:
        fraudlake.backtest(lake, TUTORIAL | change)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_a_lake_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(MissingLakeError):
        fraudlake.open_lake(lake=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_package_has_no_other_attribute() -> None:
    name = "scored"
    with pytest.raises(AttributeError, match="module fraudlake has no attribute scored"):
        getattr(fraudlake, name)
