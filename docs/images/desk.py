"""Draws the pictures of docs/tutorials: the desk's pages over a lake that is the same each time.

usage: make pictures, or PYTHONPATH=. python docs/images/desk.py [LAKE]; it needs Chromium.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from PIL import Image
from playwright.sync_api import sync_playwright

from fraudlake import tables
from fraudlake.approvals import gate
from fraudlake.detection import rule_table
from fraudlake.lake import lake_format
from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import Settings
from fraudlake.settings.columns import DeclaredColumn
from fraudlake_desk import rules as desk_rules
from fraudlake_desk.web import server
from fraudlake_desk.web.access import TokenAccess
from fraudlake_desk.web.application import application
from fraudlake_desk.web.role import Role
from tests.desk.small_lake import write

IMAGES = Path(__file__).parent
LAST = date(2026, 3, 27)
ACCOUNTS, DAYS, TERMINALS = 300, 28, 12
COLUMN = {"from": "terminalId", "type": "string"}
MORNING = {
    "desk-queue": ("/", 1280, 560),
    "desk-case": ("/items/{case}?day=2026-03-27", 1280, 1000),
    "desk-rule": ("/rules/large_for_account", 1280, 760),
    "desk-phone": ("/items/{case}?day=2026-03-27", 390, 900),
}
WHAT_IF = "/rules/large_for_account/backtest?above=400"
CHANGE = {
    "what-if": (WHAT_IF, 1280, 860),
    "what-if-phone": (WHAT_IF, 390, 900),
    "approvals": ("/approvals", 1280, 430),
    "approvals-phone": ("/approvals", 390, 600),
}
"""Address, width and height of each picture."""


def make(root: Path) -> str:
    """Make the lake; return the id of the case of the pictures."""
    lake_format.mark(root)
    random = np.random.default_rng(42)
    rows = payments(random)
    write(root, tables.BRONZE_TRANSACTIONS, [])
    at = datetime(2026, 3, 1, tzinfo=UTC)
    defined = {"columns": {"terminal_id": COLUMN}, "entities": {"terminal": ["terminal_id"]}}
    shared = {"change": 1, "author": "settings", "changed_at": at}
    settings = [{**shared, "setting": name, "value": json.dumps(value)} for name, value in defined.items()]
    write(root, tables.SILVER_DEFINITION, settings)
    silver = tables.with_declared(tables.SILVER_TRANSACTIONS, {"terminal_id": DeclaredColumn.model_validate(COLUMN)})
    write(root, silver, rows)
    scored = [score(row, random) for row in rows]
    write(root, tables.GOLD_FRAUD_PREDICTIONS, scored)
    write(root, tables.SILVER_RULES, rules(at))
    alerts = [alert for row in rows for alert in raised(row)]
    write(root, tables.SILVER_ALERTS, alerts)
    cases = grouped(alerts)
    write(root, tables.GOLD_CASES, cases)
    listed = [*queue(cases, rows, {row["transaction_id"]: row["probability"] for row in scored})]
    write(root, tables.GOLD_REVIEW_QUEUE, listed)
    decided = events(listed, cases)
    write(root, tables.SILVER_REVIEW_EVENTS, decided)
    write(root, tables.SILVER_VERDICTS, [verdict for event in decided for verdict in verdicts(event)])
    return str(next(row["item_id"] for row in listed if row["day"] == LAST and row["rank"] == 3))


def payments(random: np.random.Generator) -> list[dict[str, Any]]:
    """Four weeks of payments; terminal T7 is compromised in the last days, and some cards are tested and then used."""
    rows: list[dict[str, Any]] = []
    usual = random.lognormal(3.2, 0.5, ACCOUNTS)
    for number in range(DAYS):
        day = LAST - timedelta(days=DAYS - 1 - number)
        for account in random.choice(ACCOUNTS, 180, replace=False):
            for _ in range(random.integers(1, 4)):
                second = int(random.normal(52_000, 14_000)) % 86_400
                at = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(seconds=second)
                terminal, amount = random.integers(TERMINALS), float(usual[account] * random.lognormal(0, 0.4))
                is_fraud = terminal == 7 and number >= DAYS - 4 and random.random() < 0.7
                amount *= 14 if is_fraud else 1
                rows.append(payment(len(rows), account, at, amount, terminal, is_fraud))
                if random.random() < 0.003:
                    for seconds, tested in ((30, 0.89), (65, 400 + 300 * random.random())):
                        later = at + timedelta(seconds=seconds)
                        rows.append(payment(len(rows), account, later, tested, terminal, True))
    return sorted(rows, key=lambda row: (row["timestamp"], row["transaction_id"]))


def payment(number: int, account: int, at: datetime, amount: float, terminal: int, is_fraud: bool) -> dict[str, Any]:
    """A payment, which Flink's own detector labels."""
    return {
        "transaction_id": f"t{number:06d}",
        "account_id": f"{4000 + account}",
        "timestamp": at,
        "date": at.date(),
        "amount": round(amount, 2),
        "label": is_fraud,
        "source": f"{at:%Y-%m-%d}.parquet",
        "position": number,
        "terminal_id": f"T{terminal}",
    }


