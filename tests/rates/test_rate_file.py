"""A file of rates is read as a whole or refused in a line; its rates are appended, and the latest one counts."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake import open_lake
from fraudlake.lake.local_store import LocalStore
from fraudlake.rates import rate_file, rate_table
from fraudlake.settings import Settings
from tests.plain_lake import fill

MONDAY = date(2026, 3, 2)
TUESDAY = date(2026, 3, 3)


def csv(folder: Path, *lines: str, header: str = "date,currency,rate") -> Path:
    file = folder / "rates.csv"
    file.write_text("\n".join([header, *lines]))
    return file


def test_csv_and_parquet_have_the_same_rates(tmp_path: Path) -> None:
    expected = [
        {"date": MONDAY, "currency": "USD", "rate": 0.92},
        {"date": TUESDAY, "currency": "JPY", "rate": 0.0062},
    ]
    with_semicolons = csv(
        tmp_path, "USD; 2026-03-02;0.92;x", "JPY;2026-03-03 ;6.2e-3;", header="currency;date;rate;note"
    )
    typed = tmp_path / "typed.parquet"
    days = pa.array([datetime(2026, 3, 2), datetime(2026, 3, 3)], pa.timestamp("us"))
    decimals = pa.array([Decimal("0.9200"), Decimal("0.0062")])
    pq.write_table(pa.table({"date": days, "currency": ["USD", "JPY"], "rate": decimals}), typed)

    assert rate_file.read(with_semicolons, "EUR").to_pylist() == expected
    assert rate_file.read(typed, "EUR").to_pylist() == expected


def test_an_inverted_file_has_what_the_base_costs(tmp_path: Path) -> None:
    read = rate_file.read(csv(tmp_path, "2026-03-02,USD,1.25", "2026-03-02,JPY,160"), "EUR", is_inverted=True)
    assert read["rate"].to_pylist() == [0.8, 0.00625]


REFUSED = {
    "2026-02-30,USD,1": "date '2026-02-30' must be a day such as 2026-03-07",
    "02.03.2026,USD,1": "date '02.03.2026' must be a day such as 2026-03-07",
    ",USD,1": "date '' must be a day such as 2026-03-07",
    "2026-03-02,usd,1": "currency 'usd' must be a code of three capital letters such as USD",
    "2026-03-02,EURO,1": "currency 'EURO' must be a code of three capital letters such as USD",
    "2026-03-02,,1": "currency '' must be a code of three capital letters such as USD",
    "2026-03-02,EUR,1": "EUR is the base currency, whose rate is 1: leave it out",
    "2026-03-02,USD,0": "rate '0' of USD on 2026-03-02 must be a number from 1e-12 to 1e+12",
    "2026-03-02,USD,-1": "rate '-1' of USD on 2026-03-02 must be a number from 1e-12 to 1e+12",
    "2026-03-02,USD,inf": "rate 'inf' of USD on 2026-03-02 must be a number from 1e-12 to 1e+12",
    "2026-03-02,USD,nan": "rate 'nan' of USD on 2026-03-02 must be a number from 1e-12 to 1e+12",
    "2026-03-02,USD,1e400": "rate '1e400' of USD on 2026-03-02 must be a number from 1e-12 to 1e+12",
    "2026-03-02,USD,": "rate '' of USD on 2026-03-02 must be a number from 1e-12 to 1e+12",
    '2026-03-02,USD,"0,92"': "rate '0,92' of USD on 2026-03-02 must be a number from 1e-12 to 1e+12",
    "2026-03-03,GBP,1.2": "has 2 rates of GBP on 2026-03-03: leave one",
}
"""A second line of a file, and why the file is refused."""


@pytest.mark.parametrize("line", REFUSED)
def test_a_wrong_value_refuses_the_file_in_a_line(tmp_path: Path, line: str) -> None:
    file = csv(tmp_path, "2026-03-03,GBP,1.17", line)
    with pytest.raises(UsageError) as refused:
        rate_file.read(file, "EUR")
    assert str(refused.value) == f"{file}: {REFUSED[line]}"


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    no_rate = csv(tmp_path, "2026-03-02,USD", header="date,currency")
    with pytest.raises(UsageError, match="needs the columns date, currency, rate, each once: it has date, currency"):
        rate_file.read(no_rate, "EUR")
    with pytest.raises(UsageError, match="no such file"):
        rate_file.read(tmp_path / "gone.csv", "EUR")
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(UsageError, match="cannot be read"):
        rate_file.read(tmp_path / "text.parquet", "EUR")
    nested = tmp_path / "nested.parquet"
    pq.write_table(pa.table({"date": ["2026-03-02"], "currency": [["USD"]], "rate": [0.92]}), nested)
    with pytest.raises(UsageError, match="the column currency is of list<element: string>: its values must be texts"):
        rate_file.read(nested, "EUR")
    (tmp_path / "wide.csv").write_text("date,currency,rate", "utf-16")
    with pytest.raises(UsageError, match=r"wide\.csv: is UTF-16: save it as CSV in UTF-8"):
        rate_file.read(tmp_path / "wide.csv", "EUR")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(UsageError, match="cannot be read"):
        rate_file.read(tmp_path / "empty.csv", "EUR")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A lake whose payments have a currency."""
    declared = {"columns": {"currency": "string"}, "currency": {"base": "EUR"}}
    open_lake(Settings(lake=tmp_path / "lake", **declared))
    return LocalStore(Settings(lake=tmp_path / "lake"))


