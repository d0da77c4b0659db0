"""A lake records its definition; most of these lakes are made and opened without Spark."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import fraudlake
from fraudlake import settings, tables
from fraudlake.detection import state
from fraudlake.errors import UsageError
from fraudlake.lake import definition, open_lake
from fraudlake.lake.definition import Change
from tests.conftest import FraudlakeHere

COLUMNS = {
    "kind": {"from": "kind", "type": "string", "nullable": True},
    "merchant_id": {"from": "merchantId", "type": "string", "nullable": False},
}
PAYLOAD = {"accountId": {"from": "card.number"}, "dt": {"from": "ts", "unit": "seconds"}}
ENTITIES = {"card_type": ["kind"]}
FEATURES = [{"name": "of_its_day", "aggregate": "count", "window": "86400 s"}]
MADE = {
    "payload": json.dumps(PAYLOAD),
    "columns": json.dumps(COLUMNS),
    "entities": '{"card_type": "kind"}',
    "features": '[{"name": "of_its_day", "aggregate": "count", "window": "1 day"}]',
    "label_delay": "2 days",
    "ordering": "event_time",
    "max_out_of_orderness": "5 s",
    "buckets": "8",
    "approvals": "1",
}
RECORDED = {
    "payload": PAYLOAD,
    "columns": COLUMNS,
    "currency": None,
    "entities": ENTITIES,
    "features": FEATURES,
    "label_delay": "172800 s",
    "ordering": "event_time",
    "max_out_of_orderness": "5 s",
    "buckets": 8,
    "clustering": "zorder",
    "approvals": 1,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake that was made with other settings than the defaults."""
    open_lake(settings.load(lake=tmp_path / "made", **MADE))
    return tmp_path / "made"


def recorded(root: Path) -> list[tuple[int, str, Any, str]]:
    rows = DeltaTable(root / "tables" / "silver_definition").to_pyarrow_table().to_pylist()
    return [
        (row["change"], row["setting"], json.loads(row["value"]), row["author"])
        for row in sorted(rows, key=lambda row: (row["change"], row["setting"]))
    ]


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("must_exist", [True, False])
def test_a_lake_is_what_it_was_made_with(root: Path, must_exist: bool) -> None:
    before = files(root)
    opened = open_lake(settings.load(lake=root), must_exist=must_exist)
    assert opened.settings.definition == RECORDED
    assert opened.settings.max_out_of_orderness == timedelta(seconds=5)
    assert opened.table(tables.SILVER_TRANSACTIONS).column_names[-2:] == ["kind", "merchant_id"]
    assert recorded(root) == [(1, name, RECORDED[name], "settings") for name in sorted(RECORDED)]
    assert files(root) == before


def test_what_was_not_given_is_recorded_when_a_state_depends_on_it(tmp_path: Path) -> None:
    opened = open_lake(settings.load(lake=tmp_path / "lake"))
    assert [row[:3] for row in recorded(tmp_path / "lake")] == [
        (1, "clustering", "zorder"),
        (1, "columns", {}),
        (1, "currency", None),
        (1, "payload", {}),
    ]
    later = open_lake(settings.load(lake=tmp_path / "lake", ordering="event_time"))
    later.record_definition()
    assert [row[:3] for row in recorded(tmp_path / "lake")][4:] == [
        (2, "ordering", "event_time"),
        (3, "approvals", 1),
        (3, "buckets", 16),
        (3, "entities", {}),
        (3, "features", []),
        (3, "label_delay", "0 s"),
        (3, "max_out_of_orderness", "10 s"),
    ]
    # A command that was open meanwhile would begin a state in another order.
    with pytest.raises(Exception, match=r"another command has changed the definition of .*: run this one again"):
        opened.record_definition()


