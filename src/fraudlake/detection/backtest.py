"""Backtest: a rule over a range of history becomes its alerts and their figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

from fraudlake import json_text, tables
from fraudlake.detection import buckets, entity, evidence, truth
from fraudlake.detection.report import Report, report
from fraudlake.match_recognize import TIMESTAMP
from fraudlake.match_recognize.expressions import json_value
from fraudlake.rules.columns import query_columns
from fraudlake.rules.compiled_rule import EVIDENCE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.rules.kinds import Rule
    from fraudlake.settings import Settings

ROWS_OF_TASK = 250_000
"""Transactions that a task of a backtest or a replay holds in memory, about."""


def backtest(lake: Lake, rule: Rule, first: date | None, last: date | None) -> tuple[Report, pa.Table]:
    """``silver_transactions`` of a range of days, both included → the figures of a rule, and its alerts.

    The alerts are sorted by time; :data:`fraudlake.detection.evidence.COLUMNS` has their columns.
    """
    in_range = truth.condition("date", first, last)
    history = truth.of_range(lake, in_range)
    silver = lake.read(tables.SILVER_TRANSACTIONS).where(in_range)
    tasks = max(lake.settings.buckets, -(-history.transactions // ROWS_OF_TASK))
    raised = in_order(alerts(silver, rule, lake.settings, tasks).toArrow())
    return report(rule, raised, history, truth.verdicts_on(lake, in_range)), raised


def alerts(silver: DataFrame, rule: Rule, settings: Settings, tasks: int) -> DataFrame:
    """Evaluate a rule over transactions in event-time order.

    Args:
        silver: ``silver_transactions`` of the range.
        rule: the rule.
        settings: the declared columns.
        tasks: how many tasks share the accounts.

    Returns:
        The columns of :data:`evidence.COLUMNS`, in no order.

    Raises:
        UsageError: the rule does not suit the columns.
    """
    columns, entities = query_columns(settings.columns), settings.entities
    compiled = rule.compile(columns, entities)
    by = entity.of_evaluated(rule, compiled.partition_by, settings)

    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        present = [batch for batch in batches if batch.num_rows]
        if present:
            table = pa.Table.from_batches(present)
            # A rule travels to the task; a compiled one holds functions of numpy, which do not.
            of_rows = rule.compile(columns, entities)
            raised = of_rows.evaluate(table).alerts
            for begin in range(0, len(raised), evidence.AT_ONCE):
                part = raised[begin : begin + evidence.AT_ONCE]
                yield from evidence.table(table, part, of_rows.columns, by).to_batches()

    names = dict.fromkeys((*evidence.NEEDS, *compiled.columns))
    rows = silver.select(*names)
    if not by.is_account:  # rows without a key are not evaluated
        rows = rows.where(buckets.key_hash(by.columns).isNotNull())
    divided = rows.repartition(tasks, *compiled.partition_by) if compiled.partition_by else rows.coalesce(1)
    return divided.mapInArrow(evaluate, evidence.COLUMNS)


def in_order(alerts: pa.Table) -> pa.Table:
    """Sort alerts by time, account and transaction."""
    keys = [(name, "ascending") for name in ("time", "account_id", "transaction_id")]
    return alerts.sort_by(keys)


def matches(rule: Rule, alerts: pa.Table) -> list[str]:
    """Return alerts as a JSON object each, in which values are written as Flink prints them.

    A pattern gives what its query selects, by default the columns of ``PARTITION BY`` and the measures, without the
    number of rows of a long match. An alert of a threshold or of a score also has ``accountId``, ``dt`` and
    ``transaction_id`` of the transaction that completed it.
    """
    measures: list[str] = alerts["measures"].to_pylist()
    if rule.kind not in ("threshold", "model"):
        return [_selected(text) for text in measures]
    times = alerts["time"].cast(pa.int64()).to_pylist()
    accounts, transactions = (alerts[name].to_pylist() for name in ("account_id", "transaction_id"))
    return [
        json_text.dumps(
            {
                "accountId": account,
                "dt": json_value(time, TIMESTAMP),
                "transaction_id": transaction,
                **json.loads(computed),
            }
        )
        for account, time, transaction, computed in zip(accounts, times, transactions, measures, strict=True)
    ]


def _selected(measures: str) -> str:
    """Return the measures that a query selects."""
    if EVIDENCE_ROWS not in measures:
        return measures
    return json_text.dumps({name: value for name, value in json.loads(measures).items() if name != EVIDENCE_ROWS})
