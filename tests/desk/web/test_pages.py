"""Pages: every figure is its table's, hostile texts are texts, and what is missing is named."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from starlette.testclient import TestClient

from fraudlake.errors import FraudlakeError
from fraudlake.lake.local_store import LocalStore
from fraudlake_desk import rules
from fraudlake_desk.web import case_page
from fraudlake_desk.web.access import Person, PlatformAccess
from fraudlake_desk.web.application import application
from fraudlake_desk.web.role import RoleByGroup
from fraudlake_desk.web.site import Site
from tests.desk import small_lake
from tests.desk.page import text_of
from tests.desk.small_lake import HOSTILE, SENTENCE
from tests.desk.web.conftest import Open
from tests.workspace.warehouse import Warehouse

PAGES = (
    "/",
    "/items/alert2",
    "/items/drawn8",
    "/accounts/A7",
    "/rules",
    "/rules/small_then_large",
    "/health",
    "/approvals",
)
LIKELY = {"kind": "model", "name": "likely", "threshold": 0.5}
PARTS = (
    *("/items/alert2/shared", "/items/alert1/links"),
    *("/rules/small_then_large/backtest", "/rules/small_then_large/backtest?large_above=900"),
)


PART = {"x-part": "1"}
"""A script asks for a part of a page."""


@pytest.mark.parametrize("page", [*PAGES, *PARTS])
def test_hostile_ids_and_sentences_are_texts(browse: Open, page: str) -> None:
    answer = browse().get(page)
    assert answer.status_code == 200
    assert "<script>" not in answer.text and "<img" not in answer.text


def test_a_hostile_account_has_its_page(browse: Open) -> None:
    browser = browse()
    queue = browser.get("/").text
    (address,) = {html.unescape(one) for one in re.findall(r'data-href="(/items/alert9[^"]*)"', queue)}
    page = text_of(browser.get(address).text)
    assert HOSTILE in page and SENTENCE in page
    other = browser.get("/items/alert1/shared", headers=PART).text  # which shares the terminal with it
    (link,) = re.findall(r'href="(/accounts/%3Cimg[^"]*)"', other)
    assert HOSTILE in text_of(browser.get(link).text)


def test_the_queue_shows_the_rows_of_its_table_in_order(browse: Open) -> None:
    def shown(**settings: object) -> list[str]:
        rows = re.findall(r"<tr data-href.*?</tr>", browse(**settings).get("/").text, re.DOTALL)
        return [re.sub(r"^(\d+) open( late)?( drawn)? ", r"\1\2 ", text_of(row)) for row in rows]

    expected = [
        f"{row['rank']} {row['reasons']} {row['entity_key']} {row['amount_at_risk']:,.2f}"
        + (f" {row['probability']:.1%}" if row.get("probability") else "")
        for row in small_lake.queue()
    ]
    assert shown(review_limit=timedelta(days=36_500)) == expected
    assert shown() == [row.replace(" ", " late ", 1) for row in expected]


def test_a_case_shows_its_transactions_evidence_and_score(browse: Open) -> None:
    page = browse().get("/items/alert2").text
    own = [row for row in small_lake.transactions() if row["account_id"] == "A2"]
    marks = re.findall(r'<g class="mark" data-value="([^"]*)"', page)
    assert sorted(map(float, marks)) == sorted(row["amount"] for row in own)
    assert page.count('class="ring live" cx="8"') == 1 and len(re.findall(r'class="ring live" cx="\d+\.', page)) == 1
    text = text_of(page)
    assert "SMALL 2026-03-07 12:13:00 0.50 T0 2-3" in text and "LARGE 2026-03-07 12:14:00 800.00 T0 2-4" in text
    assert "95.0% probability of fraud, payment of 800.00, model version 1 the amount is 800.00" in text


def test_a_case_shows_what_others_did_at_its_terminal(browse: Open) -> None:
    others = [row for row in small_lake.transactions() if row["terminal_id"] == "T0" and row["account_id"] != "A2"]
    labelled = sum(row["label"] for row in others)
    accounts = len({row["account_id"] for row in others})
    text = text_of(browse().get("/items/alert2/shared", headers=PART).text)
    assert text.startswith(
        f"Terminal T0 {accounts} other accounts, {len(others)} transactions, {labelled} labelled fraud"
    )


def test_links_are_drawn_and_listed_each_with_a_link(browse: Open, root: Path) -> None:
    """Accounts of odd numbers and the hostile one pay at T1."""
    decided = {"transaction_id": "3-4", "verdict": True, "decided_at": small_lake.NOON, "date": small_lake.DAY}
    small_lake.write(root, small_lake.tables.SILVER_VERDICTS, [decided])
    page = browse().get("/items/alert1/links", headers=PART).text
    drawn, listed = page.split("</svg>", 1)
    boxes = [text_of(box) for box in re.findall(r'<a href="[^"]+">.*?</a>', drawn)]
    assert [re.sub(r"^(.*): (.*) \1 \2$", r"\1: \2", box) for box in boxes[:3]] == [
        "A1: 1 alert",
        "terminal T1: 4 accounts, 1 fraud",
        "A3: 1 fraud, 1 alert",
    ]
    assert drawn.count('class="box fraud"') == 2 and drawn.count('class="link"') == 1 + 4
    assert "terminal T1 1 fraud 2 labelled A1 4 20 A3 1 fraud 1 alert 1 labelled" in text_of(listed)
    assert (
        'data-load="/items/alert2/links?days=14&amp;day=2026-03-07"'
        in browse().get("/items/alert2?day=2026-03-07").text
    )


def test_cases_and_accounts_show_what_tables_say_of_them_as_texts(browse: Open, root: Path) -> None:
    names = pa.table({"account": [HOSTILE, "A1"], "name": [SENTENCE, "Ann"]})
    write_deltalake(root / "tables" / "customers", names)
    given = [
        {"title": "Customer", "table": "customers", "key": "account"},
        {"title": "Gone", "query": "SELECT :key FROM gone"},
    ]
    browser = browse(panels=given)
    for page, account, name in (("/items/alert9", HOSTILE, SENTENCE), ("/accounts/A1", "A1", "Ann")):
        (address,) = re.findall(r'data-load="([^"]*/panels)', browser.get(page).text)
        part = browser.get(address).text
        assert (
            f"Customer account {account} account {account} name {name} Gone account {account} Not available: "
            in text_of(part)
        )
        assert "<script>" not in part and "<img" not in part


def test_a_case_of_a_terminal_shows_all_payments_there_with_their_accounts(browse: Open, root: Path) -> None:
    small_lake.add_terminal_case(root)
    page = browse().get("/items/busy 2-4").text
    paid = [row for row in small_lake.transactions() if row["terminal_id"] == "T0"]
    marks = re.findall(r'<g class="mark" data-value="([^"]*)"><title>(\w+): .*?</g>', page)
    assert sorted((float(value), account) for value, account in marks) == sorted(
        (row["amount"], row["account_id"]) for row in paid
    )
    numbered = re.findall(r'<g class="mark"[^>]*><title>(\w+): (?:(?!</g>).)*class="tick"[^>]*>(\d)</text></g>', page)
    assert Counter(numbered) == dict.fromkeys([("A2", "1"), ("A0", "2"), ("A4", "3"), ("A6", "4"), ("A8", "5")], 5)
    table = page[page.index("<h2>Accounts</h2>") :].split("</table>")[0]
    rows = [text_of(row) for row in re.findall(r"<tr>.*?</tr>", table)[1:]]
    spent = {one: sum(row["amount"] for row in paid if row["account_id"] == one) for one in ("A2", "A0", "A4")}
    assert rows[:3] == [f"1 A2 5 {spent['A2']:,.2f} 2", f"2 A0 5 {spent['A0']:,.2f} 1", f"3 A4 5 {spent['A4']:,.2f} 1"]
    assert "ROW 2026-03-07 12:04:00 600.00 A0 0-4 ROW 2026-03-07 12:24:00 1,000.00 A4 4-4" in text_of(page)


def test_a_case_of_a_terminal_is_no_evidence_of_itself(browse: Open, root: Path) -> None:
    raised = small_lake.add_terminal_case(root)
    decided = {"verdict": True, "decided_at": small_lake.NOON, "date": small_lake.DAY}
    called = [{**decided, "transaction_id": alert["transaction_id"]} for alert in raised]
    small_lake.write(root, small_lake.tables.SILVER_VERDICTS, called)
    text = text_of(browse().get("/items/busy 2-4/shared", headers=PART).text)
    assert text == "These transactions have no further key of an entity that others could share."
    assert "3 called fraud" in text_of(browse().get("/items/alert0/shared", headers=PART).text)


def test_a_verdict_of_another_accounts_case_is_known_fraud(browse: Open, root: Path) -> None:
    decided = {"transaction_id": "4-4", "verdict": True, "decided_at": small_lake.NOON, "date": small_lake.DAY}
    small_lake.write(root, small_lake.tables.SILVER_VERDICTS, [decided])
    assert "1 called fraud" in text_of(browse().get("/items/alert2/shared", headers=PART).text)


def test_any_alert_of_a_case_names_it(browse: Open, root: Path) -> None:
    alert = {**small_lake.alerts()[0], "alert_id": "later", "timestamp": small_lake.NOON}
    small_lake.write(root, small_lake.tables.SILVER_ALERTS, [alert])
    joined = {**small_lake.case(alert), "case_id": "first", "alert_ids": ["first", "later"], "alerts": 2}
    small_lake.write(root, small_lake.tables.GOLD_CASES, [joined])
    browser = browse()
    assert [browser.get(f"/items/{name}").status_code for name in ("first", "later", "none")] == [200, 200, 404]


def test_a_case_has_a_dossier_as_a_file_and_a_drawn_account_has_none(browse: Open) -> None:
    browser = browse()
    (link,) = re.findall(r'href="([^"]*)">Dossier', browser.get("/items/alert2").text)
    answer = browser.get(link)
    assert answer.headers["content-disposition"] == 'attachment; filename="dossier-alert2.html"'
    assert "Dossier of case alert2" in answer.text and "<script>alert" not in answer.text
    assert browser.get("/items/drawn8/dossier").status_code == 404


def test_the_rules_page_counts_alerts_and_cases(browse: Open) -> None:
    page = text_of(browse().get("/rules").text)
    alerts = len(small_lake.alerts())
    assert (
        f"small_then_large small_then_large, version 1 live {alerts} on the last day {alerts} {alerts} unknown unknown"
        in page
    )


def test_health_counts_the_rows_of_tables_and_shows_samples(browse: Open) -> None:
    text = text_of(browse().get("/health").text)
    assert "Bronze transactions 50" in text and "Silver quarantine 4" in text and "Silver alerts 8" in text
    assert re.search(r"amount_is_positive 4 rows Row Values When \(UTC\) day.parquet #\d dt 2026", text)
    assert f"accountId {SENTENCE}" in text


@pytest.mark.parametrize(
    ("gone", "page", "line"),
    [
        (("gold_review_queue",), "/", "run 'fraudlake queue build'"),
        (("gold_review_queue", "gold_cases"), "/", "run 'fraudlake detect' and 'fraudlake aggregate'"),
        (("gold_review_queue", "gold_cases", "silver_transactions"), "/", "run 'fraudlake run --landing FOLDER'"),
        (("gold_fraud_predictions",), "/health", "'fraudlake train', then 'fraudlake score'"),
        (("gold_fraud_predictions",), "/items/alert2", "Nobody has done anything about it yet"),
        (("silver_alerts",), "/rules", "small_then_large"),
        (("silver_transactions",), "/items/alert2", "forgotten, or are older than it keeps"),
        (("silver_quarantine",), "/health", "No row is in quarantine"),
    ],
)
def test_a_page_says_what_to_run_for_what_is_missing(
    browse: Open, root: Path, gone: tuple[str, ...], page: str, line: str
) -> None:
    for table in gone:
        shutil.rmtree(root / "tables" / table)
    answer = browse().get(page)
    assert answer.status_code == 200 and line in text_of(answer.text)


def test_a_backtest_without_transactions_says_what_to_run(browse: Open, root: Path) -> None:
    shutil.rmtree(root / "tables" / "silver_transactions")
    answer = browse().get("/rules/small_then_large/backtest", headers={"x-part": "1"})
    assert (answer.status_code, answer.text) == (409, "there are no transactions yet: run 'fraudlake run'")


@pytest.mark.parametrize(
    ("page", "status", "line"),
    [
        ("/items/none", 404, "there is no case, alert or drawn account none any more"),
        ("/rules/none", 404, "there is no rule 'none'"),
        ("/?day=yesterday", 409, "'yesterday' is not a day"),
        ("/nothing", 404, "Not Found"),
        ("/rules/small_then_large/backtest?large_above=x", 409, "large_above: give a number"),
        ("/rules/small_then_large/backtest?large_above=nan", 409, "large_above: give a number"),
        ("/rules/small_then_large/backtest?small_below=900", 409, "must not exceed large_above"),
        ("/rules/small_then_large?saved=²", 409, "saved: give the number of a version, not '²'"),
        ("/find?name=%20", 404, "give the name of what to find"),
    ],
)
def test_an_address_of_nothing_is_answered_in_a_line(browse: Open, page: str, status: int, line: str) -> None:
    answer = browse().get(page)
    assert answer.status_code == status and line in text_of(answer.text)


def test_an_account_without_transactions_has_a_page(browse: Open) -> None:
    assert "The lake has no transactions of it from" in browse().get("/accounts/nobody").text


def test_a_limit_that_is_moved_is_backtested_on_the_lake(browse: Open) -> None:
    larger = sum(row["amount"] > 900 for row in small_lake.transactions())
    text = text_of(browse().get("/rules/small_then_large/backtest?large_above=900").text)
    assert f"Transactions 50 50 Alerts 10 {larger} Accounts 10 {larger}" in text
    gone = 10 - larger
    assert f"{larger} alerts stay." in text and f"Alerts that appear go Alerts 0 {gone} " in text
    assert f"Cases 0 {gone} Accounts 0 {gone} " in text and f"{gone} alerts that go, closest to the limit" in text
    more = text_of(browse().get("/rules/small_then_large/backtest?large_above=400").text)
    assert "10 alerts stay." in more


@pytest.mark.parametrize(("limit", "least", "most"), [(4, "0.1", "12.0"), (0, "-100.0", "100.0"), (-2, "-6.0", "6.0")])
def test_a_limit_of_any_sign_is_moved(browse: Open, limit: float, least: str, most: str) -> None:
    unusual = {"kind": "threshold", "name": "unusual", "aggregate": "z_score", "window": "1 hour", "below": limit}
    browser = browse(rules=[unusual])
    assert f'min="{least}" max="{most}"' in browser.get("/rules/unusual").text
    assert "Transactions 50 " in text_of(browser.get("/rules/unusual/backtest").text)


def test_the_threshold_of_scores_is_moved_and_tried_on_the_predictions_that_there_are(browse: Open, root: Path) -> None:
    """Ten of fifty payments have a score of 0.95, four of them labelled fraud; the others have 0.03."""
    scored = {**small_lake.predictions()[0], "probability": 0.99, "scored_from": "backfill"}
    small_lake.write(root, small_lake.tables.GOLD_FRAUD_PREDICTIONS, [scored])  # the stream's prediction counts
    browser, page = browse(rules=[LIKELY]), "/rules/likely"
    assert "threshold (now 0.5)" in text_of(browser.get(page).text)
    text = text_of(browser.get(f"{page}/backtest?threshold=0.02").text)
    assert "Transactions 50 50 Alerts 10 50 Accounts 10 10 Amount at risk 10,500.00 " in text
    assert "Precision, by Flink's label 40.0% (4 of 10) 8.0% (4 of 50) Recall, by Flink's label 100.0% 100.0%" in text
    assert "Alerts 10 0 " in text_of(browser.get(f"{page}/backtest?threshold=0.96").text)
    answer = browser.get(f"{page}/backtest?threshold=1.5")
    assert answer.status_code == 409 and "should be less than 1" in text_of(answer.text)
    assert "Version 2 is a draft now." in text_of(browser.submit(page, f"{page}/draft", threshold="0.9"))


def test_a_budget_of_scores_is_tried_by_the_level_of_each_version_of_the_model(browse: Open, root: Path) -> None:
    curve = {"budgets": [[1, 0.95], [10, 0.03]]}
    model = {"model_version": "1", "model": b"", "profile": json.dumps(curve), "published_at": small_lake.NOON}
    small_lake.write(root, small_lake.tables.GOLD_MODELS, [model])
    of_another = {**small_lake.predictions()[0], "scored_at": small_lake.NOON + timedelta(days=1), "model_version": "2"}
    small_lake.write(root, small_lake.tables.GOLD_FRAUD_PREDICTIONS, [{**of_another, "probability": 1.0}])
    browser = browse(rules=[{**LIKELY, "threshold": "5 accounts a day"}])
    assert "has no number to move" in text_of(browser.get("/rules/likely").text)
    assert "Transactions 50 Alerts 10 " in text_of(browser.get("/rules/likely/backtest").text)


@pytest.mark.parametrize("has_links", [True, False])
def test_a_moved_limit_becomes_a_draft(browse: Open, store: LocalStore, warehouse: Warehouse, has_links: bool) -> None:
    warehouse.has_links = has_links
    browser, page = browse(), "/rules/small_then_large"
    moved = {"small_below": "1", "large_above": "900", "reason": "fewer alerts"}
    text = text_of(browser.submit(page, f"{page}/draft", **moved))
    assert (
        "Version 2 is a draft now." in text
        and "version 2 draft small_below 1, large_above 900, anna · fewer alerts" in text
    )
    again = browser.post(f"{page}/draft", data={**browser.form(page, f"{page}/draft"), **moved})
    assert again.status_code == 409 and "is the same rule already" in again.text
    unmoved = browser.post(f"{page}/draft", data=browser.form(page, f"{page}/draft"))
    assert unmoved.status_code == 409 and "version 1 has these limits already: move one" in unmoved.text
    versions = rules.read(store)[0].versions_of("small_then_large")
    assert [(one.version, one.status) for one in versions] == [(1, "live"), (2, "draft")]
    assert versions[1].rule.limits == {"small_below": 1.0, "large_above": 900.0}


@pytest.mark.slow
def test_the_pages_need_neither_spark_nor_pyspark(root: Path) -> None:
    script = (
        "import sys\n"
        "from starlette.testclient import TestClient\n"
        "from fraudlake.lake.local_store import LocalStore\n"
        "from fraudlake_desk.web import server\n"
        "from fraudlake_desk.web.application import application\n"
        "from fraudlake_desk.web.role import Role\n"
        "from fraudlake.settings import Settings\n"
        f"store = LocalStore(Settings(lake={str(root)!r}))\n"
        "site, access = server.site_of_one(store, 'anna', Role.ANALYST, ('127.0.0.1', 1))\n"
        "browser = TestClient(application(site), base_url='http://127.0.0.1:1')\n"
        "browser.get(f'/?token={access.token}')\n"
        f"assert all(browser.get(page).status_code == 200 for page in {[*PAGES, *PARTS]!r})\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_report_of_some_days_is_a_file(browse: Open) -> None:
    browser = browse()
    answer = browser.get("/report?from=2026-03-07&to=2026-03-07")
    assert answer.headers["content-disposition"] == 'attachment; filename="report-2026-03-07-2026-03-07.html"'
    assert "Fraud report of" in answer.text and "<script" not in answer.text
    assert browser.get("/report?from=yesterday").status_code == 409
    refused = browser.get("/report?from=2026-03-08&to=2026-03-07")
    assert "--from 2026-03-08 is after --to 2026-03-07" in refused.text


@pytest.mark.parametrize("page", ["/", "/items/alert2", "/rules", "/health", "/rules/small_then_large/backtest"])
def test_a_warehouse_that_is_asleep_or_refuses_is_said_in_a_line(page: str) -> None:
    def refuse(person: Person) -> LocalStore:
        raise FraudlakeError("https://w.example is not available for now (starting): try again in some minutes")

    access = PlatformAccess(RoleByGroup(frozenset(["analysts"])), lambda token: {"analysts"})
    browser = TestClient(application(Site(refuse, access)), base_url="https://desk.example")
    who = {"x-forwarded-email": "anna@example.com", "x-forwarded-access-token": "token"}
    answer = browser.get(page, headers=who)
    assert answer.status_code == 409 and "not available for now (starting): try again" in text_of(answer.text)
    told = browser.get(page, headers={**who, "accept": "application/json"})
    assert told.json() == {"error": "https://w.example is not available for now (starting): try again in some minutes"}


def test_a_rule_that_cannot_be_read_is_shown_with_its_reason(browse: Open, root: Path) -> None:
    readable = {"change": 1, "name": "busy", "version": 1, "kind": "threshold", "status": "live"}
    busy = {"kind": "threshold", "name": "busy", "aggregate": "sum", "above": 9, "window": "1 hour"}
    future = {"change": 2, "name": "later", "version": 1, "kind": "graph", "status": "live"}
    rows = [(readable, busy), (future, {"kind": "graph", "name": "later"})]
    written = [{**row, "definition": json.dumps(rule), "changed_at": small_lake.NOON} for row, rule in rows]
    small_lake.write(root, small_lake.tables.SILVER_RULES, written)
    browser = browse()
    page = text_of(browser.get("/rules").text)
    assert "silver_rules: later version 1 cannot be read (input tag 'graph'" in page
    assert 'href="/rules/busy"' in browser.get("/rules").text
    definition = text_of(browser.get("/rules/busy").text)
    assert "window 1 hour" in definition
    missing = browser.get("/rules/later")
    assert missing.status_code == 404 and "later version 1 cannot be read" in missing.text
    draft = browser.post("/rules/busy/draft", data={**browser.form("/rules/busy", "/rules/busy/draft"), "above": "8"})
    assert draft.status_code == 409 and "later version 1 cannot be read" in draft.text


def test_the_title_of_the_time_axis_names_the_days_that_it_spans(browse: Open) -> None:
    text = text_of(browse().get("/items/alert2").text)
    assert "Transactions, 27 Feb 2026 to 7 Mar 2026 " in text


def test_the_latest_alert_of_each_rule_comes_first() -> None:
    alerts = [{"rule": rule, "number": number} for number, rule in enumerate(["sum"] * 7 + ["probe"] + ["sum"] * 2)]
    shown = case_page._latest_of_each_rule(alerts)
    assert [alert["number"] for alert in shown] == [0, 7, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "found"),
    [("alert2", "/items/alert2"), ("A7", "/accounts/A7"), (HOSTILE, "/accounts/%3Cimg%20src%3Dx"), ("A77", None)],
)
def test_a_name_finds_its_page(browse: Open, name: str, found: str | None) -> None:
    answer = browse().get("/find", params={"name": f" {name} "}, follow_redirects=False)
    if found is None:
        line = f"there is no account, case, alert, drawn account or transaction '{name}', and no case of such a key"
        assert answer.status_code == 404 and line in html.unescape(answer.text)
    else:
        assert answer.status_code == 303 and answer.headers["location"].startswith(found)


def test_several_things_of_one_name_are_listed_with_links(browse: Open, root: Path) -> None:
    case = {**small_lake.case(small_lake.alerts()[0]), "entity_key": "A7"}
    later = {**case, "case_id": "later", "last_alert_at": small_lake.NOON + timedelta(days=1)}
    entities = [{**case, "entity": "device"}, {**later, "entity": "terminal"}, {**case, "entity": "terminal"}]
    small_lake.write(root, small_lake.tables.GOLD_CASES, entities)
    paid = {"transaction_id": "A7", "account_id": "A1", "timestamp": small_lake.NOON, "date": small_lake.DAY}
    small_lake.write(root, small_lake.SILVER, [{**paid, "amount": 5.0, "source": "s", "position": 0}])
    answer = browse().get("/find", params={"name": "A7"}, follow_redirects=False)
    raised = f"{case['last_alert_at']:%Y-%m-%d %H:%M:%S} UTC"
    assert answer.status_code == 200
    assert re.findall(r'<li><a href="([^"]*)"><bdi>(.*?)</bdi>', answer.text) == [
        ("/accounts/A7", "the account A7"),
        (
            f"/items/{case['case_id']}",
            f"the latest case of device A7, of {raised}",
        ),
        ("/items/later", "the latest case of terminal A7, of 2026-03-08 12:00:00 UTC"),
        ("/accounts/A1", "the transaction of 5.00 at 2026-03-07 12:00:00 UTC, of account A1"),
    ]


def test_a_transaction_finds_its_case_and_one_without_a_case_its_account(browse: Open) -> None:
    browser = browse()
    answer = browser.get("/find", params={"name": "2-4"}, follow_redirects=False)
    assert answer.status_code == 303 and answer.headers["location"] == "/items/alert2"
    page = browser.get("/find", params={"name": "8-1"})
    assert page.status_code == 200 and 'href="/accounts/A8"' in page.text
    assert "the transaction of 35.50 at 2026-03-01 12:41:00 UTC, of account A8" in text_of(page.text)


def test_only_a_version_that_is_a_draft_is_said_to_be_saved(browse: Open) -> None:
    browser, page = browse(), "/rules/small_then_large"
    browser.submit(page, f"{page}/draft", small_below="1", large_above="900")
    said = {saved: "is a draft now" in browser.get(f"{page}?saved={saved}").text for saved in ("1", "2", "999")}
    assert said == {"1": False, "2": True, "999": False}


def test_an_account_names_its_cases(browse: Open) -> None:
    page = browse().get("/accounts/A2").text
    assert '<a href="/items/alert2">' in page and '<span class="chip">open</span>' not in page


def test_verdicts_of_one_decision_are_a_line() -> None:
    at = small_lake.NOON
    one = {"decided_at": at, "analyst": "bert", "verdict": True, "reason": "stolen"}
    rows = [{**one, "transaction_id": str(number)} for number in range(3)] + [{**one, "verdict": False}]
    grouped = case_page._earlier(rows, [])
    assert grouped == [{**one, "transactions": 3}, {**one, "verdict": False, "transactions": 1}]


def test_a_key_of_another_entity_finds_its_latest_case(browse: Open, root: Path) -> None:
    case = small_lake.case(small_lake.alerts()[0])
    small_lake.write(root, small_lake.tables.GOLD_CASES, [{**case, "entity": "terminal", "entity_key": "T1"}])
    answer = browse().get("/find", params={"name": "T1"}, follow_redirects=False)
    assert answer.headers["location"] == f"/items/{case['case_id']}"
