"""A model in a lake that needs two people: no version scores until another person agrees, not even the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fraudlake.approvals import gate, log
from fraudlake.lake import open_lake
from fraudlake.model import champion
from fraudlake.model.registry import NoModelError, Registry, published_champion
from fraudlake.process import host
from fraudlake.settings import Settings
from fraudlake_desk import effects
from tests import plain_lake
from tests.model.test_store import register

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    """A lake with two versions of a model, and no champion."""
    opened = open_lake(Settings(lake=plain_lake.make(tmp_path / "lake"), approvals=2))
    assert [register(opened, "fraudlake"), register(opened, "fraudlake")] == ["1", "2"]
    return opened


def ask(lake: Any, number: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(host, "system_user", lambda: "ann")
    with pytest.raises(gate.WaitingError, match=f"model version {number}: request . waits"):
        champion.make_champion(lake, Registry.of(lake), number, "it beats the other")
    return max(log.read(lake.store))


def approve(lake: Any, number: int) -> str:
    return gate.approve(lake.store, number, "bob", "seen", effects.find("promotion"), lake).status


def number_of(lake: Any) -> str | None:
    present = Registry.of(lake).champion()
    return present and present.number


def test_a_version_scores_when_another_person_agrees_and_goes_the_same_way(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ask(lake, "1", monkeypatch)
    assert number_of(lake) is None and published_champion(lake) is None
    with pytest.raises(NoModelError, match="version 2 does not score yet: approve its request"):
        Registry.of(lake).required_champion()
    assert approve(lake, first) == "carried out"
    published = published_champion(lake)
    assert published is not None and (number_of(lake), published.number) == ("1", "1")
    assert log.find(lake.store, first).changes == [("champion", None, "1")]
    assert log.find(lake.store, first).event.person == "ann"
    approve(lake, ask(lake, "2", monkeypatch))
    assert number_of(lake) == "2"
    with pytest.raises(gate.WaitingError):
        champion.roll_back(lake, "too many alerts")
    assert number_of(lake) == "2"
    assert approve(lake, max(log.read(lake.store))) == "carried out"
    assert number_of(lake) == "1"


def test_a_promotion_over_another_champion_than_that_of_the_request_is_refused(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ask(lake, "1", monkeypatch), ask(lake, "2", monkeypatch)
    approve(lake, second)
    with pytest.raises(gate.UsageError, match="was asked when champion was missing, and now it is 2"):
        approve(lake, first)


def test_a_promotion_that_was_killed_before_it_was_published_is_completed(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = ask(lake, "1", monkeypatch)
    log.decide(lake.store, number, "approved", "bob", "seen")
    Registry.of(lake).promote("1")
    assert gate.carry_out(lake.store, number, "ann", effects.find("promotion"), lake).status == "carried out"
    published = published_champion(lake)
    assert published is not None and published.number == "1"