def test_of_two_processes_that_define_a_lake_at_once_the_first_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_lake(settings.load(lake=tmp_path / "lake", buckets="8"))
    read, before = definition.read, [definition.Recorded({}, 0)] * 2  # read before the other one has committed
    monkeypatch.setattr(definition, "read", lambda lake: before.pop() if before else read(lake))
    with pytest.raises(UsageError, match=r"--buckets contradicts .* in buckets \(4 instead of 8\)"):
        open_lake(settings.load(lake=tmp_path / "lake", buckets="4"))
    before.append(definition.Recorded({}, 0))
    assert open_lake(settings.load(lake=tmp_path / "lake")).settings.buckets == 8
    assert [row[:3] for row in recorded(tmp_path / "lake") if row[1] == "buckets"] == [(1, "buckets", 8)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"columns": '{"kind": "string"}'},
            "--columns contradicts LAKE in columns (without merchant_id): leave it out, or change the lake with "
            "'fraudlake define'",
        ),
        ({"columns": "{}"}, "--columns contradicts LAKE in columns (without kind; without merchant_id): leave it out"),
        (
            {"columns": json.dumps({**COLUMNS, "kind": "bigint", "shop": "string"})},
            "in columns (shop is new; kind is bigint from 'kind' instead of string from 'kind'): leave it out",
        ),
        (
            {"columns": json.dumps({**COLUMNS, "merchant_id": {"type": "string", "from": "merchantId"}})},
            "(merchant_id is string from 'merchantId' instead of string from 'merchantId', never null)",
        ),
        (
            {"entities": '{"shop": ["merchant_id"], "card_type": ["account_id", "kind"]}'},
            "--entities contradicts LAKE in entities (shop is new; card_type is account_id + kind instead of kind):",
        ),
        ({"ordering": "arrival"}, "--ordering contradicts LAKE in ordering (arrival instead of event_time): leave"),
        (
            {"max_out_of_orderness": "6 s"},
            "--max-out-of-orderness contradicts LAKE in max_out_of_orderness (6 s instead",
        ),
        ({"buckets": "16"}, "--buckets contradicts LAKE in buckets (16 instead of 8): leave it out"),
        (
            {"label_delay": "7 days"},
            "--label-delay contradicts LAKE in label_delay (604800 s instead of 172800 s): leave it out, or change the",
        ),
        ({"clustering": "liquid"}, "--clustering contradicts LAKE in clustering (liquid instead of zorder): leave it"),
    ],
)
@pytest.mark.parametrize("must_exist", [True, False])
def test_a_contradiction_is_one_line_and_writes_nothing(
    root: Path, given: dict[str, str], line: str, must_exist: bool
) -> None:
    before = files(root)
    with pytest.raises(UsageError) as refused:
        open_lake(settings.load(lake=root, **given), must_exist=must_exist)
    assert line.replace("LAKE", str(root)) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert files(root) == before


def test_a_contradiction_names_the_file_or_the_variable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("fraudlake.toml").write_text("buckets = 9\n")
    with pytest.raises(UsageError, match=r"^fraudlake\.toml contradicts .* \(9 instead of 8\)"):
        open_lake(settings.load(lake=root))
    monkeypatch.setenv("FRAUDLAKE_BUCKETS", "10")
    with pytest.raises(UsageError, match=r"^FRAUDLAKE_BUCKETS contradicts .* \(10 instead of 8\)"):
        open_lake(settings.load(lake=root))


def test_the_same_values_are_no_contradiction_in_whatever_form(root: Path) -> None:
    turned = json.dumps(dict(reversed(COLUMNS.items())))
    given = {**MADE, "max_out_of_orderness": "5000 ms", "columns": turned}
    assert open_lake(settings.load(lake=root, **given)).settings.definition["buckets"] == 8
    # A bundle's variable that has no value gives an empty flag.
    assert open_lake(settings.load(lake=root, columns="")).settings.definition == RECORDED


