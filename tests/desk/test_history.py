"""History: the events of an item are those of its account, too, however they are read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fraudlake.desk import history, items, review
from tests.desk.local import Payment, fill, open_store


@pytest.mark.parametrize("few", [0, 20_000], ids=["only these", "all"])
def test_the_events_of_an_item_and_of_its_account_are_found(
    tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_FEW", few)
    store = open_store(tmp_path / "lake")
    paid = (("a", "1", 0), ("b", "1", 72), ("c", "2", 0))  # the second case of account 1 is three days after the first
    fill(store, [Payment(name, account, hour=hour, rules=("pair",)) for name, account, hour in paid])
    listed = [items.require(store, f"{name} pair") for name in "abc"]
    for item in listed:
        decide = partial(review.decide, item, analyst="ann", verdict="fraud", event_id=f"of {item.item_id}")
        review.record(store, item, f"of {item.item_id}", decide)
    account = replace(listed[0], item_id="", names=frozenset())
    of = {one.entity_key: [event.event_id for event in history.events(store, one)] for one in (listed[2], account)}
    assert of == {"2": ["of c pair"], "1": ["of a pair", "of b pair"]}
    renamed = replace(listed[2], entity_key="another", names=frozenset({"a pair", "c pair"}))
    assert [event.event_id for event in history.events(store, renamed)] == ["of a pair", "of c pair"]


@pytest.mark.parametrize("few", [0, 20_000], ids=["only these", "all"])
def test_a_lake_without_events_has_none_of_an_item(tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_FEW", few)
    store = open_store(tmp_path / "lake")
    fill(store, [Payment("a", "1", rules=("pair",))])
    assert history.events(store, items.require(store, "a pair")) == []
