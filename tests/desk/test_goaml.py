"""goAML: a decided case becomes a report in the order of the documents, and what is missing is named at once."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fraudlake.errors import UsageError
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log, items
from fraudlake.settings import Settings
from fraudlake.settings.currency import Currency
from fraudlake_desk.documents import goaml
from fraudlake_desk.documents.goaml import Made
from fraudlake_desk.review import actions, marks
from tests.conftest import FraudlakeHere
from tests.desk import small_lake

NOW = datetime(2026, 3, 9, 8, tzinfo=UTC)
CUSTOMERS = {"title": "Customer", "table": "customers", "key": "account"}
FILLED = """
rentity_id = 42
submission_code = "E"
report_code = "STR"
entity_reference = { case = "case_id" }
submission_date = { report = "made_at" }
currency_code_local = "EUR"
reason = { decision = "reason" }
action = "the card is blocked"
[reporting_person]
first_name = "Ann"
last_name = "O'Hara & <Sons>"
[report_indicators]
indicator = ["CARD", "NEW"]
[transaction]
transactionnumber = { column = "transaction_id" }
date_transaction = { column = "timestamp" }
transmode_code = "C"
amount_local = { column = "amount" }
transaction_location = { column = "terminal_id" }
[transaction.t_from_my_client]
from_funds_code = "K"
from_country = "DE"
[transaction.t_from_my_client.from_account]
institution_name = "Bank"
swift = "BANKDEFF"
account = { column = "account_id" }
account_name = { panel = "Customer", column = "name" }
[transaction.t_to]
to_funds_code = "K"
to_country = "FR"
[transaction.t_to.to_entity]
name = { column = "terminal_id" }
"""
ORDER = """
report rentity_id submission_code report_code entity_reference submission_date currency_code_local
reporting_person first_name last_name reason action
transaction transactionnumber transaction_location date_transaction transmode_code amount_local
t_from_my_client from_funds_code from_account institution_name swift account account_name from_country
t_to to_funds_code to_entity name to_country
transaction transactionnumber transaction_location date_transaction transmode_code amount_local
t_from_my_client from_funds_code from_account institution_name swift account account_name from_country
t_to to_funds_code to_entity name to_country
report_indicators indicator indicator
"""
"""Elements in the order of goAML's documents, of a report of two payments."""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    root = small_lake.make(tmp_path / "lake")
    write_deltalake(root / "tables" / "customers", pa.table({"account": ["A1"], "name": ["Ada\x00\x1b"]}))
    return LocalStore(Settings(lake=root, panels=[CUSTOMERS]))


def decide(store: LocalStore, verdict: Any = "fraud", *payments: str) -> None:
    item = items.require(store, "alert1")
    fraud = marks.amounts(store, item, payments) if verdict == "fraud" else None
    make = partial(
        actions.decide, item, analyst="ann", verdict=verdict, event_id="e", fraud=fraud, reason="stolen card"
    )
    event_log.record(store, item, "e", make)


def made(store: LocalStore, text: str) -> Made:
    return goaml.report(store, items.require_named(store, "alert1"), tomllib.loads(text), NOW)


def names(element: Element) -> list[str]:
    return [element.tag, *(name for inner in element for name in names(inner))]


def test_the_payments_of_a_verdict_are_reported_in_the_order_of_the_documents(store: LocalStore) -> None:
    decide(store, "fraud", "1-4", "1-2")

    report = made(store, FILLED)

    root = ElementTree.fromstring(report.xml)
    assert names(root) == ORDER.split()
    assert [one.text for one in root.iter("transactionnumber")] == ["1-2", "1-4"]
    assert [one.text for one in root.iter("amount_local")] == ["13.00", "700.00"]
    assert [one.text for one in root.iter("date_transaction")] == ["2026-03-03T12:07:00", "2026-03-07T12:09:00"]
    assert (root.findtext("entity_reference"), root.findtext("reason")) == ("alert1", "stolen card")
    assert root.findtext("reporting_person/last_name") == "O'Hara & <Sons>"
    assert root.findtext("submission_date") == "2026-03-09T08:00:00"
    assert report.payments == 2


def test_letters_that_xml_does_not_have_are_replaced_and_named(store: LocalStore) -> None:
    decide(store, "fraud", "1-4")
    report = made(store, FILLED)
    names_ = [one.text for one in ElementTree.fromstring(report.xml).iter("account_name")]
    assert (names_, report.replaced) == (
        ["Ada\ufffd\ufffd"],
        ["transaction.t_from_my_client.from_account.account_name"],
    )


