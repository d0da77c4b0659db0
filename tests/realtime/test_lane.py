"""From when on the lane's state has all rows that its rules look back to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.settings import Settings
from fraudlake_lane import lane, rules


def of_window(minutes: int, is_without_end: bool = False) -> rules.LaneRules:
    rule = ThresholdRule(name="busy", aggregate="count", window=timedelta(minutes=minutes), above=5)
    return rules.choose([(rule, "live", 1)], is_without_end)


def commit(settings: Settings, chosen: rules.LaneRules) -> None:
    """Leave a checkpoint as a committed batch does."""
    commits = lane.checkpoint(settings, chosen) / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    (commits / "0").touch()


def test_a_state_begins_anew_where_the_longest_window_changes_and_a_restart_remembers_it(tmp_path: Path) -> None:
    settings, short, long = Settings(lake=tmp_path), of_window(1), of_window(10)
    assert lane.complete_since(settings, short) is None
    commit(settings, short)
    assert lane.complete_since(settings, short) is None

    before = datetime.now(UTC)
    begun = lane.complete_since(settings, long)
    assert begun is not None and begun >= before
    assert lane.complete_since(settings, long) == begun
    again = lane.complete_since(settings, short)
    assert again is not None and again > begun


def test_a_state_that_begins_at_the_topics_end_lacks_what_was_before(tmp_path: Path) -> None:
    settings, chosen = Settings(lake=tmp_path, starting_offsets="latest"), of_window(1)
    first = lane.complete_since(settings, chosen)
    # Nothing was committed, so the next start is at the end again.
    second = lane.complete_since(settings, chosen)
    assert first is not None and second is not None and second > first
    commit(settings, chosen)
    assert lane.complete_since(settings, chosen) == second


def test_rows_that_are_kept_for_good_are_another_state(tmp_path: Path) -> None:
    settings, for_good = Settings(lake=tmp_path), of_window(1, is_without_end=True)
    commit(settings, of_window(1))
    assert lane.checkpoint(settings, for_good) != lane.checkpoint(settings, of_window(1))
    assert lane.complete_since(settings, for_good) is None
    commit(settings, for_good)
    assert lane.complete_since(settings, of_window(60, is_without_end=True)) is None  # it has no windows
