"""Money: amounts have the currency, and payments the country, that declared columns say."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fraudlake import tables
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import items
from fraudlake.settings import Settings
from fraudlake.settings.columns import DeclaredColumn
from fraudlake_desk.documents import document, dossier
from fraudlake_desk.lookup import money
from fraudlake_desk.web import server
from fraudlake_desk.web.application import application
from fraudlake_desk.web.role import Role
from tests.desk import small_lake
from tests.desk.web.conftest import ADDRESS, PORT, Browser

COLUMNS = {name: {"from": name, "type": "string"} for name in ("terminal_id", "card_currency", "country")}
CURRENCIES = ["EUR", "USD", None]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """The small lake with currencies by account; the last payment of each is in another country."""
    paid = [
        {**row, "card_currency": CURRENCIES[number // 5 % 3], "country": "FR" if number % 5 == 4 else "DE"}
        for number, row in enumerate(small_lake.transactions())
    ]
    declared = {name: DeclaredColumn.model_validate(given) for name, given in COLUMNS.items()}
    monkeypatch.setattr(small_lake, "COLUMNS", COLUMNS)
    monkeypatch.setattr(small_lake, "SILVER", tables.with_declared(tables.SILVER_TRANSACTIONS, declared))
    monkeypatch.setattr(small_lake, "transactions", lambda: paid)
    root = small_lake.make(tmp_path / "lake")
    small_lake.add_terminal_case(root)
    return LocalStore(Settings(lake=root))


def page(store: LocalStore, address: str) -> str:
    site, access = server.site_of_one(store, "anna", Role.ANALYST, ("127.0.0.1", PORT))
    browser = Browser(application(site), base_url=ADDRESS)
    browser.get(f"/?token={access.token}")
    return browser.get(address).text


def test_a_lake_of_several_currencies_has_them_in_the_column_of_its_setting() -> None:
    declared = dict.fromkeys(("card_currency", "code"), "string")
    row = {"card_currency": "USD", "code": "GBP"}
    by_name = Settings.model_validate({"columns": declared})
    by_setting = Settings.model_validate({"columns": declared, "currency": {"column": "code", "base": "EUR"}})
    assert (money.currencies(by_name, [row]), money.currencies(by_setting, [row])) == (["USD"], ["GBP"])
    assert (money.sum_currencies(by_name, ["USD"]), money.sum_currencies(by_setting, ["GBP"])) == (["USD"], ("EUR",))


def test_items_of_the_queue_have_the_currencies_of_their_payments(store: LocalStore) -> None:
    found = money.read_currencies(store, items.listed(store, small_lake.DAY))
    assert (found["alert0"], found["alert1"], found["alert2"], found["drawn8"]) == (["EUR"], ["USD"], [], [])
    assert "700.00 USD" in page(store, "/") and "600.00 EUR" in page(store, "/")


def test_a_case_shows_amounts_with_their_currency_and_where_the_country_changes(store: LocalStore) -> None:
    text = page(store, "/items/alert1")
    assert "2026-03-07 12:09:00 UTC: 700.00 USD, in FR" in text
    assert re.findall(r'<text class="tick" [^>]*>(DE|FR)</text>', text) == ["DE", "FR"]
    assert "<dd><bdi>700.00 USD</bdi></dd>" in text and '<td class="number">0.50 USD</td>' in text


def test_a_sum_of_several_currencies_names_them(store: LocalStore) -> None:
    assert "600.00 EUR + USD" in page(store, "/items/busy 2-4")


def test_the_time_axis_of_a_dossier_has_currency_and_country(store: LocalStore) -> None:
    html = document.render(dossier.dossier(store, "alert1"), datetime.now(UTC))
    assert "<title>2026-03-07 12:09:00: 700.00 USD in FR (1-4)</title>" in html


def test_an_amount_without_a_declared_currency_is_a_number(tmp_path: Path) -> None:
    store = LocalStore(Settings(lake=small_lake.make(tmp_path / "lake")))
    assert money.read_currencies(store, items.listed(store, small_lake.DAY)) == {}
    assert (money.amount(1234.5), money.amount(None), money.amount(2, ["EUR"])) == ("1,234.50", "", "2.00 EUR")