def test_the_command_shows_a_change_and_makes_it(
    root: Path, fraudlake_here: FraudlakeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(root)
    wanted = ("--max-out-of-orderness", "1 minute", "--buckets", "4")
    shown = fraudlake_here("--lake", str(root), "define", *wanted)
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[-3:] == [
        "max_out_of_orderness: 60 s instead of 5 s",
        "buckets: 4 instead of 8",
        "add --yes to apply the changes",
    ]
    assert files(root) == before
    reason = ("--author", "ann", "--reason", "later files")
    done = json.loads(fraudlake_here("--lake", str(root), "--json", "define", *wanted, *reason, "--yes").stdout)
    assert done["definition"] == {**RECORDED, "max_out_of_orderness": "60 s", "buckets": 4}
    assert recorded(root)[len(RECORDED) :] == [(2, "buckets", 4, "ann"), (2, "max_out_of_orderness", "60 s", "ann")]
    assert open_lake(settings.load(lake=root)).settings.buckets == 4
    # What it shows is a settings file.
    Path("fraudlake.toml").write_text(fraudlake_here("--lake", str(root), "define").stdout.partition("\n\n")[0])
    assert json.loads(fraudlake_here("--lake", str(root), "--json", "define").stdout)["changes"] == {}
    assert json.loads(fraudlake_here("--lake", str(root), "--json", "status").stdout)["definition"]["buckets"] == 4


def test_the_command_makes_a_lake(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    lake = ("--lake", str(tmp_path / "new"), "define", "--buckets", "8", "--columns", json.dumps(COLUMNS))
    refused = fraudlake_here(*lake)
    assert (refused.returncode, (tmp_path / "new").exists()) == (1, False)
    made = fraudlake_here(*lake, "--author", "ann", "--yes")
    assert made.returncode == 0
    assert made.stdout.splitlines()[-2:] == ["columns: kind is new; merchant_id is new", "buckets: 8 instead of 16"]
    written = {"buckets": 8, "clustering": "zorder", "columns": COLUMNS, "currency": None, "payload": {}}
    assert recorded(tmp_path / "new") == [(1, name, value, "ann") for name, value in written.items()]


def test_a_change_that_tables_cannot_follow_is_refused(root: Path, fraudlake_here: FraudlakeHere) -> None:
    before = files(root)
    for flags, line in (
        (("--clustering", "liquid"), f"clustering: the tables of {root} were made with zorder, and keep it: create"),
        (("--columns", '{"kind": "bigint"}'), "columns: 'kind' is BIGINT, but bronze_transactions has 'kind', STRING"),
    ):
        refused = fraudlake_here("--lake", str(root), "define", *flags, "--yes")
        assert refused.returncode == 2
        assert line in refused.stderr
    assert "silver_definition says what the lake is: 'fraudlake define' changes that" in (
        fraudlake_here("--lake", str(root), "restore", "silver_definition", "--version", "0").stderr
    )
    assert files(root) == before


def test_a_new_currency_is_said_as_the_settings_have_it() -> None:
    code = {"columns": '{"code": "string"}'}
    before, after = settings.load(**code), settings.load(**code, currency='{"column": "code", "base": "EUR"}')
    said = '{"column": "code", "base": "EUR", "carry_days": 4} instead of none'
    assert definition.differences(before, after) == {"currency": said}


def test_entities_come_and_go_but_keep_their_keys(root: Path, fraudlake_here: FraudlakeHere) -> None:
    define = ("--lake", str(root), "define", "--yes", "--entities")
    refused = fraudlake_here(*define, '{"card_type": "merchant_id"}')
    assert refused.returncode == 2
    assert f"card_type is keyed by kind in {root}, which states of streams depend on: declare" in refused.stderr
    unknown = fraudlake_here(*define, '{"terminal": "terminal_id"}')
    assert unknown.returncode == 2
    assert "entities: terminal is keyed by terminal_id, which is not a column of" in unknown.stderr
    assert len(recorded(root)) == len(RECORDED)
    made = fraudlake_here(*define, '{"shop": "merchant_id", "own_shop": ["account_id", "merchant_id"]}')
    assert "entities: without card_type; shop is new; own_shop is new" in made.stdout
    assert '[entities]\nshop = ["merchant_id"]\nown_shop = ["account_id", "merchant_id"]\n' in made.stdout
    # A column stays while an entity is keyed by it.
    refused = fraudlake_here("--lake", str(root), "define", "--columns", '{"kind": "string"}', "--yes")
    assert "entities: shop is keyed by merchant_id, which is not a column of" in refused.stderr


def test_a_currency_is_in_a_text_column_and_its_base_stays(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    in_euro = {"columns": '{"code": "string", "fee": "double"}', "currency": '{"column": "code", "base": "EUR"}'}
    opened = open_lake(settings.load(lake=tmp_path / "euro", **in_euro))
    assert [*opened.store.column_types(tables.SILVER_TRANSACTIONS)][-3:] == ["code", "fee", "base_amount"]
    assert [*opened.store.column_types(tables.BRONZE_TRANSACTIONS)][-2:] == ["code", "fee"]

    define = ("--lake", str(tmp_path / "euro"), "define", "--author", "ann", "--yes", "--currency")
    for currency, line in (
        ('{"column": "code", "base": "USD"}', "are in EUR, and stay so: create another lake"),
        ('{"column": "fee", "base": "EUR"}', "currency: fee is not a text column of"),
        ('{"base": "EUR"}', "currency: currency is not a text column of"),
        ('{"column": "code", "base": "euro"}', "--currency: base = 'euro': string should match pattern '^[A-Z]{3}$'"),
        ('{"column": "code", "base": "EUR", "carry_days": 99}', "less than or equal to 31"),
    ):
        refused = fraudlake_here(*define, currency)
        assert refused.returncode == 2
        assert line in refused.stderr
    made = fraudlake_here(*define, '{"column": "code", "base": "EUR", "carry_days": 0}')
    assert '[currency]\ncolumn = "code"\nbase = "EUR"\ncarry_days = 0\n' in made.stdout
    # The column is needed as long as it is the currency's.
    lost = fraudlake_here("--lake", str(tmp_path / "euro"), "define", "--columns", '{"fee": "double"}', "--yes")
    assert "currency: code is not a text column of" in lost.stderr
    with pytest.raises(UsageError, match="'base_amount' is a column of the lake's own"):
        settings.load(columns='{"base_amount": "double"}')


def test_a_new_feature_looks_back_no_further_than_silver_keeps_rows(root: Path, tmp_path: Path) -> None:
    monthly = json.dumps([{"name": "of_its_month", "aggregate": "count", "window": "30 days"}])
    for lake, change in ((root, Change("ann")), (tmp_path / "new", None)):
        given = settings.load(lake=lake, features=monthly, row_retention='{"silver_transactions": "7 days"}')
        with pytest.raises(UsageError, match=r"^features: of_its_month looks back 30 days, and silver_transactions"):
            open_lake(given, change=change)
    # Features that the lake has stay.
    open_lake(settings.load(lake=tmp_path / "new", features=monthly))
    open_lake(given)


def test_an_entity_of_which_most_rows_have_no_key_is_named(root: Path) -> None:
    lake = open_lake(settings.load(lake=root))
    rows = [{"transaction_id": f"t{n}", "account_id": "a", "kind": kind} for n, kind in enumerate([None, None, "x"])]
    table = lake.table(tables.SILVER_TRANSACTIONS)
    columns = [pa.array([row.get(name) for row in rows]) for name in table.column_names]
    lake.writer(table).write(pa.table(columns, table.column_names).cast(table.schema), "append")
    assert state.mostly_without_key(lake, state.rows_without_key(lake)) == [
        "card_type: 2 of 3 transactions have no key (kind is null) and are not evaluated: check the fields of "
        "these columns"
    ]


def test_a_column_that_a_rule_reads_is_not_given_up(root: Path, fraudlake_here: FraudlakeHere) -> None:
    rule = (
        'kind = "threshold"\nname = "shops"\naggregate = "distinct"\ncolumn = "merchant_id"\n'
        'window = "1 hour"\nabove = 2'
    )
    Path("rules.toml").write_text(f"[[rules]]\n{rule}\n")
    assert fraudlake_here("--lake", str(root), "rules", "apply", "rules.toml", "--yes").returncode == 0
    before = files(root)
    refused = fraudlake_here("--lake", str(root), "define", "--columns", '{"kind": "string"}', "--yes")
    assert (refused.returncode, files(root)) == (2, before)
    assert "merchant_id" in refused.stderr


def test_rules_are_checked_against_the_columns_of_the_lake(root: Path, fraudlake_here: FraudlakeHere) -> None:
    query = Path("q.sql")
    query.write_text(
        "SELECT * FROM transactions MATCH_RECOGNIZE (PARTITION BY accountId ORDER BY dt "
        "MEASURES A.amount AS amount ONE ROW PER MATCH PATTERN (A) DEFINE A AS A.kind = 'chip')"
    )
    assert fraudlake_here("--lake", str(root), "rules", "check", "--sql", "q.sql").returncode == 0
    assert fraudlake_here("--lake", str(root / "none"), "rules", "check", "--sql", "q.sql").returncode == 2


def test_a_notebook_needs_no_settings_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAUDLAKE_LAKE", str(root))
    assert fraudlake.open_lake().settings.definition == RECORDED


def test_a_lake_without_a_record_gets_one_from_the_settings(root: Path) -> None:
    shutil.rmtree(root / "tables" / "silver_definition")
    opened = open_lake(settings.load(lake=root, **MADE))
    assert opened.settings.definition == RECORDED
    assert recorded(root) == [(1, name, RECORDED[name], "settings") for name in sorted(RECORDED)]


def test_a_setting_of_a_later_version_is_passed_over() -> None:
    rows = [{"change": 1, "setting": "cases", "value": "[]"}, {"change": 2, "setting": "buckets", "value": "4"}]
    assert definition.Recorded.of(rows) == definition.Recorded({"buckets": 4}, 2)
