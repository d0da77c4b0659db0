"""The dossier: all that is known of a case, with the places of its rows and hashes that can be computed again."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from fraudlake import __version__, tables
from fraudlake.errors import UsageError
from fraudlake.lake import chain
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import cases, event_log
from fraudlake.review.event import Event
from fraudlake.review.item_state import State
from fraudlake.settings import load
from fraudlake.settings.columns import DeclaredColumn
from fraudlake_desk.documents import document
from fraudlake_desk.documents.dossier import dossier
from fraudlake_desk.review import actions
from tests.conftest import FraudlakeHere
from tests.desk import conftest as made
from tests.desk import small_lake
from tests.desk.page import Page

NOW = made.NOON + 10 * made.DAY


def page(root: Path, name: str) -> Page:
    return Page(document.render(dossier(LocalStore(load(lake=root)), name), NOW))


@pytest.fixture(scope="module")
def first(made_lake: Path) -> Page:
    return page(made_lake, "a2")


def test_the_cover_says_what_it_is_and_when_and_by_what_it_was_made(made_lake: Path) -> None:
    html = document.render(dossier(LocalStore(load(lake=made_lake)), "a1"), NOW)
    assert f"Made at 2026-03-17 12:00:00 UTC by fraudlake {__version__}, in 5 parts." in html
    assert re.findall(r"<h2>(.*?)</h2>", html) == [
        "Part 1 of 5: What happened",
        "Part 2 of 5: What was known when",
        "Part 3 of 5: Where the rows are from",
        "Part 4 of 5: What decided",
        "Part 5 of 5: Who decided",
    ]


def test_no_path_of_the_machine_is_in_it(made_lake: Path) -> None:
    html = document.render(dossier(LocalStore(load(lake=made_lake)), "a1"), NOW)
    assert str(made_lake.parent) not in html and "/landing" not in html
    assert Page(html).facts["lake"] == made_lake.name


def test_any_alert_names_the_case(first: Page) -> None:
    assert (first.facts["case"], first.facts["account"], first.facts["verdict"]) == ("a1", "1", "fraud")
    assert first.blocks["Alerts"].column(7) == ["a1", "a2"]


def test_the_time_axis_has_the_accounts_payments(first: Page) -> None:
    amounts = [row["amount"] for row in made.payments() if row["account_id"] == "1"]
    # What belongs to the case is drawn last.
    assert first.blocks["Transactions of the account"].marks == [amounts[2], amounts[0], amounts[1]]


def test_the_time_axis_of_a_terminal_has_the_payments_of_all_its_accounts(tmp_path: Path) -> None:
    root = small_lake.make(tmp_path / "lake")
    small_lake.add_terminal_case(root)
    paid = [row for row in small_lake.transactions() if row["terminal_id"] == "T0" and row["date"] == small_lake.DAY]

    block = page(root, "busy 4-4").blocks["Transactions of the terminal"]

    assert sorted(block.marks) == sorted(row["amount"] for row in paid)
    assert "Terminal T0, from" in block.text and "1,000.00 of account A4 (4-4)" in block.text
    assert [(row[0], row[1], row[2], float(row[3]), row[4]) for row in block.rows[1:]] == [
        ("1", "A2", "2", 800.5, "2"),
        ("2", "A0", "2", 600.5, "1"),
        ("3", "A4", "2", 1000.5, "1"),
        ("4", "A6", "2", 1200.5, "0"),
        ("5", "A8", "2", 1400.5, "0"),
    ]


def test_a_row_has_its_file_and_row_and_a_hash_that_can_be_checked(first: Page) -> None:
    rows = first.blocks["Rows"].rows[1:]
    assert [(row[1], float(row[2]), row[3], row[4], row[5]) for row in rows] == [
        ("1", 0.5, "large: SMALL", "a/part-0, row 0", "t0"),
        ("1", 600.0, f"large: LARGE, {made.HOSTILE}: LARGE", "a/part-0, row 1", "t1"),
    ]
    kept = first.blocks["Rows as they landed"].rows[1:]
    assert [row[0] for row in kept] == [row[4] for row in rows]
    for _, text, digest in kept:
        assert hashlib.sha256(text.encode()).hexdigest() == digest
    both = hashlib.sha256("\n".join(sorted(row[2] for row in kept)).encode()).hexdigest()
    assert both in first.blocks["Rows as they landed"].text
    landed = json.loads(kept[1][1])
    assert (landed["accountId"], landed["amount"], landed["_source_row"]) == ("1", 600.0, 1)
    assert first.blocks["Files"].rows[1][4] == made.DIGEST


def test_a_message_has_its_topic_partition_and_offset(made_lake: Path, tmp_path: Path) -> None:
    root = made.empty_lake(tmp_path / "lake")
    made.write(root, tables.BRONZE_TRANSACTIONS, made.landed())
    made.write(root, tables.SILVER_TRANSACTIONS, made.payments())
    alert = made.alert("k1", "large", "t9")
    made.write(root, tables.SILVER_ALERTS, [alert])
    unscored = dict(made.predictions()[9], scored_at=None, reasons=None)
    made.write(root, tables.GOLD_FRAUD_PREDICTIONS, [unscored])
    case = dict(made.case("a5", "a5"), case_id="k1", alert_ids=["k1"], transaction_ids=["t9"], account_id="4")
    made.write(root, tables.GOLD_CASES, [case])
    (row,) = page(root, "k1").blocks["Rows as they landed"].rows[1:]
    assert row[0] == "payments, partition 2, offset 9"
    assert json.loads(row[1])["_offset"] == 9


def test_features_and_model_are_those_that_scored(first: Page) -> None:
    features = {row[0]: row[1:] for row in first.blocks["Features as known then"].rows[1:]}
    assert [float(value) for value in features["probability"]] == [0.02, 0.91]
    assert features["reasons"] == ["-", made.HOSTILE]
    assert features["model version"] == ["3", "3"]
    assert first.blocks["Model"].rows[1][2] == hashlib.sha256(b"model").hexdigest()


def test_rules_have_the_version_that_raised_the_alert_with_author_and_reason(first: Page) -> None:
    assert [(row[0], row[1], row[2], row[3]) for row in first.blocks["Rules"].rows[1:]] == [
        ("large", "2", "live", "ann"),
        (made.HOSTILE, "1", "live", "ann"),
    ]


def test_the_review_is_complete(made_lake: Path) -> None:
    shown = page(made_lake, "a4")
    assert [(row[2], row[3], row[4]) for row in shown.blocks["Review"].rows[1:]] == [
        ("bob", "verdict", "fraud"),
        ("bob", "corrected", "genuine"),
    ]
    assert shown.facts["verdict"] == "genuine"
    assert [row[1] for row in shown.blocks["Verdicts on transactions"].rows[1:]] == ["fraud", "genuine"]


def test_what_was_known_is_in_the_order_of_time(made_lake: Path) -> None:
    rows = page(made_lake, "a4").blocks["In the order of time"].rows[1:]
    assert [(row[0][:10], row[1], row[4]) for row in rows] == [
        ("2026-03-08", "paid", "-"),
        ("2026-03-10", "alert", "large raised a4"),
        ("2026-03-10", "score", "probability 0.55"),
        ("2026-03-11", "verdict", f"fraud: {made.HOSTILE}"),
        ("2026-03-13", "verdict", f"genuine: {made.HOSTILE}"),
    ]


def decided(root: Path, reason: str | None) -> Path:
    """Give an empty lake the cases, and a chain of two events: t1 of the first case is fraud, and then t0, too."""
    made.write(root, tables.SILVER_TRANSACTIONS, made.payments())
    made.write(root, tables.SILVER_ALERTS, made.alerts())
    made.write(root, tables.GOLD_CASES, made.cases())
    store, item = LocalStore(load(lake=root)), cases.item(made.cases()[0])

    def decide(name: str, fraud: dict[str, float], is_correction: bool) -> None:
        def make(state: State) -> Event:
            return actions.decide(item, state, "ann", "fraud", name, fraud, reason=reason, is_correction=is_correction)

        event_log.record(store, item, name, make, NOW)

    decide("first", {"t1": 600.0}, False)
    decide("second", {"t1": 600.0, "t0": 0.5}, True)
    return root


def test_a_decision_names_the_payments_that_are_fraud_and_their_amount(tmp_path: Path) -> None:
    root = decided(made.empty_lake(tmp_path / "lake"), "seen")
    rows = page(root, "a1").blocks["Payments that were marked as fraud"].rows[1:]
    assert [(row[0], row[3], float(row[4]), row[5]) for row in rows] == [
        ("1", "1", 600.0, "t1"),
        ("2", "2", 600.5, "t1, t0"),
    ]


def test_a_decision_without_a_reason_says_so(tmp_path: Path) -> None:
    shown = page(decided(made.empty_lake(tmp_path / "lake"), None), "a1")
    assert shown.blocks["Review"].column(5) == ["no reason given"] * 2


def test_the_chain_of_the_events_can_be_verified_by_what_the_dossier_says(tmp_path: Path) -> None:
    root = decided(made.empty_lake(tmp_path / "lake"), "seen")
    block = page(root, "a1").blocks["Chain of the events"]
    events = event_log.read_events(LocalStore(load(lake=root)))
    assert [(row[0], row[2]) for row in block.rows[1:]] == [("1", events[0].hash), ("2", events[1].hash)]
    known = re.search(r"it ended with (\d+):([0-9a-f]{64})", block.text)
    assert known and "fraudlake audit verify" in block.text
    assert not chain.verify(events, (int(known[1]), known[2])).faults
    assert chain.verify(events[:1], (int(known[1]), known[2])).faults


@pytest.mark.parametrize(
    ("given", "shown"), [(["EUR", "EUR"], "EUR"), (["EUR", "SEK"], "EUR, SEK"), ([None, None], None)]
)
def test_the_currency_is_that_of_the_declared_column(
    tmp_path: Path, given: list[str | None], shown: str | None
) -> None:
    root = made.empty_lake(tmp_path / "lake")
    column = {"from": "currency", "type": "string"}
    defined = {"change": 1, "setting": "columns", "value": json.dumps({"currency": column}), "author": "settings"}
    made.write(root, tables.SILVER_DEFINITION, [{**defined, "changed_at": made.NOON}])
    shutil.rmtree(root / "tables" / "silver_transactions")
    silver = tables.with_declared(tables.SILVER_TRANSACTIONS, {"currency": DeclaredColumn.model_validate(column)})
    paid = zip(made.payments(), [*given, *["USD"] * 8], strict=True)
    made.write(root, silver, [dict(row, currency=currency) for row, currency in paid])
    made.write(root, tables.SILVER_ALERTS, made.alerts())
    made.write(root, tables.GOLD_CASES, made.cases())

    html = document.render(dossier(LocalStore(load(lake=root)), "a1"), NOW)

    currency = shown or "account currency"
    assert Page(html).facts["amounts are in"] == currency
    assert f"amounts are in {currency}.</footer>" in html


def test_letters_without_a_shape_are_shown_and_the_hash_is_of_what_one_sees(tmp_path: Path) -> None:
    name = " 7\u200b  \u202e"
    root = made.empty_lake(tmp_path / "lake")
    paid = [dict(row, account_id=name) for row in made.payments()[:2]]
    made.write(root, tables.SILVER_TRANSACTIONS, paid)
    made.write(root, tables.BRONZE_TRANSACTIONS, [dict(row, accountId=name) for row in made.landed()[:2]])
    made.write(root, tables.SILVER_ALERTS, [dict(alert, account_id=name) for alert in made.alerts()[:2]])
    made.write(root, tables.GOLD_CASES, [dict(made.cases()[0], account_id=name, entity_key=name)])

    html = document.render(dossier(LocalStore(load(lake=root)), "a1"), NOW)
    blocks = Page(html).blocks

    assert set(blocks["Rows"].column(1)) == set(blocks["Alerts"].column(3)) == {"␣7⟨U+200B⟩ ␣⟨U+202E⟩"}
    for _, text, digest in blocks["Rows as they landed"].rows[1:]:
        assert json.loads(text)["accountId"] == name and r"7\u200b \u0020\u202e" in text
        assert hashlib.sha256(text.encode()).hexdigest() == digest


def test_hostile_ids_notes_and_sentences_are_texts(made_lake: Path) -> None:
    shown = page(made_lake, "a5")
    assert {"script", "b"}.isdisjoint(shown.tags)
    assert not [name for name in shown.attributes if name.startswith("on")]
    assert shown.facts["account"] == made.HOSTILE
    assert page(made_lake, "a1").blocks["Review"].rows[1][6] == made.HOSTILE


def test_a_case_without_scores_and_review_says_what_to_run(tmp_path: Path) -> None:
    root = made.empty_lake(tmp_path / "lake")
    made.write(root, tables.GOLD_CASES, made.cases())
    blocks = page(root, "a3").blocks
    assert "fraudlake score" in blocks["Model"].text
    assert "fraudlake review take" in blocks["Review"].text
    assert "does not hold the transactions any more" in blocks["Rows"].text


@pytest.mark.parametrize("name", ["nothing", "' OR 1 = 1 --", made.HOSTILE])
def test_an_unknown_case_is_one_line(made_lake: Path, name: str) -> None:
    with pytest.raises(UsageError, match="there is no such case"):
        dossier(LocalStore(load(lake=made_lake)), name)


def test_the_command_writes_the_file_and_names_an_unknown_case(
    made_lake: Path, tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    done = fraudlake_here("--lake", str(made_lake), "--json", "dossier", "a3")
    assert json.loads(done.stdout) == {"file": "dossier-a3.html", "case": "a3"}
    assert Page((tmp_path / "dossier-a3.html").read_text()).facts["case"] == "a3"
    failed = fraudlake_here("--lake", str(made_lake), "dossier", "nothing")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr == "fraudlake: nothing: there is no such case: 'fraudlake cases' lists them\n"
