"""Entries of the list of suppressed keys, on arrays: when they hold, what they suppress, and which keys there are."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.detection import list_entries
from fraudlake.detection.list_entries import Entry
from fraudlake.errors import UsageError
from fraudlake.keyed.entity_key import THE_ACCOUNT, Entity
from fraudlake.lake.local_store import LocalStore
from fraudlake.rules.kinds import RULE
from fraudlake.settings import Settings
from fraudlake_patterns import BIGINT, BOOLEAN, STRING, Column
from tests.desk import small_lake

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ENTRY = Entry(
    "e1", "suppressed", "busy", "account", "A", "A", NOON, NOON + 10 * MINUTE, "travels", "ann", NOON - MINUTE
)


BUSY = RULE.validate_python({"kind": "threshold", "name": "busy", "aggregate": "count", "window": "1 h", "above": 3})
ALERTS = pa.schema([("entity", pa.string()), ("entity_key", pa.string()), ("time", pa.timestamp("us", tz="UTC"))])


@pytest.fixture
def suppressing(tmp_path: Path) -> Callable[..., list[str | None]]:
    """Return the entry that suppresses each alert, given the rows of a table of entries."""

    def marked(alerts: Sequence[tuple[str, str, datetime]], *rows: dict[str, Any]) -> list[str | None]:
        store = LocalStore(Settings(lake=small_lake.make(tmp_path / "lake")))
        store.append(tables.SILVER_LIST_ENTRIES, pa.Table.from_pylist([*rows], tables.SILVER_LIST_ENTRIES.schema))
        raised = pa.Table.from_pylist([dict(zip(ALERTS.names, one, strict=True)) for one in alerts], ALERTS)
        entries: list[str | None] = list_entries.with_entries(raised, store, BUSY)["entry_id"].to_pylist()
        return entries

    return marked


def test_an_entry_holds_from_its_start_to_before_its_end(suppressing: Any) -> None:
    just_before = timedelta(microseconds=-1)
    times = (NOON + just_before, NOON, ENTRY.ends_at + just_before, ENTRY.ends_at)
    suppressed = suppressing([("account", "A", time) for time in times], ENTRY.added)
    assert suppressed == [None, "e1", "e1", None]


def test_an_entry_concerns_the_same_key_of_no_other_entity(suppressing: Any) -> None:
    raised = [("account", "A", NOON), ("terminal", "A", NOON), ("account", "B", NOON)]
    assert suppressing(raised, ENTRY.added) == ["e1", None, None]


def test_an_entry_concerns_no_other_rule(suppressing: Any) -> None:
    assert suppressing([("account", "A", NOON)], replace(ENTRY, rule="idle").added) == [None]


def test_of_several_entries_the_one_that_begins_first_counts(suppressing: Any) -> None:
    later = replace(ENTRY, entry_id="e0", starts_at=NOON + MINUTE)
    assert suppressing([("account", "A", NOON + 2 * MINUTE)], later.added, ENTRY.added) == ["e1"]


def test_an_early_end_counts_whichever_row_comes_first() -> None:
    end = ENTRY.ended(NOON + 5 * MINUTE, "it was fraud", "bob", NOON + 3 * MINUTE)
    ended = replace(ENTRY, ends_at=NOON + 5 * MINUTE, ended_by="bob", ended_because="it was fraud")
    assert list_entries.as_entries([end, ENTRY.added]) == list_entries.as_entries([ENTRY.added, end]) == [ended]
    later = ENTRY.ended(NOON + 6 * MINUTE, "no reason", "cleo", NOON + 3 * MINUTE)
    for ends in ([end, later], [later, end]):
        assert list_entries.as_entries([ENTRY.added, *ends]) == [ended]


def test_entries_suppress_what_a_loop_over_their_rows_says(suppressing: Any) -> None:
    draw = random.Random(5)
    rows: list[dict[str, Any]] = []
    for number in range(40):
        start = NOON + draw.randrange(60) * MINUTE
        entry = replace(
            ENTRY, entry_id=f"{number:02}", entity=draw.choice(["account", "terminal"]), entity_key=draw.choice("ABC"),
            starts_at=start, ends_at=start + draw.randrange(1, 20) * MINUTE,
        )  # fmt: skip
        rows.append(entry.added)
        if draw.random() < 0.4:
            rows.append(entry.ended(start + draw.randrange(20) * MINUTE, "", "bob", start))
    draw.shuffle(rows)
    raised = [
        (draw.choice(["account", "terminal"]), draw.choice("ABCD"), NOON + draw.randrange(4800) * timedelta(seconds=1))
        for _ in range(500)
    ]

    def holding(entity: str, key: str, time: datetime) -> str | None:
        of_key = [row for row in rows if (row["entity"], row["entity_key"]) == (entity, key)]
        over = {row["entry_id"] for row in of_key if row["ends_at"] <= time}
        left = [(row["starts_at"], row["entry_id"]) for row in of_key if row["starts_at"] <= time]
        return min(((start, id_) for start, id_ in left if id_ not in over), default=(None, None))[1]

    wanted = [holding(*one) for one in raised]
    assert suppressing(raised, *rows) == wanted
    assert 50 < sum(id_ is not None for id_ in wanted) < 450


@pytest.mark.parametrize(
    ("newest", "begins"),
    [
        (None, NOON + 2 * MINUTE),
        (NOON - timedelta(days=3), NOON + 2 * MINUTE),
        (NOON + 3 * MINUTE, NOON + 4 * MINUTE),
        (NOON + timedelta(hours=1, seconds=1), NOON + timedelta(hours=1, minutes=1)),
    ],
)
def test_an_entry_begins_with_a_full_minute_after_the_clock_and_the_newest_payment(
    newest: datetime | None, begins: datetime
) -> None:
    assert list_entries.first_minute(NOON, newest) == begins


COLUMNS = {
    "account_id": Column("account_id", STRING),
    "zone": Column("zone", BIGINT),
    "terminal_id": Column("terminal_id", STRING),
    "is_online": Column("is_online", BOOLEAN),
}
PLACE = Entity("place", ("zone", "terminal_id"))


@pytest.mark.parametrize(
    "given",
    ['{"terminal_id": "17",  "zone": 2}', '{"zone": "2", "terminal_id": 17}', '{"zone":" 02","terminal_id":"17"}'],
)
def test_the_key_of_several_columns_is_written_as_alerts_have_it(given: str) -> None:
    assert list_entries.key_of(PLACE, given, COLUMNS) == ('{"zone": 2, "terminal_id": "17"}', None)


def test_a_key_with_an_account_names_it() -> None:
    assert list_entries.key_of(THE_ACCOUNT, "A 1", COLUMNS) == ("A 1", "A 1")
    pair = Entity("account_at_zone", ("account_id", "zone"))
    assert list_entries.key_of(pair, '{"account_id": "A", "zone": 1}', COLUMNS)[1] == "A"
    assert list_entries.key_of(Entity("terminal", ("terminal_id",)), "017", COLUMNS) == ("017", None)


@pytest.mark.parametrize(
    ("column", "given", "key"),
    [
        ("zone", "007", "7"),
        ("zone", " -7 ", "-7"),
        ("zone", str(2**63 - 1), str(2**63 - 1)),
        ("is_online", "True", "true"),
    ],
)
def test_a_key_of_one_column_is_written_as_its_type(column: str, given: str, key: str) -> None:
    assert list_entries.key_of(Entity("it", (column,)), given, COLUMNS) == (key, None)


@pytest.mark.parametrize(
    ("column", "given", "message"),
    [
        ("zone", "T-1", "zone is a whole number, and not T-1"),
        ("zone", "1.5", "zone is a whole number, and not 1.5"),
        ("zone", str(2**63), f"zone is a whole number, and not {2**63}"),
        ("zone", "9" * 5_000, "zone is a whole number"),
        ("is_online", "yes", "is_online is true or false, and not yes"),
    ],
)
def test_a_key_that_its_column_cannot_have_is_refused(column: str, given: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list_entries.key_of(Entity("it", (column,)), given, COLUMNS)


@pytest.mark.parametrize("terminal", ["null", "[1]", '{"a": 1}'])
def test_a_part_of_a_key_that_is_no_text_is_refused(terminal: str) -> None:
    with pytest.raises(UsageError, match="terminal_id is a text, and not "):
        list_entries.key_of(PLACE, f'{{"zone": 1, "terminal_id": {terminal}}}', COLUMNS)


@pytest.mark.parametrize("given", ["17", '["17", 2]', '{"zone": 2}', '{"zone": 2, "terminal_id": "1", "more": 3}', "{"])
def test_a_key_without_exactly_the_columns_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match=r'a key of place has 2 columns: give them as \{"zone": "…", "terminal_id"'):
        list_entries.key_of(PLACE, given, COLUMNS)
