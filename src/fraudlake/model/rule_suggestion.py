"""Rule suggestion: finds a few thresholds on history that find the most fraud for a budget of accounts a day.

What is counted are days of accounts: an analyst who gets an alert sees all payments that the account made that day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.model import history, rule_candidates, rule_choice, training
from fraudlake.model.account_days import AccountDays
from fraudlake.model.search import TooLittleError
from fraudlake.text import toml_file
from fraudlake.text.sql_text import value
from fraudlake.times import durations

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.model.rule_choice import Choice
    from fraudlake.model.search import Progress
    from fraudlake.rules.kinds.threshold import ThresholdRule
    from fraudlake.settings import Settings

_MOST_ROWS = 500_000
_MOST_TEXTS = 50
"""The number of values above which a text column is a key and no category: what is true of a key passes soon."""
_MOST_VALUES = 3
"""The number of values of a text column that become conditions."""
_LARGE = 0.95
"""The share of amounts that are not large."""


@dataclass(frozen=True)
class Addition:
    """What a rule finds on the days of the test that neither live rules nor the suggested rules before it find."""

    rule: ThresholdRule
    accounts_a_day: float
    frauds: int
    """Days of accounts with fraud."""
    genuine: int
    """Days of accounts with labels but without fraud."""
    amount: float
    """The frauds' amounts."""

    def text(self) -> str:
        """Return what the rule finds as a sentence."""
        labelled = self.frauds + self.genuine
        precision = f", precision {self.frauds / labelled:.0%}" if labelled else ""
        return (
            f"adds {self.frauds:,} days of accounts with fraud ({self.amount:,.2f}) at {self.accounts_a_day:,.1f} "
            f"accounts a day{precision}"
        )