def test_all_that_is_missing_unknown_or_wrong_is_named_at_once(store: LocalStore) -> None:
    decide(store, "fraud", "1-4")
    changes = {
        "rentity_id = 42": "rentity_id = 'x'",
        'currency_code_local = "EUR"': 'currency_code_local = "Euro"\ncolour = 1',
        'first_name = "Ann"': "",
        "[transaction.t_to.to_entity]": "[transaction.t_to.to_person]",
        'column = "amount"': 'column = "amounts"',
        '"BANKDEFF"': '"BANKDEFFXXXX"',
        '"Customer"': '"Client"',
    }
    text = FILLED
    for before, after in changes.items():
        text = text.replace(before, after)

    with pytest.raises(UsageError) as error:
        made(store, text)

    assert sorted(str(error.value).split("; ")) == [
        "longer than 11 letters: transaction.t_from_my_client.from_account.swift",
        "missing: reporting_person.first_name, transaction.t_to.to_person.first_name, "
        "transaction.t_to.to_person.last_name",
        "must be a currency such as EUR: currency_code_local",
        "must be a whole number: rentity_id",
        "there are no such fields: colour, transaction.t_to.to_person.name",
        "there is no such panel in the settings: Client",
        "there is no such source: transaction.amount_local = {'column': 'amounts'}",
        "without a value in a payment: transaction.amount_local",
    ]


def test_an_amount_in_another_currency_is_not_reported_as_one_in_local_currency(store: LocalStore) -> None:
    decide(store, "fraud", "1-4", "1-2")
    in_terminals = store.settings.model_copy(update={"currency": Currency(column="terminal_id", base="EUR")})
    foreign = LocalStore(in_terminals)  # the terminals of the small lake are the codes

    with pytest.raises(
        UsageError, match=r"^in T\d(, T\d)* and not in currency_code_local.*: transaction\.amount_local$"
    ):
        made(foreign, FILLED.replace('{ panel = "Customer", column = "name" }', '"Ada"'))


def test_an_empty_template_lacks_what_it_leaves_empty(store: LocalStore) -> None:
    decide(store, "fraud", "1-4")
    text = goaml.template()

    with pytest.raises(UsageError, match=r"^missing: ") as error:
        made(store, text)

    empty = {line.split(" = ")[0] for line in text.splitlines() if ' = ""' in line and not line.startswith("#")}
    named = {name.rpartition(".")[2] for name in str(error.value).removeprefix("missing: ").split(", ")}
    assert named == empty | {"indicator"}


def test_each_line_of_the_template_is_a_field_also_the_optional_ones() -> None:
    lines = goaml.template().splitlines()
    whole = [line.removeprefix("# ") for line in lines if " = " in line or "[" in line]
    fields = [line for line in whole if not line.startswith(("#", "Instead", " "))]
    assert {'rentity_branch = ""', "[location]", "[transaction.t_to.to_account]"} <= {
        one.split("  #")[0] for one in fields
    }
    assert tomllib.loads("\n".join(fields))["transaction"]["t_to"]["to_account"]["iban"] == ""


@pytest.mark.parametrize("verdict", [None, "genuine", "unsure"])
def test_what_is_not_called_fraud_is_not_reported(store: LocalStore, verdict: str | None) -> None:
    if verdict:
        decide(store, verdict)
    with pytest.raises(UsageError, match="has no verdict of fraud"):
        made(store, FILLED)


def test_a_field_of_two_that_exclude_each_other_is_refused(store: LocalStore) -> None:
    decide(store, "fraud", "1-4")
    with pytest.raises(
        UsageError, match=r"give only one of: transaction\.t_to\.to_person or transaction\.t_to\.to_entity"
    ):
        made(store, FILLED + '[transaction.t_to.to_person]\nfirst_name = "a"\n')


def test_commands_write_a_template_and_a_report(
    store: LocalStore, tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    decide(store, "fraud", "1-4")
    mapping, out = tmp_path / "goaml.toml", tmp_path / "report.xml"
    assert fraudlake_here("goaml", "template", "--out", str(mapping)).returncode == 0
    again = fraudlake_here("goaml", "template", "--out", str(mapping))
    assert (again.returncode, "it exists" in again.stderr) == (2, True)
    call = ("--lake", str(store.root), "goaml", "report", "alert1", "--mapping", str(mapping), "--out", str(out))
    empty = fraudlake_here(*call)
    assert empty.returncode == 2 and "missing: currency_code_local" in empty.stderr and not out.exists()
    mapping.write_text(FILLED.replace('account_name = { panel = "Customer", column = "name" }', ""))
    done = fraudlake_here(*call)
    assert (done.returncode, done.stdout.strip()) == (0, f"{out}: 1 payment")
    assert ElementTree.parse(out).findtext("transaction/transactionnumber") == "1-4"
