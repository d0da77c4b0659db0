"""The commands of rates: what they print, and how they refuse."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from fraudlake import tables
from fraudlake.lake import open_lake
from fraudlake.settings import Settings
from tests.conftest import FraudlakeHere
from tests.plain_lake import fill, make

FRIDAY = date(2026, 3, 6)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake in EUR with two payments that have no rate."""
    declared = {"columns": {"currency": "string"}, "currency": {"base": "EUR"}}
    opened = open_lake(Settings.model_validate({"lake": tmp_path / "lake", **declared}))
    silver = opened.table(tables.SILVER_TRANSACTIONS)
    fill(tmp_path / "lake", silver, {"date": FRIDAY, "currency": "USD"}, {"date": date(2026, 3, 9)})
    return tmp_path / "lake"


def test_rates_are_loaded_listed_and_corrected(root: Path, tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    lake = ("--lake", str(root))
    file = tmp_path / "ecb.csv"
    assert fraudlake_here(*lake, "rates", "list").stdout == "no rates: 'fraudlake rates load FILE' adds some\n"
    file.write_text("date,currency,rate\n2026-03-06,USD,1.25\n2026-03-06,JPY,160\n")
    loaded = fraudlake_here(*lake, "rates", "load", str(file), "--inverted", "--author", "ann")
    assert loaded.stdout.splitlines() == [
        "2 rates loaded, 0 were known already",
        "2 payments of silver without a rate: once their rates are loaded, run 'fraudlake replay --from 2026-03-06 "
        "--to 2026-03-09 --apply'",
    ]
    assert fraudlake_here(*lake, "rates", "list").stdout.splitlines() == [
        "JPY  2026-03-06 to 2026-03-06  1 rate, the last is 0.00625 EUR",
        "USD  2026-03-06 to 2026-03-06  1 rate, the last is 0.8 EUR",
    ]

    file.write_text("date,currency,rate\n2026-03-06,USD,0.75\n")
    refused = fraudlake_here(*lake, "rates", "load", str(file))
    assert (refused.returncode, refused.stderr) == (
        2,
        "fraudlake: ecb.csv: USD on 2026-03-06 is 0.75 and differs from the lake's 0.8: leave it out, or give "
        "--correct\n",
    )
    corrected = fraudlake_here(*lake, "rates", "load", str(file), "--correct", "--author", "bob")
    assert corrected.stdout.startswith(
        "0 rates loaded, 1 corrected, 0 were known already\n"
        "payments of silver keep the amounts by the earlier rates: 'fraudlake replay' computes days again\n"
    )
    of_usd = fraudlake_here(*lake, "rates", "list", "--currency", "usd").stdout.splitlines()
    assert [line[:25] for line in of_usd] == ["2026-03-06  0.75 EUR  ecb", "2026-03-06  0.8 EUR  ecb."]
    assert of_usd[1].endswith("  corrected")


def test_payments_without_a_rate_are_listed(root: Path, fraudlake_here: FraudlakeHere) -> None:
    listed = fraudlake_here("--lake", str(root), "rates", "missing").stdout.splitlines()
    assert listed[:2] == ["2026-03-06  USD  1 payment", "2026-03-09  no currency  1 payment"]
    as_json = json.loads(fraudlake_here("--lake", str(root), "--json", "rates", "missing").stdout)
    assert as_json["missing"][1] == {"date": "2026-03-09", "currency": None, "transactions": 1}


def test_the_status_names_the_base_currency(root: Path, fraudlake_here: FraudlakeHere) -> None:
    assert "definition: columns currency; base currency EUR; " in fraudlake_here("--lake", str(root), "status").stdout


def test_a_lake_of_one_currency_takes_no_rates(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    lake = ("--lake", str(make(tmp_path / "plain")))
    refused = [fraudlake_here(*lake, "rates", *command) for command in (["load", "rates.csv"], ["list"], ["missing"])]
    assert [one.returncode for one in refused] == [2, 2, 2]
    assert all("the lake has amounts of one currency: declare [currency]" in one.stderr for one in refused)
