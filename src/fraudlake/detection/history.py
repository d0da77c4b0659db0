"""History: runs the evaluator over stored transactions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from fraudlake.detection.entity_rules import NOTHING
from fraudlake.detection.evaluator import Evaluator
from fraudlake.detection.output import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from fraudlake.detection.entity_rules import EntityRules
    from fraudlake.rules.rule_set import RuleVersion
    from fraudlake.settings import Settings


def detector_output_of_history(
    silver: DataFrame, settings: Settings, versions: Sequence[RuleVersion], tasks: int, now: int
) -> DataFrame:
    """Apply rules to stored transactions, in event-time order.

    Args:
        silver: rows of ``silver_transactions``, with as much earlier history as the rules look back.
        settings: the declared columns.
        versions: the rules.
        tasks: how many tasks share the accounts.
        now: as for :meth:`Evaluator.evaluate`.

    Returns:
        The detector's output, for :func:`alerts.alerts`; no row is late.
    """
    evaluator = Evaluator.of(settings, versions)
    selected = silver.select(*evaluator.columns(may_be_late=False))
    parts = (_apply_rules(selected, evaluator, rules, tasks, now) for rules in evaluator.by_entity.values())
    return functools.reduce(lambda some, others: some.union(others), parts)


def _apply_rules(selected: DataFrame, evaluator: Evaluator, rules: EntityRules, tasks: int, now: int) -> DataFrame:
    """Apply the rules of an entity to rows that :meth:`Evaluator.columns` selects."""
    columns = evaluator.rows

    def detect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        present = [batch for batch in batches if batch.num_rows]
        if present:
            rows = pa.Table.from_batches(present).combine_chunks()
            rows = rows.set_column(3, "source", rows["source"].dictionary_encode()).cast(columns)
            alerts, _ = rules.evaluate(NOTHING, rows, now)
            for part in alerts:
                yield from part.to_batches()

    key = rules.entity.key.column
    keyed = (
        selected
        if rules.entity.is_account
        else selected.where(F.col(key).isNotNull()).withColumn("account", F.col(key))
    )
    rows = keyed.select(*columns.names)
    return rows.repartition(tasks, "account").mapInArrow(detect, from_arrow_schema(OUTPUT))