def score(row: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """A model that is right most of the time."""
    probability = float(random.beta(12, 3) if row["label"] else random.beta(1, 25))
    amount = f"the amount is {row['amount']:.2f} (usually 24.53)"
    reasons = [amount, "the terminal had 4 frauds in the week before it (usually 0)"]
    return {
        **{name: row[name] for name in ("transaction_id", "account_id", "timestamp", "amount", "label", "date")},
        "probability": probability,
        "prediction": probability > 0.5,
        "reasons": reasons if probability > 0.5 else None,
        "model_version": "3",
        "scored_from": "silver",
        "scored_at": row["timestamp"] + timedelta(minutes=10),
    }


def rules(at: datetime) -> list[dict[str, Any]]:
    """Two rules that are live."""
    small = {"kind": "small_then_large", "small_below": 1.0, "large_above": 300.0, "within": "60 seconds"}
    large = {"kind": "threshold", "aggregate": "max", "column": "amount", "window": "1 transaction", "above": 250.0}
    shared = {"change": 1, "version": 1, "status": "live", "author": "mira", "reason": "first rules", "changed_at": at}
    return [
        {**shared, "name": name, "kind": rule["kind"], "definition": json.dumps({"name": name, **rule})}
        for name, rule in (("small_then_large", small), ("large_for_account", large))
    ]


def ask(root: Path) -> None:
    """Require two keys, save a draft with a higher limit, and ask a second person to make it live."""
    at = datetime(2026, 3, 28, tzinfo=UTC)
    given = {"change": 2, "setting": "approvals", "value": "2", "author": "lena", "changed_at": at}
    write(root, tables.SILVER_DEFINITION, [given])
    store = LocalStore(Settings(lake=root))
    live = rule_table.start(store).version_of("large_for_account").rule
    rule_table.add_draft(store, desk_rules.with_limits(live, {"above": 400}), "anna", "fewer alerts")
    with suppress(gate.WaitingError):
        rule_table.set_status(store, live.name, "live", "anna", "29 alerts fewer in four weeks")


def raised(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The alerts that a payment completes."""
    if row["amount"] > 250:
        yield alert(row, "large_for_account", "threshold", "counted", {"max": str(row["amount"])})
        if row["amount"] > 400 and row["label"] and row["terminal_id"] != "T7":
            yield alert(row, "small_then_large", "small_then_large", "LARGE", {"seconds_between": "35"})


def alert(row: dict[str, Any], rule: str, kind: str, role: str, measures: dict[str, str]) -> dict[str, Any]:
    """An alert of a payment."""
    evidence = [{"variable": role, **{name: row[name] for name in ("transaction_id", "timestamp", "amount")}}]
    return {
        "alert_id": f"{rule}-{row['transaction_id']}",
        "rule": rule,
        "kind": kind,
        **{name: row[name] for name in ("account_id", "transaction_id", "timestamp", "amount")},
        "explanation": f"Account {row['account_id']}: {role} {row['amount']:.2f} at {row['timestamp']:%H:%M:%S} (UTC).",
        "detected_at": row["timestamp"] + timedelta(seconds=40),
        "evidence": evidence,
        "evidence_columns": [[("terminal_id", row["terminal_id"])]],
        "measures": [*measures.items()],
        "rule_version": 1,
        "entity": "account",
        "entity_key": row["account_id"],
    }


def grouped(alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A case for each account and day."""
    groups: dict[tuple[str, date], list[dict[str, Any]]] = {}
    for one in alerts:
        groups.setdefault((one["account_id"], one["timestamp"].date()), []).append(one)
    cases = []
    for (account, day), group in groups.items():
        paid = {one["transaction_id"]: one["amount"] for one in group}
        cases.append(
            {
                "case_id": group[0]["alert_id"],
                "entity": "account",
                "entity_key": account,
                "account_id": account,
                "opened_at": group[0]["timestamp"],
                "last_alert_at": group[-1]["timestamp"],
                "alerts": len(group),
                "rules": sorted({one["rule"] for one in group}),
                "alert_ids": [one["alert_id"] for one in group],
                "transaction_ids": [*paid],
                "accounts": 1,
                "amount_at_risk": sum(paid.values()),
                "detected_at": group[0]["detected_at"],
                "date": day,
            }
        )
    return cases


def queue(
    cases: list[dict[str, Any]], rows: list[dict[str, Any]], scores: dict[str, float]
) -> Iterator[dict[str, Any]]:
    """Queues of the last two days: the cases, and every sixtieth of the other accounts."""

    def chance(case: dict[str, Any]) -> float:
        return max(scores[transaction] for transaction in case["transaction_ids"])

    for day in (LAST - timedelta(days=1), LAST):
        of_day = [case for case in cases if case["date"] == day]
        of_day.sort(key=lambda case: -chance(case) * case["amount_at_risk"])
        shared = {"day": day, "seed": 1, "built_at": datetime(day.year, day.month, day.day, 23, 30, tzinfo=UTC)}
        for rank, case in enumerate(of_day, 1):
            probability = chance(case)
            alerts = f"{case['alerts']} alert{'s' if case['alerts'] > 1 else ''} of {', '.join(case['rules'])}"
            yield {
                **shared,
                **{name: case[name] for name in ("case_id", "entity", "entity_key", "account_id", "amount_at_risk")},
                "rank": rank,
                "item_id": case["case_id"],
                "kind": "case",
                "inclusion_probability": 1.0,
                "reasons": f"{alerts}; probability {probability:.2f} by the model",
                "probability": probability,
                "priority": probability * case["amount_at_risk"],
            }
        listed = {case["account_id"] for case in of_day}
        others = sorted({row["account_id"] for row in rows if row["date"] == day} - listed)
        for number, account in enumerate(others[5::60]):
            yield {
                **shared,
                "rank": len(of_day) + 1 + number,
                "item_id": f"drawn-{day}-{account}",
                "kind": "drawn",
                "entity": "account",
                "entity_key": account,
                "account_id": account,
                "amount_at_risk": 41.5,
                "inclusion_probability": 3 / len(others),
                "population": len(others),
                "reasons": "drawn at random",
            }


def events(listed: list[dict[str, Any]], cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first day is decided, and the second one begun."""
    about = {case["case_id"]: case["transaction_ids"] for case in cases}
    made = []
    for number, row in enumerate((one for one in listed if one["day"] < LAST or one["rank"] < 3), 1):
        is_genuine = row["kind"] == "drawn" or number % 4 == 0
        made.append(
            {
                "number": number,
                "event_id": f"{number:032d}",
                "kind": "verdict",
                "verdict": "genuine" if is_genuine else "fraud",
                "reason": "usual for the customer" if is_genuine else "compromised terminal",
                "analyst": ("anna", "bert")[number % 2],
                "at": row["built_at"] + timedelta(hours=9, minutes=3 * number),
                "transaction_ids": about.get(row["item_id"], []),
                **{name: row.get(name) for name in ("item_id", "case_id", "entity", "entity_key", "account_id", "day")},
            }
        )
    return made


def verdicts(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a decision says of its transactions."""
    for transaction in event["transaction_ids"]:
        yield {
            "transaction_id": transaction,
            "verdict": event["verdict"] == "fraud",
            "analyst": event["analyst"],
            "reason": event["reason"],
            "decided_at": event["at"],
            "date": event["day"],
        }


@contextmanager
def served(root: Path, name: str) -> Iterator[tuple[str, TokenAccess]]:
    """Serve the lake's pages to a person; gives the address, and the access, whose token works once."""
    listening = server.listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    site, access = server.site_of_one(
        LocalStore(Settings(lake=root, review_limit=timedelta(days=36_500))), name, Role.ANALYST, ("127.0.0.1", port)
    )
    running = uvicorn.Server(uvicorn.Config(application(site), log_level="error", lifespan="off"))
    thread = threading.Thread(target=running.run, args=([listening],))
    thread.start()
    yield f"http://127.0.0.1:{port}", access
    running.should_exit = True
    thread.join()


def draw(root: Path, name: str, pictures: dict[str, tuple[str, int, int]], case: str) -> None:
    """Draw pages as a person sees them."""
    with served(root, name) as (address, access), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for picture, (path, width, height) in pictures.items():
            page = chromium.new_context(viewport={"width": width, "height": height}).new_page()
            page.goto(f"{address}/?token={access.token}")
            page.goto(address + path.format(case=case))
            page.wait_for_load_state("networkidle")
            shot = Image.open(BytesIO(page.screenshot())).convert("RGB")
            shot.quantize(96, dither=Image.Dither.NONE).save(IMAGES / f"{picture}.png", optimize=True)
        chromium.close()


def main() -> None:
    """Make the lake and draw the pictures."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "lake"
    case = make(root)
    draw(root, "anna", MORNING, case)
    ask(root)
    draw(root, "lena", CHANGE, case)


if __name__ == "__main__":
    main()
