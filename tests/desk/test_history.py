"""History: which payments are those of an item, and which are of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log, items
from fraudlake.review.window import Window
from fraudlake.settings import Settings
from fraudlake_desk.lookup import history
from fraudlake_desk.lookup.history import History, Share
from fraudlake_desk.review import actions
from tests.desk import local, small_lake

ABOUT = Window(small_lake.DAY, small_lake.DAY)
TERMINAL = {"terminal": ("terminal_id",)}


def open_store(root: Path, entities: Mapping[str, Sequence[str]]) -> LocalStore:
    store = LocalStore(Settings(lake=root))
    store.settings = store.settings.defined({"entities": entities})
    return store


def of_terminal(root: Path, entities: Mapping[str, Sequence[str]]) -> tuple[History, list[Share]]:
    """The history of a case of T0, and what others did."""
    raised = small_lake.add_terminal_case(small_lake.make(root))
    store = open_store(root, entities)
    item = items.require(store, "busy 2-4")
    known = history.read_history(store, item, ABOUT, 14, [alert["alert_id"] for alert in raised])
    return known, history.shared(store, item, ABOUT, 14)


def paid_by(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({row["account_id"] for row in rows})


def test_others_are_neither_accounts_of_the_case_nor_payments_with_its_key(tmp_path: Path) -> None:
    """All payments are from one file, so that the entity ``file`` has one key; accounts of even numbers pay at T0."""
    _, shares = of_terminal(tmp_path / "lake", {**TERMINAL, "file": ("source",)})

    (share,) = shares
    assert (share.entity, share.key) == ("file", {"source": "day.parquet"})
    assert (share.accounts, share.transactions) == (5, 25)
    others = [row for row in small_lake.transactions() if row["terminal_id"] == "T1"]
    assert sorted(one["account_id"] for one in share.named) == paid_by(others)
    assert share.labelled == sum(row["label"] for row in others)


def test_a_payment_without_the_key_of_the_case_is_of_others(tmp_path: Path) -> None:
    last = small_lake.transactions()[-1]
    keyless = {**last, "transaction_id": "keyless", "account_id": "B", "terminal_id": None}
    small_lake.make(tmp_path / "lake")
    small_lake.write(tmp_path / "lake", small_lake.SILVER, [keyless])
    small_lake.add_terminal_case(tmp_path / "lake")
    store = open_store(tmp_path / "lake", {**TERMINAL, "file": ("source",)})

    (share,) = history.shared(store, items.require(store, "busy 2-4"), ABOUT, 14)

    assert (share.accounts, share.transactions) == (6, 26)


def test_a_case_of_an_entity_that_is_not_declared_any_more_has_the_payments_of_its_accounts(tmp_path: Path) -> None:
    known, _ = of_terminal(tmp_path / "lake", {})

    assert paid_by(known.transactions) == ["A0", "A2", "A4"]
    assert known.total == 15


def test_payments_of_a_case_are_in_its_history_however_many_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST", 6)

    known, _ = of_terminal(tmp_path / "lake", TERMINAL)

    shown = [row["transaction_id"] for row in known.transactions]
    assert shown == ["8-4", "8-3", "4-4", "2-4", "2-3", "0-4"]
    assert known.total == 25


def test_accounts_are_listed_by_their_alerts_and_the_first_are_numbered() -> None:
    rows = [{"account_id": f"{number:02}", "amount": 2.0} for number in range(30)] * 2

    listed = history.by_account(rows, [{"account_id": "07"}, {"account_id": "09"}, {"account_id": "09"}])

    assert [(one["number"], one["account_id"], one["alerts"]) for one in listed[:3]] == [
        (1, "09", 2),
        (2, "07", 1),
        (3, "00", 0),
    ]
    assert {(one["transactions"], one["amount"]) for one in listed} == {(2, 4.0)}
    assert [one["number"] for one in listed[history.NUMBERED :]] == [None] * 10
    assert len(history.labels(listed)) == history.NUMBERED


def test_amounts_at_the_edge_of_what_a_double_holds_leave_finite_sums_of_those_who_share_a_key(tmp_path: Path) -> None:
    root = small_lake.make(tmp_path / "lake")
    paid = next(row for row in small_lake.transactions() if row["transaction_id"] == "1-4")
    huge = [
        {**paid, "transaction_id": f"{account}-{number}", "account_id": account, "amount": sign * 1.7e308}
        for account, sign in (("payer", 1), ("refunded", -1))
        for number in range(2)
    ]
    small_lake.write(root, small_lake.SILVER, huge)
    store, day = LocalStore(Settings(lake=root)), Window(small_lake.DAY, small_lake.DAY)
    item = replace(history.find_account(store, "A1"), transaction_ids=("1-4",))

    (share,) = history.shared(store, item, day, 30)

    amounts = {row["account_id"]: row["amount"] for row in share.named}
    assert (amounts["payer"], amounts["refunded"]) == (2e12, -2e12)


@pytest.mark.parametrize("few", [0, 20_000], ids=["only these", "all"])
def test_the_events_of_an_item_and_of_its_account_are_found(
    tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "_FEW", few)
    store = local.open_store(tmp_path / "lake")
    paid = (("a", "1", 0), ("b", "1", 72), ("c", "2", 0))  # the second case of account 1 is three days after the first
    local.fill(store, [local.Payment(name, account, hour=hour, rules=("pair",)) for name, account, hour in paid])
    listed = [items.require(store, f"{name} pair") for name in "abc"]
    for item in listed:
        decide = partial(actions.decide, item, analyst="ann", verdict="genuine", event_id=f"of {item.item_id}")
        event_log.record(store, item, f"of {item.item_id}", decide)
    account = replace(listed[0], item_id="", names=frozenset())
    of = {one.entity_key: [event.event_id for event in history.events(store, one)] for one in (listed[2], account)}
    assert of == {"2": ["of c pair"], "1": ["of a pair", "of b pair"]}
    renamed = replace(listed[2], entity_key="another", names=frozenset({"a pair", "c pair"}))
    assert [event.event_id for event in history.events(store, renamed)] == ["of a pair", "of c pair"]


@pytest.mark.parametrize("few", [0, 20_000], ids=["only these", "all"])
def test_a_lake_without_events_has_none_of_an_item(tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_FEW", few)
    store = local.open_store(tmp_path / "lake")
    local.fill(store, [local.Payment("a", "1", rules=("pair",))])
    assert history.events(store, items.require(store, "a pair")) == []


def test_the_events_on_thousands_of_payments_are_found(tmp_path: Path) -> None:
    """A condition that names 5,000 payments ends the process with a segmentation fault."""
    store = local.open_store(tmp_path / "lake")
    local.fill(store, [local.Payment(name, name, rules=("pair",)) for name in "ab"])
    for name in "ab":
        item = items.require(store, f"{name} pair")
        decide = partial(actions.decide, item, analyst="ann", verdict="genuine", event_id=f"of {name}")
        event_log.record(store, item, f"of {name}", decide)
    payments = ["b", *map(str, range(5_000))]
    assert [event.event_id for event in event_log.read_events_of_payments(store, payments)] == ["of b"]
