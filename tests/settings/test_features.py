"""Declared features: what is refused, in one line each, and how a file of them becomes the lake's."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import fraudlake
from fraudlake import settings, tables
from fraudlake.errors import UsageError
from fraudlake.feature import OWN
from fraudlake.lake import open_lake
from fraudlake.lake.definition import Change
from fraudlake.settings.columns import DeclaredColumn
from fraudlake.settings.features import DeclaredFeature, column_type, read, require_declared, require_kept
from tests.conftest import FraudlakeHere

GOOD: dict[str, Any] = {"name": "n", "entity": "terminal", "aggregate": "count", "window": "7 days"}
COLUMNS = {
    name: DeclaredColumn.model_validate({"from": name, "type": type_})
    for name, type_ in {"terminal_id": "string", "items": "bigint", "shown": "timestamp"}.items()
}
ENTITIES = {"terminal": ("terminal_id",)}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": "N!"}, "'N!' must be of lower-case letters"),
        ({"name": "amount"}, "'amount' is a column of the lake's own"),
        ({"aggregate": "median"}, "input should be 'count', 'sum'"),
        ({"aggregate": "sum"}, "'n' lacks the column that it is the sum of"),
        ({"aggregate": "fraud_count", "column": "amount"}, "'n': fraud_count takes no column"),
        ({"window": None}, "'n' lacks the window of its transactions, such as '7 days'"),
        ({"window": "soon"}, "must be a duration such as"),
        ({"window": "1 hour", "delay": "30 days"}, "'n' needs 43,260 tiles of 1 minute for each terminal"),
        ({"aggregate": "value", "column": "amount"}, "'n': a value takes no window, entity"),
        ({"aggregate": "ratio_to_mean", "column": "amount", "delay": "1 day"}, "'n': a ratio_to_mean has no delay"),
        ({"aggregate": "z_score", "column": "amount", "delay": "1 day"}, "'n': a z_score has no delay"),
        ({"aggregate": "share"}, "'n' lacks the condition (where) whose share it is"),
        ({"aggregate": "quantile", "column": "amount"}, "'n': a quantile, and nothing else, has quantile, such as 0.9"),
        ({"aggregate": "quantile", "column": "amount", "quantile": 1}, "input should be less than 1"),
        ({"logarithm": True}, "'n': logarithm is for stddev and z_score"),
        ({"window": "ever", "delay": "1 day"}, "'n': a window of 'ever' has no delay and sees no labels"),
        ({"window": "ever", "aggregate": "fraud_count"}, "'n': a window of 'ever' has no delay and sees no labels"),
        ({"expression": "amount"}, "'n' must have an aggregate or an expression"),
        ({"aggregate": None}, "'n' must have an aggregate or an expression"),
        ({"aggregate": None, "expression": "amount"}, "'n': an expression takes no window, entity"),
        ({"text": "many"}, "'n': text must have one {}, for the value"),
        ({"color": "red"}, "there is no setting 'features.0.color'"),
    ],
)
def test_a_feature_that_is_none_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings.load(features=json.dumps([GOOD | given]))
    assert reason in str(refused.value)


def test_two_features_of_a_name_are_refused() -> None:
    with pytest.raises(UsageError, match="'n' is declared twice: rename one"):
        settings.load(features=json.dumps([GOOD, GOOD]))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"entity": "device"}, "n: there is no entity 'device', only account, terminal: declare it in [entities]"),
        ({"column": "size"}, "n: there is no column 'size'; there are"),
        ({"aggregate": "mean", "column": "terminal_id"}, "n: mean takes a number, and terminal_id is STRING"),
        ({"where": "size > 1"}, "features: n: where:"),
        ({"name": "items"}, "items is a declared column, too"),
        ({"name": "v", "aggregate": "value", "column": "shown"}, "v: shown cannot be a feature's value"),
        ({"aggregate": "fraud_share"}, "n sees no label: labels are known after 7 days (label_delay), and it looks"),
    ],
)
def test_a_feature_of_something_that_is_not_declared_is_refused(given: dict[str, Any], reason: str) -> None:
    bare = {"name": "v", "aggregate": "value"} if given.get("aggregate") == "value" else GOOD
    feature = DeclaredFeature.model_validate(bare | given)
    with pytest.raises(UsageError) as refused:
        require_declared([feature], COLUMNS, ENTITIES, timedelta(days=7))
    assert reason in str(refused.value)


def test_the_features_of_every_lake_are_named_at_one_place_only() -> None:
    root = Path(fraudlake.__file__).parents[1]
    names = {feature.name for feature in OWN} - {"amount"}
    elsewhere = {
        path.name
        for path in root.rglob("*.py")
        if names & set(re.findall(r"\w+", path.read_text())) and path.stem != "feature"
    }
    assert not elsewhere
    page = (root.parent / "docs" / "how-to" / "model.md").read_text()
    assert {name for name in names if f"`{name}`" not in page} == set()
    assert [
        column.name for column in tables.GOLD_FRAUD_PREDICTIONS.fields if column.meaning.startswith("feature: ")
    ] == [*(feature.name for feature in OWN)]


@pytest.mark.parametrize(
    ("expressions", "reason"),
    [
        (["size + 1"], "features: e0: expression: line 1, column 1: there is no column 'size'; there are amount, hour"),
        (["amount +"], "features: e0: expression: line 1, column"),
        (["UPPER(terminal_id)"], "features: e0: expression: line 1, column 1: a feature must be a number or BOOLEAN"),
        (["SUM(amount)"], "features: e0: expression: line 1, column 1: SUM is not allowed here"),
        (["e0 + 1"], "features: e0: expression: it is computed from itself: e0 -> e0"),
        (["e1 + n", "e2", "2 * e0"], "e0: expression: it is computed from itself: e0 -> e1 -> e2 -> e0"),
        (
            ["amount / 0e0", "items / 0"],
            "features: e1: expression: line 1, column 1: a whole number is divided by zero",
        ),
    ],
)
def test_an_expression_that_cannot_be_computed_is_refused(expressions: list[str], reason: str) -> None:
    given = [GOOD, *({"name": f"e{n}", "expression": text} for n, text in enumerate(expressions))]
    with pytest.raises(UsageError) as refused:
        require_declared([DeclaredFeature.model_validate(one) for one in given], COLUMNS, ENTITIES, timedelta(days=7))
    assert reason in str(refused.value)


def test_ever_is_a_window_that_needs_silver_to_keep_its_rows() -> None:
    feature = DeclaredFeature.model_validate(GOOD | {"window": "ever"})
    assert feature.model_dump(mode="json") == GOOD | {"window": "ever"}
    assert DeclaredFeature.model_validate(feature.model_dump(mode="json")) == feature
    assert feature.meaning == "count of its terminal ever"
    require_kept([feature], {})
    with pytest.raises(UsageError, match="n looks back to the first transaction, and silver_transactions keeps rows"):
        require_kept([feature], {"silver_transactions": timedelta(days=900)})


@pytest.mark.parametrize(
    ("window", "size"),
    [("10 seconds", 1), ("1 minute", 1), ("1 hour", 60), ("4 hours", 600), ("1 day", 3600), ("30 days", 86_400)],
)
def test_tiles_follow_the_window(window: str, size: int) -> None:
    assert DeclaredFeature.model_validate(GOOD | {"window": window}).size == size


def test_a_value_of_text_is_a_column_of_text() -> None:
    values = [{"name": "v", "aggregate": "value", "column": column} for column in ("terminal_id", "items")]
    assert [column_type(DeclaredFeature.model_validate(value), COLUMNS) for value in values] == ["STRING", "DOUBLE"]


def test_a_feature_that_looks_back_further_than_silver_keeps_rows_is_refused() -> None:
    feature = DeclaredFeature.model_validate(GOOD | {"delay": "7 days"})
    require_kept([feature], {})
    require_kept([feature], {"silver_transactions": timedelta(days=14)})
    with pytest.raises(UsageError, match=r"n looks back 14 days, and silver_transactions keeps rows for 13 days"):
        require_kept([feature], {"silver_transactions": timedelta(days=13)})


def test_a_file_of_features_is_read(tmp_path: Path) -> None:
    file = tmp_path / "features.toml"
    file.write_text('[[features]]\nname = "n"\naggregate = "count"\nwindow = "7 days"\n')
    assert [feature.model_dump(mode="json") for feature in read(file)] == [
        {"name": "n", "aggregate": "count", "window": "604800 s"}
    ]
    file.write_text('[[features]]\nname = "n"\naggregate = "sum"\nwindow = "7 days"\n')
    with pytest.raises(UsageError, match=r"features\.toml: features\.0: 'n' lacks the column"):
        read(file)
    file.write_text("[columns]\n")
    with pytest.raises(UsageError, match=r"has \[\[features\]\] entries and nothing else, not columns"):
        read(file)


@pytest.mark.slow
@pytest.mark.long
def test_a_file_of_features_becomes_the_lakes(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    lake, file = ("--lake", str(tmp_path / "lake")), tmp_path / "features.toml"
    columns, entities = '{"terminal_id": "string"}', '{"terminal": "terminal_id"}'
    assert fraudlake_here(*lake, "define", "--yes", "--columns", columns, "--entities", entities).returncode == 0
    file.write_text('[[features]]\nname = "n"\nentity = "terminal"\naggregate = "count"\nwindow = "7 days"\n')
    checked = fraudlake_here(*lake, "features", "check", str(file))
    assert checked.stdout == "n: count of its terminal in 7 days\n"
    # The settings file has another order, which only 'define' may change.
    settings = tmp_path / "other.toml"
    settings.write_text('ordering = "event_time"\n[entities]\naccount_terminal = ["account_id", "terminal_id"]\n')
    apply = (*lake, "--config", str(settings), "features", "apply", str(file))
    assert fraudlake_here(*apply).stdout == "features: n is new\nadd --yes to apply the changes\n"
    assert fraudlake_here(*apply, "--yes").stdout == "features: n is new\n"
    listed = fraudlake_here(*lake, "features", "list")
    assert listed.stdout.splitlines()[0].startswith("amount ")
    assert listed.stdout.splitlines()[-1].split(None, 1) == ["n", "count of its terminal in 7 days"]
    shown = fraudlake_here(*lake, "define").stdout
    assert '[[features]]\nname = "n"\nentity = "terminal"\naggregate = "count"\nwindow = "604800 s"\n' in shown
    refused = fraudlake_here(*lake, "define", "--yes", "--entities", "{}")
    assert "features: n: there is no entity 'terminal', only account" in refused.stderr


def test_a_name_that_had_another_type_is_refused(tmp_path: Path) -> None:
    root, column = tmp_path / "lake", {"terminal_id": {"from": "terminalId", "type": "string"}}
    counted = {"name": "n", "aggregate": "count", "window": "7 days"}
    open_lake(settings.load(lake=root, columns=json.dumps(column), features=json.dumps([counted])))
    text = [{"name": "n", "aggregate": "value", "column": "terminal_id"}]
    with pytest.raises(
        UsageError, match="features: 'n' is STRING, but gold_fraud_predictions has 'n', DOUBLE: declare"
    ):
        open_lake(settings.load(lake=root, features=json.dumps(text)), change=Change("a"))
