"""API: what ``import fraudlake`` offers to programs and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fraudlake import settings
from fraudlake.detection import backtest as backtest_of_transactions
from fraudlake.detection import rule_table, rule_value
from fraudlake.detection import what_if as what_if_of_transactions
from fraudlake.errors import UsageError
from fraudlake.lake.opening import open_lake as open_by_settings
from fraudlake.lake.spark_store import SparkStore
from fraudlake.model import alerts as of_predictions
from fraudlake.operations import retention
from fraudlake.operations.lineage import explain
from fraudlake.operations.status import status
from fraudlake.rules import rule_file
from fraudlake.rules.columns import query_columns
from fraudlake.rules.kinds.model import ModelRule
from fraudlake.tables import SILVER_ALERTS, SILVER_TRANSACTIONS

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.detection.alert_changes import WhatIf
    from fraudlake.detection.report import Report
    from fraudlake.detection.rule_value import RuleValues
    from fraudlake.lake import Lake
    from fraudlake.rules.kinds import Rule

__all__ = ["backtest", "explain", "open_lake", "rule_values", "status", "what_if"]

_MOST_WITHOUT_SPARK = 1_000_000
"""Most alerts that are compared in memory; Spark, which starts in seconds, spills to the disk."""
_WIDGETS = {"catalog": "catalog", "schema": "schema_name"}


def open_lake(dbutils: Any = None, **values: Any) -> Lake:
    """Open a lake to read it; it must exist.

    The lake has recorded its own definition, such as its columns, so this needs no settings file.

    Args:
        dbutils: the object of this name in a Databricks notebook, which gets the widgets ``catalog`` and ``schema``.
        **values: settings that replace those of the environment and of ``fraudlake.toml``, such as ``lake="folder"``.
            Without a lake, FRAUDLAKE_LAKE, ``fraudlake.toml`` or ``./lake`` names it.

    Raises:
        UsageError: the parameters name no lake, or settings contradict it.
        MissingLakeError: there is no such lake.
        FraudlakeError: the lake cannot be opened.
    """
    if dbutils is not None:
        for widget, setting in _WIDGETS.items():
            dbutils.widgets.text(widget, "")
            values[setting] = dbutils.widgets.get(widget) or None
    return open_by_settings(settings.load(**values), must_exist=True)


def backtest(
    lake: Lake, rule: Rule | Mapping[str, Any], first: date | None = None, last: date | None = None
) -> tuple[Report, DataFrame]:
    """Evaluate a rule over the lake's history, without changing anything; a rule of scores over its predictions.

    Args:
        lake: the lake.
        rule: the rule; a mapping has the fields of an entry of ``[[rules]]``, except ``status``.
        first: first day (UTC); by default the first of ``silver_transactions``.
        last: last day (UTC); by default the last of ``silver_transactions``.

    Returns:
        The figures, and the alerts: ``entity``, ``entity_key``, ``account_id``, ``transaction_id`` of the last
        transaction, its ``time`` and ``amount``, and ``transaction_ids`` of all. Reading the alerts evaluates the rule
        again.

    Raises:
        UsageError: the rule is not valid, or does not fit the lake's columns and entities.
    """
    tried = _checked(lake, rule)
    if isinstance(tried, ModelRule):
        return of_predictions.backtest(lake, tried, first, last)
    return backtest_of_transactions.backtest(lake, tried, first, last)


def what_if(lake: Lake, rule: Rule | Mapping[str, Any], first: date | None = None, last: date | None = None) -> WhatIf:
    """Compare the alerts that a rule would raise with those of the live rule of its name, without changing anything.

    If no rule of its name is live, all of its alerts appear. In event-time order, the differences are those of a replay
    with the rule: a rule also sees the transactions before the range that it looks back to.

    Args:
        lake: the lake.
        rule: the changed rule; a mapping has the fields of an entry of ``[[rules]]``, except ``status``.
        first: first day (UTC); by default the first of ``silver_transactions``.
        last: last day (UTC); by default the last of ``silver_transactions``.

    Raises:
        UsageError: the rule is not valid, does not fit the lake's columns and entities, or is by another entity than
            the live rule, or ``row_retention`` has removed rows to which a rule looks back.
    """
    tried = _checked(lake, rule)
    live = next((one.rule for one in rule_table.read(lake).live if one.rule.name == tried.name), None)
    if live is not None and live.looks_at != tried.looks_at:
        raise UsageError(
            f"{tried.name}: the live rule looks at {live.looks_at}, and this one at {tried.looks_at}: backtest each"
        )
    if isinstance(tried, ModelRule):
        return of_predictions.what_if(lake, live, tried, first, last)
    if first is not None:
        columns = query_columns(lake.settings.silver_columns)
        rules = [tried] if live is None else [live, tried]
        look_backs = [rule.compile(columns, lake.settings.entities).look_back for rule in rules]
        # A rule without a bounded look-back begins with the rows that are left.
        if None not in look_backs:
            reach = max(span for span in look_backs if span is not None)
            retention.require_rows(lake, first, reach, SILVER_TRANSACTIONS.name)
    return what_if_of_transactions.what_if(lake, live, tried, first, last)


def rule_values(lake: Lake, first: date | None = None, last: date | None = None) -> RuleValues:
    """Count what each live rule found, and what no other live rule found: alerts, cases, fraud and false alarms.

    A rule alone found a payment if no other live rule has an alert in the same case, nor an alert with the payment; an
    alert is like the payment that completed it. Fraud is what the latest verdict says; if no alert of these days has a
    verdict, what Flink's label says. The alerts are those of ``silver_alerts``: nothing is evaluated again, and nothing
    is changed. Spark counts more than a million alerts.

    Args:
        lake: the lake.
        first: first day (UTC) of the alerts; by default there is no limit.
        last: last day (UTC) of the alerts; by default there is no limit.

    Raises:
        UsageError: no rule is live.
    """
    store = lake.store
    if store.count(SILVER_ALERTS) > _MOST_WITHOUT_SPARK:
        store = SparkStore(lake)
    return rule_value.measure(store, rule_table.read(lake).live, first, last)


def _checked(lake: Lake, rule: Rule | Mapping[str, Any]) -> Rule:
    tried = rule_file.rule_of("rule", rule) if isinstance(rule, Mapping) else rule
    tried.check(query_columns(lake.settings.silver_columns), lake.settings.entities)
    return tried
