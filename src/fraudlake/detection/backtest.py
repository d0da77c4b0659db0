"""Backtest: evaluates a rule over a range of history, and counts its alerts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import evidence, rule_entity, suppression, truth
from fraudlake.detection.report import Range, Report, Tally, report
from fraudlake.keyed import buckets
from fraudlake.rules.columns import query_columns
from fraudlake.rules.compiled_rule import EVIDENCE_ROWS
from fraudlake.text import json_text
from fraudlake_patterns import TIMESTAMP
from fraudlake_patterns.expressions import json_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.rules.kinds import Rule
    from fraudlake.settings import Settings

ROWS_OF_TASK = 250_000
"""Approximate number of transactions that a task of a backtest or a replay has in memory."""
VERDICT = "verdict"
"""The column of the latest verdict; true is fraud."""
_ORDER = ("time", "account_id", "transaction_id")
_MATCHES = 10_000


def backtest(lake: Lake, rule: Rule, first: date | None, last: date | None) -> tuple[Report, DataFrame]:
    """Evaluate a rule over ``silver_transactions`` of a range of days (inclusive); return its figures and its alerts.

    The tasks count the figures. Reading the alerts (:func:`alerts`) evaluates the rule again. Alerts that list entries
    suppress are only counted.
    """
    in_range = truth.condition("date", first, last)
    history = truth.count_range(lake, in_range)
    silver = lake.read(tables.SILVER_TRANSACTIONS).where(in_range)
    tasks = tasks_for(lake, history.transactions)
    evaluated, needs = with_verdicts(lake, silver, in_range)
    frauds = truth.frauds(truth.verdicts_on(lake, in_range)) if VERDICT in needs else 0
    entries = suppression.read_entries(lake, [rule])
    if entries is None and not rule.watched:
        counted = evaluate_in_tasks(evaluated, [rule], lake.settings, tasks, needs, _tallied, _TALLY)
        return report(rule, _read(counted), history, frauds), alerts(silver, rule, lake.settings, tasks)
    schema = f"{evidence.COLUMNS}, verdicts ARRAY<BOOLEAN>" if VERDICT in needs else evidence.COLUMNS
    raised = evaluate_in_tasks(evaluated, [rule], lake.settings, tasks, needs, _batches, schema)
    return without_suppressed(raised, entries, rule, lake.settings, history, frauds)


def tasks_for(lake: Lake, transactions: int) -> int:
    """Return the number of tasks for so many transactions."""
    return max(lake.settings.buckets, -(-transactions // ROWS_OF_TASK))


def with_verdicts(lake: Lake, rows: DataFrame, condition: str) -> tuple[DataFrame, list[str]]:
    """Add the latest verdicts of days to transactions, unless the lake has none.

    Args:
        lake: the lake.
        rows: rows of ``silver_transactions``.
        condition: a condition on ``date`` that selects the verdicts.

    Returns:
        The rows, perhaps with :data:`VERDICT`, and the columns that evidence needs of them.
    """
    if not lake.store.has_rows(tables.SILVER_VERDICTS):
        return rows, evidence.needs(lake.settings)
    decided = truth.verdicts_on(lake, condition)
    return rows.join(decided, on="transaction_id", how="left"), [*evidence.needs(lake.settings), VERDICT]


def without_suppressed(
    raised: DataFrame, entries: DataFrame | None, rule: Rule, settings: Settings, history: Range, frauds: int
) -> tuple[Report, DataFrame]:
    """Return the figures of alerts, :data:`evidence.COLUMNS`, that no entry suppresses, and these alerts.

    Args:
        raised: all alerts of the rule, perhaps with ``verdicts``.
        entries: rows of ``silver_list_entries``; None if there are none.
        rule: the rule.
        settings: the declared columns and entities.
        history: the transactions of the range.
        frauds: number of transactions in the range that a verdict calls fraud.
    """
    if entries is None and not rule.watched:
        return report(rule, tallies(raised), history, frauds), raised
    versioned = raised.withColumn("rule_version", F.lit(1))
    with_entry = suppression.history_with_entries(versioned, entries, [rule], settings).drop("rule_version")
    left = with_entry.where("entry_id IS NULL").drop("entry_id")
    suppressed = with_entry.where("entry_id IS NOT NULL").count()
    return replace(report(rule, tallies(left), history, frauds), suppressed=suppressed), left


def tallies(alerts: DataFrame) -> list[dict[str, Any]]:
    """Count alerts (:data:`evidence.COLUMNS` and ``verdicts``) in tasks, partitioned by key; see :class:`Tally`."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _tallied(pa.Table.from_batches([batch]) for batch in batches)

    return _read(alerts.repartition("entity_key").mapInArrow(count, _TALLY))


