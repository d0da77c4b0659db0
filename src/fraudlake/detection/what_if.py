"""What if: compares the alerts that a rule raises over history with those of a changed rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.detection import backtest, evidence, suppression, truth
from fraudlake.detection.alert_changes import ROWS, Changes, WhatIf, compare, summarize
from fraudlake.errors import UsageError
from fraudlake.rules.columns import query_columns
from fraudlake.text import json_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.rules.kinds import Rule

SCHEMA = """
    change STRING, alert_id STRING, entity STRING, entity_key STRING, account_id STRING, transaction_id STRING,
    timestamp TIMESTAMP, amount DOUBLE, is_fraud BOOLEAN, figures STRING
"""
"""The columns of differences that tasks yield: rows of :data:`ROWS`, and one with the figures alone, as JSON."""
VERSION = "rule_version"
"""The column of alerts that says which rule raised each: 1 or 2."""
_FIGURES = pa.field("figures", pa.string())


def what_if(lake: Lake, old: Rule | None, new: Rule, first: date | None = None, last: date | None = None) -> WhatIf:
    """Compare the alerts of a changed rule with those of the present one, over transactions of a range of days.

    Both rules see the transactions before the range that they look back to, as they would in a stream.

    Raises:
        UsageError: a rule does not fit the columns, or the rules are of different entities.
    """
    columns = query_columns(lake.settings.silver_columns)
    rules = [rule for rule in (old, new) if rule is not None]
    compiled = [rule.compile(columns, lake.settings.entities) for rule in rules]
    if len({tuple(one.partition_by) for one in compiled}) > 1:
        raise UsageError(f"{new.name}: what-if compares rules by one entity, and these are by two: backtest each")
    in_range = truth.condition("date", first, last)
    history = truth.count_range(lake, in_range)
    begin = datetime.combine(first, time(), UTC) if first else None
    look_backs = [one.look_back for one in compiled]
    since = None
    if begin is not None and None not in look_backs:
        since = (begin - max(span for span in look_backs if span is not None)).date()
    in_history = truth.condition("date", since, last)
    rows, needs = backtest.with_verdicts(lake, lake.read(tables.SILVER_TRANSACTIONS).where(in_history), in_history)
    frauds = truth.frauds(truth.verdicts_on(lake, in_range)) if backtest.VERDICT in needs else 0
    tasks = backtest.tasks_for(lake, truth.count_range(lake, in_history).transactions)
    evaluate = partial(backtest.evaluate_in_tasks, rows, rules, lake.settings, tasks, needs)
    if any(rule.watched for rule in rules) or suppression.read_entries(lake, rules) is not None:
        schema = f"{evidence.COLUMNS}, {VERSION} INT"
        schema += ", verdicts ARRAY<BOOLEAN>" if backtest.VERDICT in needs else ""
        changes = compare_raised(lake, evaluate(_versioned, schema), old, new, begin)
    else:

        def compared(*alerts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
            before = () if old is None else alerts[0]
            return in_batches(compare(before, alerts[-1], (old, new), begin))

        changes = collected(evaluate(compared, SCHEMA))
    return summarize(lake.store, *changes, (old, new), history, frauds)


def _versioned(*alerts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield the alerts of each rule with its number."""
    for number, parts in enumerate(alerts, 1):
        for part in parts:
            yield from part.append_column(VERSION, pa.repeat(pa.scalar(number, pa.int32()), len(part))).to_batches()


def compare_raised(
    lake: Lake, raised: DataFrame, old: Rule | None, new: Rule, begin: datetime | None = None
) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Compare alerts that two rules have raised, without those that lists take away; return rows and figures.

    Args:
        lake: the lake.
        raised: alerts, :data:`evidence.COLUMNS` and perhaps ``verdicts``, with the number of their rule in
            :data:`VERSION`.
        old: the present rule, number 1, if there is one.
        new: the changed rule, the last number.
        begin: alerts of earlier transactions do not count.
    """
    rules = [rule for rule in (old, new) if rule is not None]
    entries = suppression.read_entries(lake, rules)
    with_entry = suppression.history_with_entries(raised, entries, rules, lake.settings)
    last = len(rules)

    def compared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        present = [batch for batch in batches if batch.num_rows]
        if present:
            alerts = pa.Table.from_batches(present)
            is_new = pc.equal(alerts[VERSION], last)
            sides = (alerts.filter(pc.invert(is_new)), alerts.filter(is_new))
            before, after = (side.drop_columns(VERSION) for side in sides)
            yield from in_batches(compare([before], [after], (old, new), begin))

    return collected(with_entry.repartition("entity_key").mapInArrow(compared, SCHEMA))


def in_batches(changes: Changes) -> Iterator[pa.RecordBatch]:
    """Yield the differences of a task in the columns of :data:`SCHEMA`."""
    figures = pa.table({name: pa.nulls(1, type_) for name, type_ in zip(ROWS.names, ROWS.types, strict=True)})
    figures = figures.append_column(_FIGURES, pa.array([json_text.dumps(changes.figures)]))
    others = changes.rows.append_column(_FIGURES, pa.nulls(len(changes.rows), pa.string()))
    yield from pa.concat_tables([figures, others]).to_batches()


def collected(changes: DataFrame) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Return the rows and the figures that tasks have yielded by :func:`in_batches`."""
    whole = changes.toArrow()
    is_figures = whole["figures"].is_valid()
    figures = [json.loads(text) for text in whole["figures"].filter(is_figures).to_pylist()]
    return whole.filter(pc.invert(is_figures)).select(ROWS.names).cast(ROWS), figures