def given(*rows: tuple[date, str, float]) -> pa.Table:
    days, codes, values = zip(*rows, strict=True)
    return pa.table({"date": pa.array(days, pa.date32()), "currency": codes, "rate": values})


def counting(store: LocalStore) -> list[tuple[date, str, float]]:
    """The rates that count."""
    codes = [row["currency"] for row in rate_table.summary(store)]
    rows = [row for code in codes for row in rate_table.read_currency(store, code) if row["nth"] == 1]
    return sorted((row["date"], row["currency"], row["rate"]) for row in rows)


def test_rates_are_added_once(store: LocalStore) -> None:
    monday = (MONDAY, "USD", 0.92), (MONDAY, "GBP", 1.17)
    assert rate_table.load(store, given(*monday), "a.csv", "ann") == rate_table.Loaded(2, 0, 0)
    assert rate_table.load(store, given((TUESDAY, "USD", 0.93), *monday), "b.csv", "ann") == rate_table.Loaded(1, 0, 2)
    assert counting(store) == [(MONDAY, "GBP", 1.17), (MONDAY, "USD", 0.92), (TUESDAY, "USD", 0.93)]
    assert rate_table.summary(store) == [
        {"currency": "GBP", "rates": 1, "first": MONDAY, "last": MONDAY, "latest": 1.17},
        {"currency": "USD", "rates": 2, "first": MONDAY, "last": TUESDAY, "latest": 0.93},
    ]


def test_another_rate_of_a_day_is_refused_unless_it_is_a_correction(store: LocalStore) -> None:
    rate_table.load(store, given((MONDAY, "USD", 0.92), (MONDAY, "GBP", 1.17)), "a.csv", "ann")
    other = given((TUESDAY, "USD", 0.93), (MONDAY, "USD", 9.2), (MONDAY, "GBP", 11.7))
    with pytest.raises(UsageError) as refused:
        rate_table.load(store, other, "b.csv", "bob")
    assert str(refused.value) == (
        "b.csv: GBP on 2026-03-02 is 11.7 and differs from the lake's 1.17 (and 1 more): leave it out, or "
        "give --correct"
    )
    assert counting(store) == [(MONDAY, "GBP", 1.17), (MONDAY, "USD", 0.92)]

    assert rate_table.load(store, other, "b.csv", "bob", is_correction=True) == rate_table.Loaded(1, 2, 0)
    assert counting(store) == [(MONDAY, "GBP", 11.7), (MONDAY, "USD", 9.2), (TUESDAY, "USD", 0.93)]
    shown = [(row["rate"], row["source"], row["author"], row["nth"]) for row in rate_table.read_currency(store, "GBP")]
    assert shown == [(11.7, "b.csv", "bob", 1), (1.17, "a.csv", "ann", 2)]


def test_a_correction_counts_though_the_clock_goes_back(store: LocalStore) -> None:
    ahead = {"date": MONDAY, "currency": "USD", "rate": 0.92, "at": datetime(2999, 1, 1)}
    fill(store.root, tables.SILVER_RATES, ahead)
    rate_table.load(store, given((MONDAY, "USD", 0.93)), "b.csv", "bob", is_correction=True)
    assert counting(store) == [(MONDAY, "USD", 0.93)]


def test_payments_without_a_rate_are_counted_by_day_and_currency(store: LocalStore, tmp_path: Path) -> None:
    silver = store_table(store)
    rows = [
        {"date": TUESDAY, "currency": "usd ", "amount": 1.0},
        {"date": TUESDAY, "currency": "USD", "amount": 2.0},
        {"date": MONDAY, "currency": None, "amount": 3.0},
        {"date": MONDAY, "currency": "EUR", "amount": 4.0, "base_amount": 4.0},
    ]
    fill(store.root, silver, *rows)
    assert rate_table.missing(store) == [rate_table.Missing(MONDAY, None, 1), rate_table.Missing(TUESDAY, "USD", 2)]
    assert rate_table.count_missing(store) == (2, 1)


def store_table(store: LocalStore) -> tables.Table:
    return tables.with_declared(tables.SILVER_TRANSACTIONS, store.settings.silver_columns)


def test_a_lake_of_one_currency_has_no_rates(tmp_path: Path) -> None:
    open_lake(Settings(lake=tmp_path / "lake"))
    plain = LocalStore(Settings(lake=tmp_path / "lake"))
    assert "base_amount" not in store_table(plain).column_names
    assert rate_table.count_missing(plain) == (0, 0)
    with pytest.raises(UsageError, match="the lake has amounts of one currency"):
        rate_table.missing(plain)
