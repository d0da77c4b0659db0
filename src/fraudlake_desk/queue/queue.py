"""Queue: lists the cases of a day, the most valuable first, and accounts drawn at random among all others.

Drawn accounts show what the list misses. They are drawn uniformly among all accounts that paid on the day and have no
case in the list; :mod:`fraudlake_desk.queue.missed` weighs by the probability, which the queue records. They are
spread over the list, so that an analyst who does not reach its end still sees some of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.entity import ACCOUNT
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.review import cases, event_log, item_state, items, merges, payments
from fraudlake.review.window import Window
from fraudlake.tables import (
    GOLD_CASES,
    GOLD_FRAUD_PREDICTIONS,
    GOLD_REVIEW_QUEUE,
    PREDICTION_ORDER,
    SILVER_ALERTS,
    SILVER_TRANSACTIONS,
)
from fraudlake.text.counts import counted
from fraudlake.text.sql_text import bounded_sum, value
from fraudlake.values import summed_amount
from fraudlake_desk.queue import draw, precision

if TYPE_CHECKING:
    from fraudlake.lake.store import Store

SEED = 42
_UNKNOWN = 1 / 2
"""The precision assumed for a rule without verdicts on its alerts."""


@dataclass(frozen=True)
class Built:
    """The queue of a day, as rows of ``gold_review_queue`` by rank; ``is_new`` if this call built it."""

    day: date
    rows: list[dict[str, Any]]
    is_new: bool


def build(
    store: Store,
    day: date | None = None,
    size: int | None = None,
    seed: int = SEED,
    is_again: bool = False,
    now: datetime | None = None,
) -> Built:
    """Build the queue of a day, unless it exists.

    Args:
        store: the lake's tables.
        day: the day (UTC); by default the last one that is over and has transactions.
        size: its number of items, by default the setting ``queue_size``; the share ``explore`` of them is drawn.
        seed: seed of the draw.
        is_again: rebuild an existing queue, unless somebody has begun to work on it.
        now: the time; by default this machine's.

    Raises:
        UsageError: the lake has no transactions, none as early or as late as the day, or alerts that are in no case.
        FraudlakeError: it is to be built again, and somebody has taken or decided an item of it.
    """
    now = now or datetime.now(UTC)
    size = size or store.settings.queue_size
    cases.require_cases(store)
    day = _day(store, day, now)
    there = items.queue_rows(store, day)
    if there and not is_again:
        return Built(day, there, False)
    if there and _is_begun(store, day):
        raise FraudlakeError(f"the queue of {day} is being worked on, and cannot be built again: build another day's")
    open_cases = _open_cases(store, day, now)
    candidates = [_candidate(case, probability) for case, probability in _with_probabilities(store, open_cases)]
    drawn = draw.size(size, store.settings.explore)
    chosen = listed(candidates, size - drawn)
    roots = {open_cases.wholes[row["case_id"]] for row in chosen}
    listed_too = {case for case, whole in open_cases.wholes.items() if whole in roots}
    reviewed = _accounts(store, day, listed_too | open_cases.left_out)
    others, population = _draw(store, day, reviewed, drawn, seed)
    flagged = _flagged(store, day)
    common = {"day": day, "seed": seed, "built_at": now, "population": population}
    rows = [
        {**row, **common, "rank": rank}
        for rank, row in enumerate(
            spread(chosen, [_drawn(one, day, drawn, population, flagged) for one in others]), start=1
        )
    ]
    made = pa.Table.from_pylist(rows, GOLD_REVIEW_QUEUE.schema)
    if there:
        store.replace(GOLD_REVIEW_QUEUE, made, f"day = {value(day)}")
    elif rows:
        store.insert(GOLD_REVIEW_QUEUE, made, ("day", "rank"))
    return Built(day, items.queue_rows(store, day), True)


def listed(candidates: Iterable[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return the most valuable cases, the most valuable first.

    Args:
        candidates: rows with ``priority`` and ``item_id``, by which cases of equal priority are ordered.
        count: how many.
    """
    return sorted(candidates, key=lambda row: (-row["priority"], row["item_id"]))[:count]


