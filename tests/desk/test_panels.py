"""Panels: what the settings name of a key, read only, bounded, and never more than a line if it fails."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pydantic import ValidationError

from fraudlake.lake.local_store import LocalStore
from fraudlake.review import items
from fraudlake.review.window import Window
from fraudlake.settings import Settings
from fraudlake.settings.panels import Panel
from fraudlake_desk.lookup import panels
from fraudlake_desk.lookup.panels import Shown
from tests.desk import small_lake
from tests.desk.small_lake import HOSTILE

ABOUT = Window(small_lake.DAY, small_lake.DAY)
CUSTOMER = {"title": "Customer", "table": "customers", "key": "customer", "columns": ["name", "since"]}
VISITS = {
    "title": "Visits",
    "entity": "terminal",
    "query": "SELECT terminal_id, count(*) AS visits FROM silver_transactions WHERE terminal_id = :key GROUP BY 1",
}


def shown(root: Path, name: str, *given: dict[str, Any]) -> list[Shown]:
    """The panels of an item of the small lake."""
    if not root.exists():
        small_lake.make(root)
        names = ["A1", HOSTILE, "A2", "A2"]
        customers = {"customer": names, "name": ["Ann", "Bob", "Cy", "Di"], "since": [2001, None, 3, 4]}
        write_deltalake(root / "tables" / "customers", pa.table(customers))
    store = LocalStore(Settings(lake=root, panels=given))
    item = items.require(store, name)
    return panels.fill_panels(store, item, ABOUT)


def test_a_table_shows_the_row_of_the_account(tmp_path: Path) -> None:
    (panel,) = shown(tmp_path / "lake", "alert1", CUSTOMER)
    assert panel == Shown("Customer", "account", "A1", ["name", "since"], [("Ann", 2001)])


def test_any_name_is_a_key_and_nothing_else(tmp_path: Path) -> None:
    (panel,) = shown(tmp_path / "lake", "alert9", CUSTOMER)
    assert [*panel.rows] == [("Bob", None)]


def test_a_query_shows_what_it_finds_of_the_terminal_of_the_payments(tmp_path: Path) -> None:
    (panel,) = shown(tmp_path / "lake", "alert1", VISITS)
    paid = [row for row in small_lake.transactions() if row["terminal_id"] == "T1"]
    assert (panel.key, [*panel.rows]) == ("T1", [("T1", len(paid))])


def test_a_panel_has_some_rows_and_says_that_there_are_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "ROWS", 1)
    (panel,) = shown(tmp_path / "lake", "alert2", CUSTOMER)
    assert (len(panel.rows), panel.is_more) == (1, True)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"table": "gone"}, "gone"),
        ({"key": "gone"}, "gone"),
        ({"columns": ["gone"]}, "gone"),
        ({"entity": "device"}, "'device' is not a declared entity with a key of one column"),
    ],
)
def test_a_panel_that_fails_is_a_line_and_the_others_are_whole(
    tmp_path: Path, changed: dict[str, Any], error: str
) -> None:
    failed, whole = shown(tmp_path / "lake", "alert1", CUSTOMER | changed, VISITS)
    assert error in failed.error and "\n" not in failed.error and not failed.rows
    assert whole.rows


def test_nobody_waits_for_a_query_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "SECONDS", 0.1)
    monkeypatch.setattr(LocalStore, "ask", lambda *_: time.sleep(1))
    (panel,) = shown(tmp_path / "lake", "alert1", CUSTOMER)
    assert panel.error == "its query takes longer than 0 seconds"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("DELETE FROM customers WHERE name = :key", "must begin with SELECT"),
        ("WITH a AS (SELECT 1) INSERT INTO customers SELECT :key", "must begin with SELECT"),
        ("SELECT :key; DROP TABLE customers", "no semicolon"),
        ("SELECT :key -- all", "no comment"),
        ("SELECT /* :key", "no comment"),
        ("SELECT ':key", "no open quote"),
        ("SELECT ':key'", "must have :key"),
        (r"SELECT '\', :key", "no open quote"),
        (r"SELECT 1 \ :key", "no backslash"),
        ("SELECT 1) a, (SELECT :key", "brackets do not match"),
        ("SELECT (:key", "brackets do not match"),
    ],
)
def test_a_query_that_is_not_one_select_with_the_key_is_refused(query: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Panel(title="a", query=query)


def test_a_key_is_not_put_into_texts_and_names() -> None:
    panel = Panel(title="a", query="SELECT ':key', \":key\", '''(;' FROM t WHERE a = :key AND b::keyword = :key2")
    assert panel.statement("'x'", 3) == (
        "SELECT * FROM (SELECT ':key', \":key\", '''(;' FROM t WHERE a = 'x' AND b::keyword = :key2) panel LIMIT 3"
    )


@pytest.mark.parametrize(
    "given",
    [
        {"title": "a"},
        {"title": "a", "table": "t"},
        {"title": "a", "table": "t", "key": "k", "query": "SELECT :key"},
        {"title": "a", "table": "t; DROP TABLE t", "key": "k"},
        {"title": "a", "table": "t", "key": "k = 1 OR k"},
        {"title": "a", "table": "t", "key": "k", "columns": ["*"]},
    ],
)
def test_a_panel_that_is_not_whole_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Panel(**given)
