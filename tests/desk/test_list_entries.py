"""People suppress a rule for a key, and end that, without Spark; what cannot be is refused in a line."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.detection.list_entries import Entry, read
from fraudlake.errors import UsageError
from fraudlake.lake.local_store import LocalStore
from fraudlake.rules.kinds import RULE
from fraudlake.rules.rule_set import RuleVersion
from fraudlake.settings import Settings
from fraudlake_desk import list_entries, rules
from fraudlake_desk.list_entries import Listed, NewEntry
from tests.desk import small_lake

NOW = datetime(2026, 4, 1, 9, 30, 20, tzinfo=UTC)
UNTIL = date(2026, 5, 1)
MINUTE = timedelta(minutes=1)
PAIR = {"small_below": 1.0, "large_above": 500.0, "within": "60 s"}


def version(name: str, status: Any, **values: str) -> RuleVersion:
    return RuleVersion(RULE.validate_python({"name": name, **PAIR, **values}), 1, status, "ann", None, NOW)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    root = small_lake.make(tmp_path / "lake")
    given = [
        ("small_then_large", {}, "live"),
        ("at_terminal", {"entity": "terminal"}, "shadow"),
        ("gone", {}, "retired"),
        ("idea", {}, "draft"),
    ]
    versions = [version(name, status, **more) for name, more, status in given]
    small_lake.write(root, tables.SILVER_RULES, rule_table.rows_of(1, versions))
    return LocalStore(Settings(lake=root))


def add(store: LocalStore, now: datetime = NOW, **values: Any) -> Entry:
    given = {"rule": "small_then_large", "entity": None, "key": "A1", "until": UNTIL, "reason": "travels"} | values
    of = {name: given.pop(name) for name in ("rule", "entity", "key")}
    return list_entries.suppress(store, rules.read(store)[0], NewEntry("ann", now=now, **given), **of)


def listed(store: LocalStore, now: datetime) -> list[Listed]:
    return list_entries.listed(store, rules.read(store)[0], now)


def test_an_entry_has_who_why_and_from_when_to_when(store: LocalStore) -> None:
    entry = add(store)
    assert (entry.starts_at, entry.ends_at) == (
        datetime(2026, 4, 1, 9, 32, tzinfo=UTC),
        datetime(2026, 5, 1, tzinfo=UTC),
    )
    assert (entry.entity, entry.entity_key, entry.account_id) == ("account", "A1", "A1")
    assert (entry.author, entry.reason, entry.at) == ("ann", "travels", NOW)
    assert read(store) == [entry]


def test_it_begins_after_the_newest_payment_that_it_could_concern(store: LocalStore) -> None:
    paid = small_lake.transactions()[0]
    for days in (2, 40):  # the second one is after its end
        ahead = NOW + timedelta(days=days)
        row = {**paid, "transaction_id": f"ahead-{days}", "timestamp": ahead, "date": ahead.date()}
        small_lake.write(Path(store.name), small_lake.SILVER, [row])
    entry = add(store)
    assert entry.starts_at == datetime(2026, 4, 3, 9, 31, tzinfo=UTC)
    assert list_entries.end(store, "bob", entry.entry_id, "back", NOW).ends_at == entry.starts_at


def test_an_entry_that_ends_early_ends_after_the_clock(store: LocalStore) -> None:
    entry, later = add(store), NOW + timedelta(days=3)
    ended = list_entries.end(store, "bob", entry.entry_id[:8], "it was fraud", later)
    assert ended.ends_at == datetime(2026, 4, 4, 9, 32, tzinfo=UTC)
    assert (ended.ended_by, ended.ended_because) == ("bob", "it was fraud")
    assert [one.state for one in listed(store, later)] == ["active"]
    assert [one.state for one in listed(store, later + 2 * MINUTE)] == ["ended"]
    with pytest.raises(UsageError, match=f"entry {entry.entry_id} ends at 2026-04-04 09:32 UTC already"):
        list_entries.end(store, "bob", entry.entry_id, "again", later)


def test_a_key_can_be_suppressed_again_from_the_minute_at_which_an_entry_ends(store: LocalStore) -> None:
    first = list_entries.end(store, "bob", add(store).entry_id, "wrong day", NOW)
    second = add(store, NOW)
    assert first.ends_at == second.starts_at
    assert {one.entry_id for one in read(store)} == {first.entry_id, second.entry_id}


def test_a_form_that_is_sent_twice_adds_one_entry(store: LocalStore) -> None:
    once = add(store, entry_id="f" * 32)
    assert add(store, NOW + MINUTE, entry_id="f" * 32) == once
    assert read(store) == [once]


def test_the_states_of_entries(store: LocalStore) -> None:
    add(store)
    add(store, key="A2", until=date(2026, 4, 2))
    add(store, rule="at_terminal", key="T1")
    add(store, rule="idea", key="A3")
    states = {(one.entry.rule, one.entry.entity_key): one.state for one in listed(store, NOW + timedelta(days=2))}
    assert states == {
        ("small_then_large", "A1"): "active",
        ("small_then_large", "A2"): "over",
        ("at_terminal", "T1"): "active",
        ("idea", "A3"): "without effect",
    }
    assert {one.state for one in listed(store, NOW) if one.entry.rule != "idea"} == {"to begin"}


def test_an_entry_of_a_rule_that_retires_has_no_effect(store: LocalStore) -> None:
    add(store)
    retired = rule_table.rows_of(2, [version("small_then_large", "retired")])
    small_lake.write(Path(store.name), tables.SILVER_RULES, retired)
    assert [one.state for one in listed(store, NOW + timedelta(days=1))] == ["without effect"]


def test_suppressed_alerts_are_counted_by_entry_and_by_rule(store: LocalStore) -> None:
    first, second = add(store), add(store, key="A2")
    held = [
        {**small_lake.alerts()[0], "alert_id": f"h{number}", "rule": "small_then_large", "entry_id": entry.entry_id}
        for number, entry in enumerate((first, first, second))
    ]
    small_lake.write(Path(store.name), tables.SILVER_SUPPRESSED_ALERTS, held)
    counts = {one.entry.entity_key: one.alerts for one in listed(store, NOW)}
    assert counts == {"A1": 2, "A2": 1}
    assert list_entries.suppressed(store) == {"small_then_large": 3}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rule": "bus"}, "there is no rule 'bus'; there are small_then_large, at_terminal, gone, idea"),
        ({"rule": "gone"}, "gone is retired, and raises no alerts"),
        ({"entity": "device"}, "there is no entity 'device'; there are account, terminal"),
        ({"entity": "terminal"}, "small_then_large is by account: give a key of that"),
        ({"rule": "at_terminal", "entity": "account"}, "at_terminal is by terminal: give a key of that"),
        ({"key": " "}, "name the key of the account"),
        ({"until": date(2026, 4, 1)}, "it would begin at 2026-04-01 09:32 UTC, .* and end at 2026-04-01 00:00"),
        ({"until": date(2027, 4, 3)}, "2027-04-03 is more than 366 days away"),
        ({"until": date(9999, 12, 31)}, "9999-12-31 is more than 366 days away"),
        ({"reason": ""}, "give a reason"),
        ({"reason": "x" * 1001}, "the reason has 1,001 characters, and at most 1,000 are allowed"),
    ],
)
def test_what_cannot_be_is_refused(store: LocalStore, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        add(store, **values)
    assert read(store) == []


def test_the_same_entry_twice_names_the_first(store: LocalStore) -> None:
    entry = add(store)
    with pytest.raises(UsageError, match=f"entry {entry.entry_id} suppresses small_then_large for account A1 already"):
        add(store, NOW + timedelta(days=1), until=date(2026, 6, 1))


def test_an_unknown_entry_is_refused(store: LocalStore) -> None:
    add(store)
    with pytest.raises(
        UsageError, match="no entries begin with 'zz': 'fraudlake rules suppressions' or 'fraudlake lists show NAME'"
    ):
        list_entries.end(store, "bob", "zz", "why")


def test_a_backtest_leaves_suppressed_alerts_out_and_counts_them(store: LocalStore) -> None:
    (rule,) = rules.read(store)[0].live
    before = rules.backtest(store, rule.rule).report
    noon = small_lake.NOON
    entry = Entry(
        "e1", "suppressed", "small_then_large", "account", "A1", "A1", noon, noon + timedelta(hours=1), "", "ann", noon
    )
    small_lake.write(Path(store.name), tables.SILVER_LIST_ENTRIES, [entry.added])
    after = rules.backtest(store, rule.rule).report
    assert (before.alerts, before.suppressed) == (len(small_lake.ACCOUNTS), 0)
    assert (after.alerts, after.suppressed) == (len(small_lake.ACCOUNTS) - 1, 1)