def spread(listed: list[dict[str, Any]], drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the drawn rows interleaved at equal distances with the listed ones."""
    every = (len(listed) + len(drawn)) / max(len(drawn), 1)
    rows = list(listed)
    for number, row in enumerate(drawn):
        rows.insert(round((number + 0.5) * every), row)
    return rows


def last(store: Store) -> date:
    """Return the last day that has a queue.

    Raises:
        UsageError: no day has a queue.
    """
    day = store.query(f"SELECT max(day) AS day FROM {GOLD_REVIEW_QUEUE.name}", GOLD_REVIEW_QUEUE)["day"][0].as_py()
    if day is None:
        raise UsageError(f"{store.name} has no review queue yet: run 'fraudlake queue build'")
    latest: date = day
    return latest


def _day(store: Store, day: date | None, now: datetime) -> date:
    """Return the given day (UTC); by default the last day with transactions that is over, or the newest if none is."""
    lake_days = payments.days(store)
    if lake_days is None:
        raise UsageError(f"{store.name} has no transactions yet: run 'fraudlake run'")
    if day is None:
        over = payments.days(store, f"WHERE date < {value(now.date())}")
        return (over or lake_days).last
    payments.require_days(store, lake_days, day, day, f"--day {day}")
    return day


@dataclass(frozen=True)
class _Open:
    """The cases of a day that nobody has taken or decided, one for each merged case, and the ids of the rest."""

    rows: list[dict[str, Any]]
    left_out: set[str]
    """The cases that somebody has taken or decided."""
    wholes: dict[str, str]
    """The case that each case of the day is a part of, or itself."""


def _open_cases(store: Store, day: date, now: datetime) -> _Open:
    rows = store.query(f"SELECT * FROM {GOLD_CASES.name} WHERE {cases.on_day(day)}", GOLD_CASES).to_pylist()
    merged = merges.read_merges(store)
    present = {row["case_id"]: row for row in rows} | merged.rows
    names = {alert: row["case_id"] for row in present.values() for alert in row["alert_ids"]}
    states = item_state.states(event_log.read_events(store), now, names)
    wholes = {row["case_id"]: merged.whole(row["case_id"]) for row in rows}

    def is_open(row: dict[str, Any]) -> bool:
        whole = wholes[row["case_id"]]
        state = states.get(whole)
        return state is None or (state.holder is None and not state.covers(merged.item(present[whole])))

    free = [row for row in rows if is_open(row)]
    # Parts of a case are reviewed together, so one row is enough: the whole's own if it has alerts on the day.
    free.sort(key=lambda row: wholes[row["case_id"]] != row["case_id"])
    of_wholes = {wholes[row["case_id"]]: row for row in reversed(free)}
    left_out = {row["case_id"] for row in rows} - {row["case_id"] for row in free}
    return _Open([*of_wholes.values()], left_out, wholes)


def _is_begun(store: Store, day: date) -> bool:
    """Return whether somebody has worked on the queue of a day; cases opened by hand do not count."""
    events = event_log.read_events(store)
    opened = {event.item_id for event in events if event.kind == cases.OPENED}
    return any(event.day == day and event.item_id not in opened for event in events)


@dataclass(frozen=True)
class _Probability:
    value: float
    source: str


def _with_probabilities(store: Store, open_cases: _Open) -> list[tuple[dict[str, Any], _Probability]]:
    """Return each case with its largest probability of fraud, by the model's scores and the precision of its rules."""
    if not open_cases.rows:
        return []
    first = min(row["opened_at"] for row in open_cases.rows)
    end = max(row["last_alert_at"] for row in open_cases.rows)
    scored = store.query(
        "SELECT transaction_id, probability FROM (SELECT p.transaction_id, p.probability, row_number() OVER "
        f"(PARTITION BY p.transaction_id ORDER BY {PREDICTION_ORDER}, p.model_version DESC) AS nth "
        f"FROM {GOLD_FRAUD_PREDICTIONS.name} p JOIN (SELECT DISTINCT transaction_id FROM {SILVER_ALERTS.name} "
        f"WHERE timestamp BETWEEN {value(first)} AND {value(end)}) a ON p.transaction_id = a.transaction_id "
        f"WHERE p.date BETWEEN {value(first.date())} AND {value(end.date())}) scored WHERE nth = 1",
        GOLD_FRAUD_PREDICTIONS,
        SILVER_ALERTS,
    )
    by_transaction = dict(zip(scored["transaction_id"].to_pylist(), scored["probability"].to_pylist(), strict=True))
    # One fraud and one genuine verdict are added (Laplace), since a single verdict says little.
    by_rule = {rule: (fraud + 1) / (decided + 2) for rule, (decided, fraud) in precision.by_rule(store).items()}
    pairs = []
    for row in open_cases.rows:
        scores = [by_transaction[one] for one in row["transaction_ids"] if by_transaction.get(one) is not None]
        options = [_Probability(max(scores), "the model")] if scores else []
        options += [_Probability(by_rule[rule], f"the precision of {rule}") for rule in row["rules"] if rule in by_rule]
        options = options or [_Probability(_UNKNOWN, "rules that nobody has judged")]
        pairs.append((row, max(options, key=lambda one: one.value)))
    return pairs


def _candidate(case: Mapping[str, Any], probability: _Probability) -> dict[str, Any]:
    rules = ", ".join(case["rules"])
    return {
        "item_id": case["case_id"],
        "kind": cases.CASE,
        "case_id": case["case_id"],
        "entity": case["entity"],
        "entity_key": case["entity_key"],
        "account_id": case["account_id"],
        "priority": probability.value * case["amount_at_risk"],
        "probability": probability.value,
        "amount_at_risk": case["amount_at_risk"],
        "inclusion_probability": 1.0,
        "reasons": f"{counted(case['alerts'], 'alert')} of {rules}; probability {probability.value:.2f} by "
        f"{probability.source}",
    }


def _accounts(store: Store, day: date, case_ids: set[str]) -> set[str]:
    """Return the accounts with payments in cases: reviewing a case covers them, so they are not drawn."""
    if not case_ids:
        return set()
    rows = store.query(
        f"SELECT case_id, account_id, alert_ids FROM {GOLD_CASES.name} WHERE {cases.on_day(day)}", GOLD_CASES
    ).to_pylist()
    chosen = [row for row in rows if row["case_id"] in case_ids]
    alerts = pa.array([alert for row in chosen for alert in row["alert_ids"]], pa.string())
    first = f"SELECT min(opened_at) FROM {GOLD_CASES.name} WHERE {cases.on_day(day)}"
    paid = store.query(
        f"SELECT alert_id, account_id FROM {SILVER_ALERTS.name} WHERE timestamp >= ({first})", SILVER_ALERTS, GOLD_CASES
    )
    of_cases = paid.filter(pc.is_in(paid["alert_id"], alerts))
    return {row["account_id"] for row in chosen} | {*of_cases["account_id"].to_pylist()}


def _draw(store: Store, day: date, reviewed: set[str], number: int, seed: int) -> tuple[list[dict[str, Any]], int]:
    """Draw among the accounts that paid on a day and are not ``reviewed``; return them, and how many could be drawn."""
    amount = summed_amount(store.settings.silver_columns)
    statement = (
        f"SELECT account_id, {bounded_sum(amount)} AS amount_at_risk FROM {SILVER_TRANSACTIONS.name} "
        f"WHERE date = {value(day)} GROUP BY account_id"
    )
    paid = store.query(statement, SILVER_TRANSACTIONS)
    amounts = dict(zip(paid["account_id"].to_pylist(), paid["amount_at_risk"].to_pylist(), strict=True))
    others = amounts.keys() - reviewed
    drawn = draw.drawn(others, number, day, seed)
    return [{"account_id": account, "amount_at_risk": amounts[account]} for account in drawn], len(others)


def _flagged(store: Store, day: date) -> set[str]:
    """Return the accounts with alerts on a day."""
    of_day = f"SELECT DISTINCT account_id FROM {SILVER_ALERTS.name} WHERE {Window(day, day).times}"
    return set(store.query(of_day, SILVER_ALERTS)["account_id"].to_pylist())


def _drawn(
    account: Mapping[str, Any], day: date, number: int, population: int, flagged: Collection[str]
) -> dict[str, Any]:
    is_flagged = account["account_id"] in flagged
    return {
        "item_id": drawn_id(day, account["account_id"]),
        "kind": cases.DRAWN,
        "entity": ACCOUNT,
        "entity_key": account["account_id"],
        "account_id": account["account_id"],
        "amount_at_risk": account["amount_at_risk"],
        "inclusion_probability": min(1.0, number / population),
        "is_flagged": is_flagged,
        "reasons": f"drawn at random; {'it has alerts of the day' if is_flagged else 'nothing flagged it'}",
    }


def drawn_id(day: date, account: str) -> str:
    """Return the id of an account that was drawn on a day."""
    return hashlib.sha256(f"drawn {day} {account}".encode()).hexdigest()
