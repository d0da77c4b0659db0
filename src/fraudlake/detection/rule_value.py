"""The value of rules: counts what each live rule found on some days, and what no other live rule found.

A rule finds the payments of its alerts, as in a backtest (:mod:`fraudlake.detection.report`). It alone found a payment
if no other live rule has an alert in the same case, a row of ``gold_cases``, which is what an analyst decides on, nor
an alert with the payment, since rules by different entities never share a case. An alert is like the payment that
completed it. Only alerts of the versions that are live now count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fraudlake.detection import alert_payments
from fraudlake.errors import UsageError
from fraudlake.tables import GOLD_CASES, SILVER_ALERTS, SILVER_TRANSACTIONS, SILVER_VERDICTS
from fraudlake.text.sql_text import bounded_sum, one_of, value
from fraudlake.values import summed_amount

if TYPE_CHECKING:
    from datetime import date

    from fraudlake.lake.store import Store
    from fraudlake.rules.rule_set import RuleVersion
    from fraudlake.settings import Settings

LEAST = 20
"""The fewest decided alerts by which a rule is judged: if none of them is right, its precision is below 0.14 (95 %)."""


@dataclass(frozen=True)
class Findings:
    """What alerts of some days found."""

    alerts: int = 0
    cases: int = 0
    """Cases with such an alert."""
    payments: int = 0
    """Payments that completed an alert, each counted once."""
    decided: int = 0
    """Alerts with a payment whose truth is known."""
    false_alarms: int = 0
    """Decided alerts without fraud."""
    frauds: int = 0
    """Fraudulent payments in these alerts, each counted once."""
    amount: float = 0.0
    """Sum of the amounts of the fraudulent payments, in account currency or the base currency of the lake."""


@dataclass(frozen=True)
class RuleValue:
    """What a version of a rule found, and what no other live rule found."""

    rule: str
    version: int
    found: Findings
    alone: Findings

    @property
    def precision(self) -> float | None:
        """Share of the decided alerts that are right; None if none is decided."""
        decided = self.found.decided
        return (decided - self.found.false_alarms) / decided if decided else None

    @property
    def is_judged(self) -> bool:
        """Whether enough alerts are decided, in total and of those that only this rule raised, if these are enough."""
        return self.found.decided >= LEAST and self.alone.decided >= min(LEAST, self.alone.alerts)

    @property
    def is_redundant(self) -> bool:
        """Whether enough alerts are decided, and the rule found no fraud that the others did not find."""
        return self.is_judged and not self.alone.frauds

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        derived = {"precision": self.precision, "is_judged": self.is_judged, "is_redundant": self.is_redundant}
        return asdict(self) | derived


@dataclass(frozen=True)
class RuleValues:
    """What the live rules of a lake found on some days."""

    truth: str | None
    """What decides alerts: ``verdicts``, or ``labels`` if no alert of these days has a verdict; None without either."""
    without_case: int
    """Alerts that ``gold_cases`` does not have yet; each of their payments counts as a case."""
    rules: list[RuleValue]

    @property
    def is_decided(self) -> bool:
        """Whether the truth about an alert is known."""
        return any(rule.found.decided for rule in self.rules)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**asdict(self), "rules": [rule.as_dict() for rule in self.rules]}


def measure(
    store: Store, live: Sequence[RuleVersion], first: date | None = None, last: date | None = None
) -> RuleValues:
    """Count what each live rule found on days (UTC, inclusive; None: no limit), in the order of the rules.

    Alerts of other rules count whenever they were: a case does not end with the days.

    Raises:
        UsageError: no rule is live.
    """
    if not live:
        raise UsageError(f"no rule of {store.name} is live: 'fraudlake rules promote NAME' makes one live")
    by_verdict = _Counting(live, first, last, alert_payments.by_verdict()).count(store)
    if by_verdict.is_decided:
        return replace(by_verdict, truth="verdicts")
    by_label = _Counting(live, first, last, alert_payments.by_label()).count(store)
    return replace(by_label, truth="labels") if by_label.is_decided else by_label


class _Counting:
    """The queries that count what rules found. Flags are 1 or 0, and ``is_fraud`` is null if the truth is unknown."""

    def __init__(self, live: Sequence[RuleVersion], first: date | None, last: date | None, truth: str) -> None:
        self._live = live
        self._is_live = _is_live(live)
        self._days = _between(first, last)
        self._truth = truth
        self._payments = alert_payments.payments(SILVER_ALERTS, self._is_live)

    def count(self, store: Store) -> RuleValues:
        """Run the queries."""
        rows: dict[str, dict[str, Any]] = defaultdict(dict)
        read = (SILVER_ALERTS, GOLD_CASES, SILVER_TRANSACTIONS, SILVER_VERDICTS)
        for statement in (self._alerts_query(), self._frauds_query(store.settings)):
            for row in store.query(statement, *read).to_pylist():
                rows[row.pop("rule")].update(row)
        without_case = sum(row.pop("without_case") for row in rows.values())
        values = [RuleValue(one.rule.name, one.version, *_findings(rows[one.rule.name])) for one in self._live]
        return RuleValues(None, without_case, values)

    def _alerts_query(self) -> str:
        """Return the query for the numbers of alerts, and of their payments and cases, of each rule."""
        decided = (
            f"SELECT p.alert_id, max(t.is_fraud) AS is_fraud FROM ({self._payments}) p JOIN ({self._truth}) t "
            "ON p.transaction_id = t.transaction_id GROUP BY p.alert_id"
        )
        alerts = (
            "SELECT a.rule, a.case_id, a.last_id, a.has_no_case, a.is_shared, d.is_fraud "
            f"FROM ({self._alerts()}) a LEFT JOIN ({decided}) d ON a.alert_id = d.alert_id"
        )
        # Alerts of a rule that the same payment completed have the same key and time, so they are in one case.
        payments = (
            "SELECT rule, case_id, is_shared, 1 AS payments, count(*) AS alerts, count(is_fraud) AS decided, "
            "sum(CASE WHEN is_fraud = 0 THEN 1 ELSE 0 END) AS false_alarms, sum(has_no_case) AS without_case "
            f"FROM ({alerts}) alerts GROUP BY rule, case_id, last_id, is_shared"
        )
        names = ("alerts", "payments", "decided", "false_alarms")
        cases = (
            "SELECT rule, min(is_shared) AS is_shared, sum(without_case) AS without_case, "
            f"{_counts({name: name for name in names})} FROM ({payments}) payments GROUP BY rule, case_id"
        )
        sums = ", ".join(f"sum({name}) AS {name}, sum(alone_{name}) AS alone_{name}" for name in names)
        return (
            f"SELECT rule, {sums}, {_counts({'cases': '1'})}, sum(without_case) AS without_case FROM ({cases}) cases "
            "GROUP BY rule"
        )

    def _frauds_query(self, settings: Settings) -> str:
        """Return the query for the number and the amount of the fraudulent payments in alerts of each rule."""
        amount, with_silver = "p.amount", ""
        if settings.currency is not None:  # alerts have amounts of payments, and silver those to add up
            amount = summed_amount(settings.silver_columns)
            with_silver = f"LEFT JOIN {SILVER_TRANSACTIONS.name} s ON p.transaction_id = s.transaction_id "
        frauds = (
            f"SELECT p.alert_id, p.transaction_id, {amount} AS amount FROM ({self._payments}) p "
            f"JOIN ({self._truth}) t ON p.transaction_id = t.transaction_id {with_silver}WHERE t.is_fraud = 1"
        )
        is_shared = "CASE WHEN a.is_shared_case = 1 OR s.transaction_id IS NOT NULL THEN 1 ELSE 0 END"
        payments = (
            "SELECT a.rule, p.transaction_id, max(coalesce(p.amount, 0.0)) AS amount, "
            f"max({is_shared}) AS is_shared FROM ({frauds}) p JOIN ({self._placed()}) a ON p.alert_id = a.alert_id "
            f"LEFT JOIN ({self._shared()}) s ON p.transaction_id = s.transaction_id "
            "WHERE a.is_own = 1 GROUP BY a.rule, p.transaction_id"
        )
        amounts = (
            f"{bounded_sum('amount')} AS amount, "
            f"{bounded_sum('CASE WHEN is_shared = 0 THEN amount ELSE 0.0 END')} AS alone_amount"
        )
        return f"SELECT rule, {_counts({'frauds': '1'})}, {amounts} FROM ({payments}) payments GROUP BY rule"

    def _alerts(self) -> str:
        """Return a query for the alerts of the days: as :meth:`_placed`, and ``is_shared``.

        That is whether another live rule has an alert in the case, or with the payment.
        """
        is_shared = "CASE WHEN a.is_shared_case = 1 OR s.transaction_id IS NOT NULL THEN 1 ELSE 0 END AS is_shared"
        return (
            f"SELECT a.*, {is_shared} FROM ({self._placed()}) a LEFT JOIN ({self._shared()}) s "
            "ON a.last_id = s.transaction_id WHERE a.is_own = 1"
        )

    def _placed(self) -> str:
        """Return a query for all alerts of live rules, with their cases.

        Its columns are ``rule, alert_id, last_id`` (the payment that completed the alert), ``is_own`` (it is of the
        days), ``case_id`` (without a case, that payment), ``has_no_case`` and ``is_shared_case`` (another live
        rule has an alert in the case).
        """
        chosen = (
            f"SELECT alert_id, rule, transaction_id AS last_id, CASE WHEN {self._days} THEN 1 ELSE 0 END AS is_own "
            f"FROM {SILVER_ALERTS.name} WHERE {self._is_live}"
        )
        of_cases = f"SELECT case_id, explode(alert_ids) AS alert_id FROM {GOLD_CASES.name}"
        placed = (
            "SELECT a.*, coalesce(c.case_id, a.last_id) AS case_id, CASE WHEN c.case_id IS NULL THEN 1 ELSE 0 END "
            f"AS has_no_case FROM ({chosen}) a LEFT JOIN ({of_cases}) c ON a.alert_id = c.alert_id"
        )
        differ = "min(rule) OVER (PARTITION BY case_id) <> max(rule) OVER (PARTITION BY case_id)"
        return f"SELECT *, CASE WHEN {differ} THEN 1 ELSE 0 END AS is_shared_case FROM ({placed}) placed"

    def _shared(self) -> str:
        """Return a query for the payments that are in alerts of several live rules."""
        return (
            f"SELECT transaction_id FROM ({self._payments}) payments GROUP BY transaction_id "
            "HAVING min(rule) <> max(rule)"
        )


def _between(first: date | None, last: date | None) -> str:
    day = "CAST(timestamp AS DATE)"
    limits = [f"{day} {sign} {value(limit)}" for sign, limit in ((">=", first), ("<=", last)) if limit]
    return " AND ".join(limits) or "true"


def _is_live(live: Sequence[RuleVersion]) -> str:
    """Return the condition that an alert is one of these versions."""
    names = defaultdict(list)
    for one in live:
        names[one.version].append(one.rule.name)
    of_versions = (f"rule_version = {version} AND {one_of('rule', of)}" for version, of in names.items())
    return f"({' OR '.join(of_versions)})"


def _counts(numbers: Mapping[str, str]) -> str:
    """Return the sums of numbers over all rows and, with the prefix ``alone_``, over the rows that are not shared."""
    sums = (
        f"sum({number}) AS {name}, sum(CASE WHEN is_shared = 0 THEN {number} ELSE 0 END) AS alone_{name}"
        for name, number in numbers.items()
    )
    return ", ".join(sums)


def _findings(row: Mapping[str, Any]) -> tuple[Findings, Findings]:
    """Return what a rule found, and what it alone found, from the figures of its rows."""
    alone = {name.removeprefix("alone_"): count for name, count in row.items() if name.startswith("alone_")}
    return Findings(**{name: row[name] for name in alone}), Findings(**alone)