_TALLY = "tally STRING"


def _tallied(parts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    tally = Tally()
    for part in parts:
        tally.add(part)
    yield pa.RecordBatch.from_pydict({"tally": [json_text.dumps(tally.as_dict())]})


def _read(counted: DataFrame) -> list[dict[str, Any]]:
    return [json.loads(row["tally"]) for row in counted.collect()]


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
        UsageError: the rule does not fit the columns.
    """
    return evaluate_in_tasks(silver, [rule], settings, tasks, evidence.needs(settings), _batches, evidence.COLUMNS)


def _batches(parts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from part.to_batches()


def evaluate_in_tasks(
    silver: DataFrame,
    rules: Sequence[Rule],
    settings: Settings,
    tasks: int,
    needs: Sequence[str],
    made: Callable[..., Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Apply ``made`` to the alerts that rules of one entity raise in each task, and return its output.

    ``made`` gets the alerts of each rule in chunks, :data:`evidence.COLUMNS` and, if needed, ``verdicts``.
    """
    columns = query_columns(settings.silver_columns)
    entities = settings.entities
    compiled = [rule.compile(columns, entities) for rule in rules]
    partition_by = compiled[0].partition_by
    by = rule_entity.find_entity_or_account(rules[0], partition_by, settings)

    def parts(table: pa.Table, rule: Rule) -> Iterator[pa.Table]:
        # Rules can be sent to tasks, but compiled rules cannot: they contain functions of NumPy.
        of_rows = rule.compile(columns, entities)
        for part in evidence.parts(of_rows.evaluate(table).alerts):
            yield evidence.table(table, part, of_rows.columns, by)

    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        present = [batch for batch in batches if batch.num_rows]
        if present:
            table = pa.Table.from_batches(present)
            yield from made(*(parts(table, rule) for rule in rules))

    read = [name for one in compiled for name in one.columns]
    rows = silver.select(*dict.fromkeys((*needs, *read)))
    if not by.is_account:  # rows without a key are not evaluated
        rows = rows.where(buckets.key_hash(by.columns).isNotNull())
    divided = rows.repartition(tasks, *partition_by) if partition_by else rows.coalesce(1)
    return divided.mapInArrow(evaluate, schema)


def matches_in_order(rule: Rule, alerts: DataFrame) -> Iterator[str]:
    """Yield the :func:`matches` of alerts (:data:`evidence.COLUMNS`) in the order of time, in chunks."""
    time, *others = _ORDER
    rows = alerts.select(F.unix_micros(time).alias(time), *others, "measures").orderBy(*_ORDER).toLocalIterator()
    while part := [row.asDict() for row in islice(rows, _MATCHES)]:
        yield from matches(rule, pa.Table.from_pylist(part))


def matches(rule: Rule, alerts: pa.Table) -> list[str]:
    """Return a JSON object for each alert, with values as Flink prints them.

    A pattern returns what its query selects, by default the columns of ``PARTITION BY`` and the measures, without the
    number of rows of a long match. An alert of another kind also has ``accountId``, ``dt`` and ``transaction_id`` of
    the transaction that completed it.
    """
    measures: list[str] = alerts["measures"].to_pylist()
    if rule.kind == "pattern":
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
