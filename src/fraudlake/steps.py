"""Steps: apply the layers' pure functions to the lake's tables; one scheduled task calls one step."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import gold, tables
from fraudlake.delivery import delivery
from fraudlake.detection import alerts as silver_alerts
from fraudlake.detection import backtest as history
from fraudlake.gold import alert_windows
from fraudlake.model import scoring, training
from fraudlake.quarantine import replay
from fraudlake.silver import duplicates, rules, verdicts
from fraudlake.silver import transactions as silver
from fraudlake.sources import file_source, kafka_source
from fraudlake.streaming import conflict, merge, refresh
from fraudlake.streaming.batch_inputs import BatchInputs
from fraudlake.streaming.rows import has_rows, persisted
from fraudlake.streaming.stream import Appender, Stream

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from fraudlake.delivery.sink import Destination
    from fraudlake.gold.aggregate import Aggregate
    from fraudlake.lake import Lake
    from fraudlake.model import search
    from fraudlake.rules.kinds import Rule


def ingest(lake: Lake, retry_rejected: bool = False) -> list[Stream]:
    """Landed files, or a Kafka topic → ``bronze_transactions``. Files and topic have a checkpoint each.

    The file source also writes ``bronze_files`` (the outcome of each file) and ``bronze_rejected_files``.
    """
    return [kafka_source.stream(lake) if lake.settings.source == "kafka" else file_source.stream(lake, retry_rejected)]


def refine(lake: Lake) -> list[Stream]:
    """``bronze_transactions`` → ``silver_transactions`` and ``silver_quarantine``.

    A micro-batch makes two commits. After a crash between them, Spark repeats it: see
    :class:`~fraudlake.streaming.batch_inputs.BatchInputs`.
    """
    checkpoint = lake.checkpoint("refine")
    appender = Appender.of(lake, "refine")
    position_index = duplicates.PositionIndex()
    recorded: dict[int, BatchInputs] = {}

    def recover() -> None:
        replay.finish(lake)
        batch_id = checkpoint.pending_batch()
        inputs = None if batch_id is None else BatchInputs.recorded(lake, appender.application, batch_id)
        if batch_id is not None and inputs is not None:
            recorded[batch_id] = inputs

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        inputs = recorded.get(batch_id) or BatchInputs.now(lake)
        # The summary reads every row, so it computes the persisted rows.
        with persisted(silver.checked(batch, inputs.settings), eager=False) as checked:
            summary = duplicates.batch_summary(checked)
            stored = duplicates.StoredTables(
                lambda: lake.read_version(tables.SILVER_TRANSACTIONS, inputs.silver_version),
                lambda: lake.read_version(tables.SILVER_QUARANTINE, inputs.quarantine_version),
            )
            overlapping_sources = position_index.overlapping_sources(summary, stored)
            may_hold_duplicates = summary.may_hold_duplicates(overlapping_sources)
            rows = duplicates.with_duplicate_reasons(checked, summary, overlapping_sources, stored)
            # The search for duplicates joins: its result is written to two tables, and computed once.
            with persisted(rows) if may_hold_duplicates else nullcontext():
                if summary.valid:
                    metadata = inputs.as_metadata(appender.application, batch_id)
                    valid = silver.valid(rows, lake.settings.columns)
                    appender.append(lake, valid, tables.SILVER_TRANSACTIONS, batch_id, metadata=metadata)
                if summary.rejected or may_hold_duplicates:
                    appender.append(lake, silver.quarantined(rows), tables.SILVER_QUARANTINE, batch_id)
            position_index.add(summary)

    return [
        Stream(
            "refine",
            lake.read_stream(tables.BRONZE_TRANSACTIONS),
            write,
            reads=(tables.BRONZE_TRANSACTIONS,),
            writes={tables.SILVER_TRANSACTIONS.name: lake.read(tables.SILVER_TRANSACTIONS)},
            persist=False,
            before=recover,
        )
    ]


def detect(lake: Lake, forget: Mapping[int, str] | None = None) -> list[Stream]:
    """``silver_transactions`` → ``silver_alerts``, through the stateful detector.

    The accounts in ``forget``, by their hashes (``xxhash64``), leave the state. Where the step starts over, late rows
    of the stream before leave ``silver_quarantine``: every row is evaluated again.
    """
    checkpoint, appender = lake.checkpoint("detect"), Appender.of(lake, "detect")

    def forget_late() -> None:
        is_late = f"array_contains(reasons, '{rules.LATE}')"
        if checkpoint.is_new and has_rows(lake.read(tables.SILVER_QUARANTINE).where(is_late)):
            name = lake.name_of(tables.SILVER_QUARANTINE)
            conflict.retried(lambda: lake.spark.sql(f"DELETE FROM {name} WHERE {is_late}"))  # noqa: S608

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        # In the order of arrival no row is late, and the detector's output is used once.
        with persisted(batch, eager=False) if in_event_time else nullcontext():
            appender.append(lake, silver_alerts.alerts(batch), tables.SILVER_ALERTS, batch_id)
            if in_event_time:
                late = silver.quarantined_late(silver_alerts.late(batch), lake.table(tables.SILVER_QUARANTINE))
                appender.append(lake, late, tables.SILVER_QUARANTINE, batch_id)

    in_event_time = lake.settings.ordering == "event_time"
    transactions = lake.read_stream(tables.SILVER_TRANSACTIONS, by_time="timestamp" if in_event_time else None)
    return [
        Stream(
            "detect",
            silver_alerts.detector_output(transactions, lake.settings, forget),
            write,
            reads=(tables.SILVER_TRANSACTIONS,),
            writes={tables.SILVER_ALERTS.name: lake.read(tables.SILVER_ALERTS)},
            fixed={"buckets": lake.settings.buckets, "ordering": lake.settings.ordering},
            persist=False,
            waits=in_event_time,
            before=forget_late,
        )
    ]


def deliver(lake: Lake, to: Destination, from_now: bool = False) -> list[Stream]:
    """``silver_alerts`` → a log, files, a topic, a webhook or a database, and ``silver_deliveries``."""
    return [delivery.stream(lake, to, from_now)]


ROWS_OF_TASK = 250_000
"""Transactions that a task of a backtest or a replay holds in memory, about."""


def backtest(lake: Lake, rule: Rule, first: date | None, last: date | None) -> tuple[history.Report, pa.Table]:
    """``silver_transactions`` of a range of days, both included → the figures of a rule, and its alerts.

    The alerts are sorted by time; :data:`fraudlake.detection.evidence.COLUMNS` has their columns.
    """
    limits = [f"date >= '{first}'"] if first else []
    limits += [f"date <= '{last}'"] if last else []
    in_range = " AND ".join(limits) or "true"
    figures = "count(*) AS transactions, min(date) AS first, max(date) AS last, sum(CASE WHEN label THEN 1 ELSE 0 END)"
    (row,) = lake.query(tables.SILVER_TRANSACTIONS, f"{figures} AS fraud", f"WHERE {in_range}").to_pylist()
    there = history.Range(row["transactions"], row["first"], row["last"], row["fraud"] or 0)
    silver = lake.read(tables.SILVER_TRANSACTIONS).where(in_range)
    tasks = max(lake.settings.buckets, -(-there.transactions // ROWS_OF_TASK))
    alerts = history.in_order(history.alerts(silver, rule, lake.settings, tasks).toArrow())
    latest = verdicts.latest(lake.read(tables.SILVER_VERDICTS)).where(in_range)
    decided = latest.where("verdict IS NOT NULL").select("transaction_id", "verdict").toArrow().to_pylist()
    truths = {row["transaction_id"]: row["verdict"] for row in decided}
    return history.report(rule, alerts, there, truths), alerts


def aggregate(lake: Lake) -> list[Stream]:
    """``silver_transactions`` and ``silver_alerts`` → the aggregates by day, and ``gold_alert_windows``."""
    return [*(_refreshed(lake, aggregate) for aggregate in gold.AGGREGATES), _windowed(lake)]


def _refreshed(lake: Lake, aggregate: Aggregate) -> Stream:
    transactions = lake.read_stream(tables.SILVER_TRANSACTIONS).select("account_id", "date")
    alerts = lake.read_stream(tables.SILVER_ALERTS).selectExpr("account_id", "to_date(timestamp) AS date")

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        def compute(dates: list[date]) -> DataFrame:
            days = refresh.on_dates(lake.read(tables.SILVER_TRANSACTIONS), dates)
            return aggregate.compute(days, lake.read(tables.SILVER_ALERTS), lake.settings)

        refresh.refresh(lake, _of_whole_days(lake, batch, F.col("date")), aggregate.table, aggregate.keys, compute)

    return Stream(
        aggregate.table.name.removeprefix("gold_"),
        transactions.unionByName(alerts),
        write,
        reads=(tables.SILVER_TRANSACTIONS, tables.SILVER_ALERTS),
    )


def _of_whole_days(lake: Lake, batch: DataFrame, date: Column) -> DataFrame:
    """Leave out late rows of days whose other rows may have left silver: these days cannot be computed again."""
    first_day = lake.settings.first_day(tables.SILVER_TRANSACTIONS.name, tables.SILVER_ALERTS.name)
    return batch if first_day is None else batch.where(date >= F.lit(first_day))


def _windowed(lake: Lake) -> Stream:
    """``silver_transactions`` and ``silver_alerts`` → ``gold_alert_windows``."""

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        touched = _of_whole_days(lake, batch, F.to_date("timestamp"))
        if touched is batch or has_rows(touched):
            recompute_windows(lake, touched)

    times = ("account_id", "timestamp")
    rows = (
        lake.read_stream(tables.SILVER_TRANSACTIONS)
        .select(*times)
        .unionByName(lake.read_stream(tables.SILVER_ALERTS).select(*times))
    )
    return Stream("alert_windows", rows, write, reads=(tables.SILVER_TRANSACTIONS, tables.SILVER_ALERTS))


def recompute_windows(lake: Lake, touched: DataFrame) -> None:
    """Compute the windows again that transactions and alerts belong to, and all windows behind them.

    Args:
        lake: the lake, in the session of ``touched``.
        touched: ``account_id, timestamp`` of transactions and alerts that came or went; at least one.
    """
    current = lake.read(tables.GOLD_ALERT_WINDOWS)
    with persisted(alert_windows.scope(touched, current)) as scope:
        touched_from, read_from = _instants(scope.selectExpr("min(touched_from) AS touched", "min(read_from) AS read"))
        watermark = _watermark(lake)
        transactions = lake.read(tables.SILVER_TRANSACTIONS).where(F.col("date") >= F.to_date(read_from))
        alerts = lake.read(tables.SILVER_ALERTS).where(F.col("timestamp") >= read_from)
        recomputed = alert_windows.alert_windows(transactions, alerts, scope, watermark)
        # The condition compares with a literal, so Delta skips files in which all windows are closed and untouched.
        may_change = current.where((F.col("window_end") >= touched_from) | (F.col("state") == "open"))
        changes = alert_windows.changes(recomputed, may_change, scope, watermark)
        merge.apply_changes(lake, changes, tables.GOLD_ALERT_WINDOWS, alert_windows.KEYS)


def recompute_days(lake: Lake, aggregate: Aggregate, transactions: DataFrame, days: list[date]) -> None:
    """Compute the groups of some days again, and remove those that have no transaction any more."""
    computed = aggregate.compute(refresh.on_dates(transactions, days), lake.read(tables.SILVER_ALERTS), lake.settings)
    gone = refresh.on_dates(lake.read(aggregate.table), days).join(computed, on=list(aggregate.keys), how="left_anti")
    changes = computed.withColumn("gone", F.lit(False)).unionByName(gone.withColumn("gone", F.lit(True)))
    merge.apply_changes(lake, changes, aggregate.table, aggregate.keys)


def _watermark(lake: Lake) -> Column:
    """Return the watermark: the newest event time in silver, less the delay. Only late rows lie before it."""
    delay = f"INTERVAL {lake.settings.max_out_of_orderness.total_seconds()} SECONDS"
    transactions = lake.read(tables.SILVER_TRANSACTIONS)
    newest = transactions.agg(F.max("date")).collect()[0][0]
    (watermark,) = _instants(refresh.on_dates(transactions, [newest]).selectExpr(f"max(timestamp) - {delay}"))
    return watermark


def _instants(row: DataFrame) -> list[Column]:
    """Turn the times of a one-row frame into literals. They pass as numbers, which no time zone can change."""
    micros = row.select(*(F.unix_micros(row[name]) for name in row.columns)).collect()[0]
    return [F.timestamp_micros(F.lit(value)) for value in micros]


def train(lake: Lake, progress: search.Progress = lambda *_: None) -> training.Outcome:
    """``silver_transactions`` and ``silver_verdicts`` → a registered model."""
    return training.train(lake, progress)


def score(lake: Lake, from_topic: bool = False, forget: Mapping[int, str] | None = None) -> list[Stream]:
    """``silver_transactions``, or the Kafka topic itself → ``gold_fraud_predictions`` → quality and drift.

    The accounts in ``forget``, by their hashes (``xxhash64``), leave the state.
    """
    return scoring.streams(lake, from_topic, forget or ())
