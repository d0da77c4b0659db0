"""What if: compares the alerts that a rule raises over history with those of a changed rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.detection import backtest, list_entries, truth
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
_FIGURES = pa.field("figures", pa.string())


def what_if(lake: Lake, old: Rule | None, new: Rule, first: date | None = None, last: date | None = None) -> WhatIf:
    """Compare the alerts of a changed rule with those of the present one, over transactions of a range of days.

    Both rules see the transactions before the range that they look back to, as they would in a stream.

    Raises:
        UsageError: a rule does not fit the columns, or the rules are of different entities.
    """
    columns = query_columns(lake.settings.columns)
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
    seen = truth.condition("date", since, last)
    rows, needs = backtest.with_verdicts(lake, lake.read(tables.SILVER_TRANSACTIONS).where(seen), seen)
    frauds = truth.frauds(truth.verdicts_on(lake, in_range)) if backtest.VERDICT in needs else 0
    entries = list_entries.read_rule(lake.store, new.name)
    tasks = backtest.tasks_for(lake, truth.count_range(lake, seen).transactions)

    def compared(*alerts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        before = () if old is None else alerts[0]
        return in_batches(compare(before, alerts[-1], (old, new), entries, begin))

    changes = backtest.evaluate_in_tasks(rows, rules, lake.settings, tasks, needs, compared, SCHEMA)
    return summarize(lake.store, *collected(changes), (old, new), history, frauds)


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
