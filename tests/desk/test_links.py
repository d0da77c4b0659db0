"""Links: who is one and two steps from a case, against a walk over the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import items
from fraudlake.review.window import Window
from fraudlake.settings import Settings
from fraudlake.settings.columns import DeclaredColumn
from fraudlake_desk.lookup import links
from fraudlake_desk.lookup.links import Links
from tests.desk import small_lake
from tests.desk.small_lake import DAY, NOON

COLUMNS = {name: DeclaredColumn.model_validate({"from": name, "type": "string"}) for name in ("group", "Shop")}
"""A keyword of SQL, and a name with a capital letter."""
SILVER = tables.with_declared(tables.SILVER_TRANSACTIONS, COLUMNS)
PAID = (
    *(("case", "d1", "s1"), ("case", "d2", None), ("near", "d1", "s2"), ("near", "d3", None)),
    *(("far", "d3", "s9"), ("other", "d4", "s4"), ("near", "d1", "s1")),
)
"""Account, device and shop of payments: far is two steps from case, other is not linked."""


def links_of(root: Path, paid: Iterable[tuple[str, str | None, str | None]], fraud: Iterable[int] = ()) -> Links:
    """The links of a case whose only payment is the first one."""
    rows: list[dict[str, Any]] = [
        {
            "transaction_id": f"t{number}",
            "account_id": account,
            "timestamp": NOON + timedelta(minutes=number),
            "date": DAY,
            "amount": 10.0,
            "label": False,
            "group": device,
            "Shop": shop,
        }
        for number, (account, device, shop) in enumerate(paid)
    ]
    small_lake.lake_format.mark(root)
    small_lake.write(root, SILVER, rows)
    alert: Mapping[str, Any] = {**rows[0], "alert_id": "a", "rule": "r", "entity": "account", "entity_key": "case"}
    alert = {**alert, "detected_at": NOON}
    small_lake.write(root, tables.SILVER_ALERTS, [alert])
    small_lake.write(root, tables.GOLD_CASES, [small_lake.case(alert)])
    decided = {"verdict": True, "decided_at": NOON, "date": DAY, "analyst": "ann"}
    small_lake.write(root, tables.SILVER_VERDICTS, [{**decided, "transaction_id": f"t{number}"} for number in fraud])
    store = LocalStore(Settings(lake=root))
    store.settings = store.settings.defined({"entities": {"device": ("group",), "shop": ("Shop",)}})
    return links.find_links(store, items.require(store, "a"), Window(DAY, DAY), 14)


def named(found: Links) -> list[tuple[list[str], list[str]]]:
    """The keys and the accounts of each step."""
    return [([key.text for key in step.keys], [one.account_id for one in step.accounts]) for step in found.steps]


def test_others_are_found_two_steps_from_the_case_and_no_further(tmp_path: Path) -> None:
    paid = [*PAID, ("far", "d5", None), ("too far", "d5", None)]

    found = links_of(tmp_path, paid)

    assert [one.account_id for one in found.accounts] == ["case"]
    assert named(found) == [(["d1", "s1"], ["near"]), (["d3"], ["far"])]
    assert [(key.before, key.after) for step in found.steps for key in step.keys] == [
        (("case",), ("near",)),
        (("case",), ("near",)),
        (("near",), ("far",)),
    ]
    assert [one.alerts for one in found.accounts] == [1]


def test_verdicts_and_alerts_of_others_are_counted_and_come_first(tmp_path: Path) -> None:
    found = links_of(tmp_path, [*PAID, ("bad", "d1", None)], fraud=[7])

    near = found.steps[0]
    assert [(one.account_id, one.fraud) for one in near.accounts] == [("bad", 1), ("near", 0)]
    assert [(key.text, key.accounts, key.transactions, key.fraud) for key in near.keys] == [
        ("d1", 2, 3, 1),
        ("s1", 1, 1, 0),
    ]


def test_a_key_that_very_many_share_is_counted_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "FOLLOWED", 3)
    crowd = [(f"crowd{number}", None, "s1") for number in range(5)]

    (step, further) = links_of(tmp_path, [*PAID, *crowd]).steps

    assert [(key.text, key.accounts, key.is_followed, key.after) for key in step.keys] == [
        ("d1", 1, True, ("near",)),
        ("s1", 6, False, ()),
    ]
    assert [key.text for key in further.keys] == ["d3"]


def test_keys_and_accounts_of_a_step_are_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    many = [(f"b{number:02}", "d1", None) for number in range(20)]
    keys = [row for number in range(20) for row in (("case", None, f"k{number:02}"), ("x", None, f"k{number:02}"))]

    (step,) = links_of(tmp_path, [PAID[0], *many, *keys]).steps

    assert (len(step.keys), step.more_keys, len(step.accounts), step.more_accounts) == (12, 9, 1, 0)


def test_the_accounts_beyond_those_that_are_named_are_counted(tmp_path: Path) -> None:
    many = [(f"b{number:02}", "d1", None) for number in range(20)]

    (step,) = links_of(tmp_path, [PAID[0], *many]).steps

    assert [one.account_id for one in step.accounts] == [f"b{number:02}" for number in range(12)]
    assert (step.more_accounts, step.keys[0].accounts) == (8, 20)


def test_nobody_else_has_a_key_of_the_case(tmp_path: Path) -> None:
    assert links_of(tmp_path, [("case", "d1", "s1"), ("other", None, "s2")]).steps == []


def test_the_key_of_the_case_is_no_link(tmp_path: Path) -> None:
    """Accounts of even numbers pay at T0, of which the case is; all payments are from one file."""
    root = small_lake.make(tmp_path / "lake")
    small_lake.add_terminal_case(root)
    store = LocalStore(Settings(lake=root))
    store.settings = store.settings.defined({"entities": {"terminal": ("terminal_id",), "file": ("source",)}})

    found = links.find_links(store, items.require(store, "busy 2-4"), Window(DAY, DAY), 14)

    assert [one.account_id for one in found.accounts] == ["A2", "A0", "A4"]
    assert [(key.entity, key.before) for key in found.steps[0].keys] == [("file", ("A2", "A0", "A4"))]
    at_t1 = {row["account_id"] for row in small_lake.transactions() if row["terminal_id"] == "T1"}
    assert {one.account_id for one in found.steps[0].accounts} == at_t1