@dataclass(frozen=True)
class RuleSuggestion:
    """The outcome: the rules, and the days of accounts with fraud that live rules and all rules find in the test."""

    additions: tuple[Addition, ...]
    tried: int
    frauds: int
    found_by_live: int
    learned: str
    """The days on which the rules were found."""
    tested: str
    """The later days on which they were measured."""

    @property
    def rules(self) -> tuple[ThresholdRule, ...]:
        """The suggested rules."""
        return tuple(one.rule for one in self.additions)

    @property
    def found_by_all(self) -> int:
        """The days of accounts with fraud that live rules or suggested rules find."""
        return self.found_by_live + sum(one.frauds for one in self.additions)

    @property
    def accounts_a_day(self) -> float:
        """The accounts a day with alerts of suggested rules, and none of live rules."""
        return sum(one.accounts_a_day for one in self.additions)

    def text(self) -> str:
        """Return a line for each rule, and a summary."""
        lines = [f"{one.rule.name}: {one.text()}" for one in self.additions]
        return "\n".join([*lines, self.summary()])

    def summary(self) -> str:
        """Return what the rules find together."""
        rules = f"{len(self.additions)} of {self.tried} thresholds tried, found on {self.learned}"
        before = f"live rules find {self.found_by_live:,}"
        with_them = f"with them {self.found_by_all:,}, at {self.accounts_a_day:,.1f} accounts a day more"
        return f"{rules}; of {self.frauds:,} days of accounts with fraud on {self.tested}, {before}, {with_them}"

    def toml(self) -> str:
        """Return a file of the rules; comments say what each adds."""
        parts = [f"# {self.summary()}"]
        for one in self.additions:
            parts.append(f"# {one.text()}\n{toml_file.entry('rules', _fields(one.rule))}")
        return "\n\n".join(parts) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for ``--json``."""
        rules = [
            {
                "rule": one.rule.model_dump(mode="json", exclude_none=True),
                "accounts_a_day": one.accounts_a_day,
                "frauds": one.frauds,
                "genuine": one.genuine,
                "amount": one.amount,
            }
            for one in self.additions
        ]
        return {
            "rules": rules,
            "tried": self.tried,
            "frauds": self.frauds,
            "found_by_live": self.found_by_live,
            "found_by_all": self.found_by_all,
            "accounts_a_day": self.accounts_a_day,
            "learned": self.learned,
            "tested": self.tested,
        }


def suggest(lake: Lake, accounts: int, progress: Progress = lambda *_: None) -> RuleSuggestion:
    """Find rules that add the most fraud to what live rules have found, with alerts for some accounts a day more.

    Rules are found on the part of the history before the one that 'train' tests on, and measured on that one. Labels
    are those that 'train' learns. Of a long history, the newest :data:`_MOST_ROWS` transactions are used.

    Args:
        lake: the lake.
        accounts: the largest mean number of accounts a day with alerts of the suggested rules, and none of live rules.
        progress: called for each threshold that is tried.

    Raises:
        FraudlakeError: the lake has too few labels, or too few days.
    """
    settings = lake.settings
    silver = history.read_newest(lake.store, _columns(settings), _MOST_ROWS)
    rule_set = rule_table.read(lake)
    days = AccountDays(silver, *_labels(lake, silver), _alerts(lake, [version.rule.name for version in rule_set.live]))
    large = history.amount_above(silver, _LARGE)
    rules = rule_candidates.candidates(settings, _values(silver, settings, days), large)
    tried = [*rule_choice.try_all(rules, silver, days, settings, progress)]
    chosen = rule_choice.without_needless(rule_choice.choose(tried, days, accounts * days.learned_days), days)
    additions = _named([*_measured(chosen, days)], {version.rule.name for version in rule_set.versions})
    is_fraud = days.is_tested & days.is_fraud
    return RuleSuggestion(
        tuple(additions),
        len(tried),
        int(is_fraud.sum()),
        int((is_fraud & days.has_live_alert).sum()),
        days.span(days.is_learned),
        days.span(days.is_tested),
    )


def _columns(settings: Settings) -> list[str]:
    """Return the columns of silver that labels and candidates read."""
    names = ["transaction_id", "account_id", "timestamp", "amount", "label", "source", "position"]
    return list(dict.fromkeys([*names, *settings.silver_columns]))


def _labels(lake: Lake, silver: pa.Table) -> tuple[pa.Array, datetime, datetime]:
    """Return the label of each transaction, null if none is known, and the times between which no part is."""
    settings = lake.settings
    past = history.select_labels(silver, training.known_verdicts(lake))
    try:
        _, by, cut = training.labelled_rows(past, settings)
    except TooLittleError as error:
        raise error.stopping("suggest rules") from None
    label = past.label(by, settings.known_after)
    if settings.train_from is not None:
        begin = history.micros(datetime.combine(settings.train_from, time()))
        is_before = pa.array(past.table["time"].to_numpy() < begin)
        label = pc.if_else(is_before, pa.scalar(None, pa.bool_()), label)
    return label, cut.validated_until, cut.tested_from


def _alerts(lake: Lake, names: Sequence[str]) -> pa.Table:
    """Return ``account_id, day`` of the alerts of some rules."""
    table = tables.SILVER_ALERTS
    listed = ", ".join(map(value, names)) or "NULL"
    return lake.store.query(
        f"SELECT DISTINCT account_id, CAST(timestamp AS DATE) AS day FROM {table.name} WHERE rule IN ({listed})", table
    )


def _values(silver: pa.Table, settings: Settings, days: AccountDays) -> dict[str, list[str]]:
    """Return the values of text columns among whose transactions there is the most fraud, on days to learn from."""
    is_learned = pa.array(days.is_learned[days.number])
    rows = silver.append_column("_fraud", pc.and_(days.label, is_learned)).filter(
        pc.and_(is_learned, days.label.is_valid())
    )
    values = {}
    for name in rule_candidates.categories(settings):
        of_value = rows.group_by(name).aggregate([("_fraud", "sum"), ("_fraud", "count")]).drop_null()
        if len(of_value) > _MOST_TEXTS:
            continue
        frauds, labelled = (of_value[f"_fraud_{figure}"].to_numpy() for figure in ("sum", "count"))
        best = np.argsort(-rule_choice.lowest_share(frauds, labelled), kind="stable")[:_MOST_VALUES]
        values[name] = of_value[name].take(pa.array(best)).to_pylist()
    return values


def _measured(chosen: Sequence[Choice], days: AccountDays) -> Iterator[Addition]:
    """Measure rules on the days of the test, each in addition to live rules and the rules before it."""
    is_open = days.is_tested & ~days.has_live_alert
    for one in chosen:
        is_alerted = is_open & one.is_alerted
        is_open &= ~is_alerted
        is_fraud = is_alerted & days.is_fraud
        yield Addition(
            one.rule,
            int(is_alerted.sum()) / days.tested_days,
            int(is_fraud.sum()),
            int((is_alerted & days.is_genuine).sum()),
            float(days.amount[is_fraud].sum()),
        )


def _named(additions: Sequence[Addition], names: set[str]) -> list[Addition]:
    """Name the rules; a name that a rule of the lake has gets a number."""
    named: list[Addition] = []
    for one in additions:
        name = _name(one.rule)
        number = 1
        while name in names:
            number += 1
            name = f"{_name(one.rule)}_{number}"
        names = names | {name}
        named.append(replace(one, rule=one.rule.model_copy(update={"name": name})))
    return named


def _name(rule: ThresholdRule) -> str:
    """Return a name of a rule made from its entity, aggregate, column and window."""
    window = durations.text(rule.window) if isinstance(rule.window, timedelta) else f"{rule.window} transaction"
    column = "" if rule.column == "amount" else rule.column
    where = rule.where or ""
    words = re.findall("[a-z0-9]+", f"{rule.entity} {rule.aggregate} {column} {window} {where}".lower())
    return "_".join(words)


def _fields(rule: ThresholdRule) -> dict[str, Any]:
    """Return the fields of a rule, with its window as a person would write it."""
    fields = rule.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    window = {"window": durations.text(rule.window)} if isinstance(rule.window, timedelta) else {}
    return {"kind": rule.kind, **fields, **window}
