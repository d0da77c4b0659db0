"""Lists at the desk and by the commands: keys are added, loaded from files, shown and ended; the rest is refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fraudlake import tables
from fraudlake.detection import list_entries as entries_of_lake
from fraudlake.detection import rule_table
from fraudlake.detection.list_entries import Entry
from fraudlake.errors import UsageError
from fraudlake.lake.local_store import LocalStore
from fraudlake.rules.kinds import RULE
from fraudlake.rules.rule_set import RuleVersion
from fraudlake.settings import Settings
from fraudlake_cli.commands import cli
from fraudlake_desk import list_entries, lists, rules
from fraudlake_desk.list_entries import NewEntry
from tests.desk import small_lake

NOW = datetime(2026, 4, 1, 9, 30, 20, tzinfo=UTC)
UNTIL = date(2026, 5, 1)
PAIR = {"kind": "small_then_large", "small_below": 1.0, "large_above": 500.0, "within": "60 s"}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    root = small_lake.make(tmp_path / "lake")
    given = [{"name": "pair", "allowed": {"partners": "account"}}, {"name": "again", "watched": {"mules": "account"}}]
    versions = [RuleVersion(RULE.validate_python(PAIR | one), 1, "live", "ann", None, NOW) for one in given]
    small_lake.write(root, tables.SILVER_RULES, rule_table.rows_of(1, versions))
    return LocalStore(Settings(lake=root))


def add(store: LocalStore, **values: Any) -> Entry:
    given = {"name": "partners", "of": None, "key": "A1", "until": UNTIL, "reason": "travels", "now": NOW} | values
    of = {name: given.pop(name) for name in ("name", "of", "key")}
    return lists.add(store, rules.read(store)[0], NewEntry("ann", **given), **of)


def load(store: LocalStore, file: Path, **values: Any) -> lists.Loaded:
    given = {"name": "partners", "of": None, "until": UNTIL, "reason": "ticket 4712", "now": NOW} | values
    of = {name: given.pop(name) for name in ("name", "of")}
    return lists.load(store, rules.read(store)[0], NewEntry("ann", **given), file=file, **of)


def read(store: LocalStore) -> list[lists.NamedList]:
    return lists.read_all(store, rules.read(store)[0], NOW)


def test_a_list_says_what_it_is_of_who_is_on_it_and_which_rules_name_it(store: LocalStore) -> None:
    add(store)
    add(store, name="blocked", of="terminal", key="T1")
    ended = add(store, key="A2")
    list_entries.end(store, "bob", ended.entry_id, "was fraud", NOW)
    held = [{**small_lake.alerts()[0], "alert_id": str(number), "entry_id": ended.entry_id} for number in range(3)]
    small_lake.write(Path(store.name), tables.SILVER_SUPPRESSED_ALERTS, held)
    assert lists.read_all(store, rules.read(store)[0], NOW + timedelta(minutes=2)) == [
        lists.NamedList("blocked", "terminal", 1, 0, 0, [], []),
        lists.NamedList("mules", "account", 0, 0, 0, [], ["again"]),
        lists.NamedList("partners", "account", 1, 1, 3, ["pair"], []),
    ]


def test_an_entry_begins_after_the_clock_and_says_who_and_why(store: LocalStore) -> None:
    entry = add(store)
    assert entries_of_lake.read(store) == [entry]
    assert (entry.list, entry.rule, entry.entity, entry.entity_key, entry.account_id) == (
        "partners", None, "account", "A1", "A1",
    )  # fmt: skip
    assert (entry.starts_at, entry.ends_at) == (
        datetime(2026, 4, 1, 9, 32, tzinfo=UTC),
        datetime(2026, 5, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "new"}, "the list new is new: say what the key is of"),
        ({"of": "terminal"}, "the list partners is of account, and not of terminal"),
        ({"name": "new", "of": "device"}, "a list cannot be of 'device'"),
        ({"name": "new", "of": "amount"}, "a list cannot be of 'amount'"),
        ({"name": "new", "of": "terminalId"}, "a list cannot be of 'terminalId': .*: account, terminal, terminal_id"),
        ({"name": "suppressed", "of": "account"}, "'suppressed' cannot be the name of a list"),
        ({"name": "Big list", "of": "account"}, "'Big list' cannot be the name of a list"),
        ({"key": " "}, "name the key of the account"),
        ({"reason": ""}, "give a reason"),
        ({"until": date(2026, 4, 1)}, "choose a later day"),
        ({"until": date(2028, 4, 1)}, "more than 366 days away"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(store: LocalStore, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        add(store, **values)
    assert entries_of_lake.read(store) == []


def test_a_key_is_on_a_list_once_at_a_time(store: LocalStore) -> None:
    first = add(store, entry_id="one")
    assert add(store, entry_id="one", reason="another") == first
    with pytest.raises(UsageError, match=r"entry one of partners has account A1 already"):
        add(store, reason="another")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_adds_the_keys_that_are_not_on_the_list(store: LocalStore, tmp_path: Path, suffix: str) -> None:
    add(store, key="A3")
    file = tmp_path / f"keys.{suffix}"
    rows = pa.table({"key": ["A3", " A4", "A5", "A4"], "reason": ["x", None, "own", ""]})
    if suffix == "csv":
        file.write_text("key,reason\nA3,x\n A4,\nA5,own\nA4,\n")
    else:
        pq.write_table(rows, file)
    loaded = load(store, file)
    assert (loaded.added, loaded.present) == (2, 1)
    found = {entry.entity_key: entry for entry in entries_of_lake.read(store)}
    assert {key: (one.reason, one.account_id) for key, one in found.items()} == {
        "A3": ("travels", "A3"),
        "A4": ("ticket 4712", "A4"),
        "A5": ("own", "A5"),
    }
    assert len({one.entry_id for one in found.values()}) == 3
    assert {one.starts_at for one in found.values()} == {loaded.starts_at}
    again = load(store, file)
    assert (again.added, again.present) == (0, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "account,reason\nA1,x\n",
            "has no column 'key' or 'account_id' for the key of account",
        ),
        ('key\nA1\n""\n', "row 2 has no key"),
        ("key,reason\nA1,x\nA2,y\nA1,z\n", "the key A1 is there twice with two reasons, 'x' and 'z'"),
        ("key,reason\nA1," + "x" * 1001 + "\n", "a reason has more than 1,000 characters"),
        ("key,reason\nA1\n", "cannot be read"),
        (None, "no such file"),
    ],
)
def test_a_wrong_file_adds_nothing(store: LocalStore, tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "keys.csv"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=message):
        load(store, file)
    assert entries_of_lake.read(store) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": [["A1"]]}, "the column key is of list<element: string>: its values must be texts"),
        ({"key": [b"\xff"]}, "the column key is of binary"),
        ({"key": ["A1"], "reason": [{"why": "x"}]}, "the column reason is of struct<why: string>"),
    ],
)
def test_a_file_of_other_values_than_texts_adds_nothing(
    store: LocalStore, tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    file = tmp_path / "keys.parquet"
    pq.write_table(pa.table(columns), file)
    with pytest.raises(UsageError, match=message):
        load(store, file)
    file = tmp_path / "twice.csv"
    file.write_text("key,key\nA1,A2\n")
    with pytest.raises(UsageError, match="has the column key 2 times"):
        load(store, file)
    assert entries_of_lake.read(store) == []


@pytest.fixture
def typed_store(tmp_path: Path) -> LocalStore:
    """A lake with a whole number as a column, alone and in the key of an entity."""
    defined = {
        "columns": {"zone": {"from": "zone", "type": "bigint"}, **small_lake.COLUMNS},
        "entities": {"place": ["zone", "terminal_id"], "place_of_account": ["account_id", "zone"]},
    }
    change = {"change": 2, "author": "ann", "changed_at": small_lake.NOON}
    root = small_lake.make(tmp_path / "typed")
    rows = [{**change, "setting": name, "value": json.dumps(value)} for name, value in defined.items()]
    small_lake.write(root, tables.SILVER_DEFINITION, rows)
    return LocalStore(Settings(lake=root))


def test_keys_of_a_file_are_written_in_the_types_of_their_columns(typed_store: LocalStore, tmp_path: Path) -> None:
    file = tmp_path / "keys.csv"
    file.write_text("account_id,zone,terminal_id\nA1,007,007\nA2,-3,T1\n")
    for name, of in (("zones", "zone"), ("places", "place"), ("homes", "place_of_account")):
        assert load(typed_store, file, name=name, of=of).added == 2
    found = {(one.list, one.entity_key, one.account_id) for one in entries_of_lake.read(typed_store)}
    assert found == {
        ("zones", "7", None),
        ("zones", "-3", None),
        ("places", '{"zone": 7, "terminal_id": "007"}', None),
        ("places", '{"zone": -3, "terminal_id": "T1"}', None),
        ("homes", '{"account_id": "A1", "zone": 7}', "A1"),
        ("homes", '{"account_id": "A2", "zone": -3}', "A2"),
    }
    with pytest.raises(UsageError, match="of zones has zone 7 already"):
        add(typed_store, name="zones", key="7")
    file.write_text("key\n7\nT1\n")
    with pytest.raises(UsageError, match=r"keys\.csv: zone is a whole number, and not T1: nothing was written"):
        load(typed_store, file, name="zones")
    file.write_text("key\n")
    assert load(typed_store, file, name="zones").added == 0


def test_the_latest_entries_are_shown_with_those_that_ended_if_asked(store: LocalStore) -> None:
    until = datetime.now(UTC).date() + timedelta(days=30)
    now = datetime.now(UTC)
    added = [add(store, key=f"A{number}", until=until, now=now + timedelta(hours=number)) for number in range(5)]
    over = add(store, key="A9")
    present = rules.read(store)[0]
    shown = lists.entries(store, present, "partners", limit=2)
    assert [one.entry for one in shown] == [added[4], added[3]]
    assert [one.entry for one in lists.entries(store, present, "partners", key="A1")] == [added[1]]
    states = {one.entry.entity_key: one.state for one in lists.entries(store, present, "partners", is_all=True)}
    assert states == {**{f"A{number}": "to begin" for number in range(5)}, "A9": "over"}
    assert over in [one.entry for one in lists.entries(store, present, "partners", is_all=True)]


def test_a_list_that_no_rule_in_use_names_has_no_effect(store: LocalStore) -> None:
    until = datetime.now(UTC).date() + timedelta(days=30)
    add(store, name="blocked", of="terminal", key="T1", until=until)
    (shown,) = lists.entries(store, rules.read(store)[0], "blocked")
    assert shown.state == "without effect"


@pytest.mark.parametrize("of", ["account", "terminal_id"])
@pytest.mark.parametrize("change", [("promote", "busy"), ("apply", "{file}", "--yes")])
def test_a_rule_that_takes_a_list_for_one_of_other_keys_does_not_take_effect(
    store: LocalStore, tmp_path: Path, of: str, change: tuple[str, ...]
) -> None:
    file = tmp_path / "busy.toml"
    rule = '[[rules]]\nkind = "threshold"\nname = "busy"\naggregate = "count"\nwindow = "60 s"\nabove = 3\n'
    add(store, name="blocked", of="terminal", key="T1")

    def command(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["--lake", store.name, "rules", *arguments])

    def changed(watched: str) -> Any:
        file.write_text(f'{rule}watched = {{ blocked = "{watched}" }}\n')
        command("add", str(file))
        return command(*(part.format(file=file) for part in change))

    refused = changed(of)
    assert str(refused.exception) == (
        f"busy: the list blocked is of terminal, and not of {of}: correct the rule, or name another list"
    )
    assert "busy" not in {version.rule.name for version in rules.read(store)[0].evaluated}
    assert changed("terminal").exit_code == 0
    assert "busy" in {version.rule.name for version in rules.read(store)[0].evaluated}


def test_the_commands_add_load_show_and_end(store: LocalStore, tmp_path: Path) -> None:
    def command(*arguments: str) -> Any:
        done = CliRunner().invoke(cli, ["--lake", store.name, "--json", "lists", *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    until = str(datetime.now(UTC).date() + timedelta(days=30))
    file = tmp_path / "mules.csv"
    file.write_text("account_id\nA1\nA2\n")
    entry = command("add", "partners", "A7", "--until", until, "--reason", "travels", "--author", "ann")["entry"]
    loaded = command("load", "mules", str(file), "--until", until, "--reason", "ticket", "--author", "ann")
    assert (loaded["added"], loaded["present"], loaded["of"]) == (2, 0, "account")
    listed = {one["name"]: (one["of"], one["open"], one["watched_by"]) for one in command("list")["lists"]}
    assert listed == {"mules": ("account", 2, ["again"]), "partners": ("account", 1, [])}
    assert [one["entity_key"] for one in command("show", "mules", "--key", "A2")["entries"]] == ["A2"]
    ended = command("end", entry["entry_id"][:8], "--reason", "was fraud", "--author", "bob")["entry"]
    assert (ended["ended_by"], ended["list"]) == ("bob", "partners")


def test_many_keys_are_loaded_and_counted(store: LocalStore, tmp_path: Path) -> None:
    file = tmp_path / "many.parquet"
    pq.write_table(pa.table({"key": [f"K{number:06}" for number in range(100_000)]}), file)
    loaded = load(store, file, name="mules")
    assert (loaded.added, loaded.present) == (100_000, 0)
    assert [one.open for one in read(store) if one.name == "mules"] == [100_000]
    assert load(store, file, name="mules").present == 100_000
    with pytest.raises(UsageError, match="of mules has account K099999 already"):
        add(store, name="mules", key="K099999")
