"""Steps: apply the layers' pure functions to the lake's tables; one scheduled task calls one step."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date, timedelta
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fraudlake import gold, literals, tables
from fraudlake.bronze.calendar import MICROSECOND
from fraudlake.delivery import delivery
from fraudlake.detection import backtest as history
from fraudlake.detection import comparison, coverage, rule_table
from fraudlake.detection import stream as detector_stream
from fraudlake.gold import alert_windows, lane_agreement
from fraudlake.lake.rows import persisted, persisted_batch
from fraudlake.model import scoring, training
from fraudlake.quarantine import replay
from fraudlake.rules.small_then_large import SmallThenLargeRule
from fraudlake.rules.threshold import ThresholdRule
from fraudlake.silver import duplicates, verdicts
from fraudlake.silver import transactions as silver
from fraudlake.sources import file_source, kafka_source
from fraudlake.streaming import refresh
from fraudlake.streaming.batch_inputs import BatchInputs
from fraudlake.streaming.stream import Appender, Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from fraudlake.delivery.sink import Destination
    from fraudlake.gold.aggregate import Aggregate
    from fraudlake.lake import Lake
    from fraudlake.model import search
    from fraudlake.rules.kinds import Rule
    from fraudlake.rules.rule_set import RuleSet, RuleVersion
    from fraudlake.tables import Table


def ingest(lake: Lake, retry_rejected: bool = False) -> list[Stream]:
    """Landed files, or a Kafka topic → ``bronze_transactions``. Files and topics have a checkpoint each.

    The file source also writes ``bronze_files`` (the outcome of each file) and ``bronze_rejected_files``. With Kafka,
    the topic of fast alerts, where there is one, goes into ``bronze_fast_alerts``.
    """
    return kafka_source.streams(lake) if lake.settings.source == "kafka" else [file_source.stream(lake, retry_rejected)]


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
        checked = silver.checked(batch, inputs.settings)
        with persisted_batch(checked) as require_again:
            summary = duplicates.batch_summary(checked)
            require_again(summary.rows)
            stored = duplicates.StoredTables(
                lambda: lake.read_version(tables.SILVER_TRANSACTIONS, inputs.silver_version),
                lambda: lake.read_version(tables.SILVER_QUARANTINE, inputs.quarantine_version),
            )
            overlapping_sources = position_index.overlapping_sources(summary, stored)
            may_hold_duplicates = summary.may_hold_duplicates(overlapping_sources)
            rows = duplicates.with_duplicate_reasons(checked, summary, overlapping_sources, stored)
            # The search for duplicates joins: its result is written to two tables, and computed once.
            with persisted(rows) if may_hold_duplicates else nullcontext():
                written = []
                if summary.valid:
                    valid = silver.valid(rows, lake.settings.columns)
                    appender.append(lake, valid, tables.SILVER_TRANSACTIONS, batch_id, record=inputs.as_record())
                    written.append(tables.SILVER_TRANSACTIONS)
                if summary.rejected or may_hold_duplicates:
                    appender.append(lake, silver.quarantined(rows), tables.SILVER_QUARANTINE, batch_id)
                    written.append(tables.SILVER_QUARANTINE)
            appender.require_rows(lake, written, batch_id, summary.rows)
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

    Alerts of rules in the shadow go to ``silver_shadow_alerts``.

    The accounts in ``forget``, by their hashes (``xxhash64``), leave the state. Where the step starts over, late rows
    of the stream before leave ``silver_quarantine``: every row is evaluated again.
    """
    return [detector_stream.stream(lake, forget)]


def deliver(lake: Lake, to: Destination, from_now: bool = False) -> list[Stream]:
    """``silver_alerts`` → a log, files, a topic, a webhook or a database, and ``silver_deliveries``."""
    return [delivery.stream(lake, to, from_now)]


_LANES = "lane_agreement"
"""The step that compares the lanes."""
ROWS_OF_TASK = 250_000
"""Transactions that a task of a backtest or a replay holds in memory, about."""


def backtest(lake: Lake, rule: Rule, first: date | None, last: date | None) -> tuple[history.Report, pa.Table]:
    """``silver_transactions`` of a range of days, both included → the figures of a rule, and its alerts.

    The alerts are sorted by time; :data:`fraudlake.detection.evidence.COLUMNS` has their columns.
    """
    in_range = _in_range("date", first, last)
    there, truths = _truth(lake, in_range)
    silver = lake.read(tables.SILVER_TRANSACTIONS).where(in_range)
    tasks = max(lake.settings.buckets, -(-there.transactions // ROWS_OF_TASK))
    alerts = history.in_order(history.alerts(silver, rule, lake.settings, tasks).toArrow())
    return history.report(rule, alerts, there, truths), alerts


def compare(
    lake: Lake, rules: RuleSet, version: RuleVersion, first: date | None, last: date | None
) -> comparison.Comparison:
    """``silver_alerts`` and ``silver_shadow_alerts`` of a range of days, both included → what a rule raised, compared.

    All figures are over the transactions that the version was evaluated on: see :func:`coverage.seen`.
    """
    try:
        return _compare_over(lake, coverage.seen(lake, version), rules, version, first, last)
    except PySparkException as error:
        if not detector_stream.is_gone(error):
            raise
        return _compare_over(lake, coverage.seen(lake, version, by_time=True), rules, version, first, last)


def _compare_over(
    lake: Lake, seen: DataFrame, rules: RuleSet, version: RuleVersion, first: date | None, last: date | None
) -> comparison.Comparison:
    raised = lake.read(tables.SILVER_ALERTS).unionByName(lake.read(tables.SILVER_SHADOW_ALERTS))
    in_days = _in_range("to_date(timestamp)", first, last)
    own = comparison.raised(raised, version).where(in_days)
    in_range = _in_range("date", first, last)
    with persisted(seen.where(in_range).select("transaction_id", "date", "label")) as transactions:
        figures = (F.count("*"), F.min("date"), F.max("date"), F.count_if("label"))
        there = history.Range(*transactions.agg(*figures).collect()[0])
        truths = _verdicts(lake, in_range, transactions)
        others = [
            (other, comparison.raised(raised, other).join(transactions, on="transaction_id", how="left_semi"))
            for other in rules.live
            if other.rule != version.rule
        ]
        spans = comparison.spans(own)
        overlaps = [comparison.Overlap.of(other, spans, comparison.spans(alerts)) for other, alerts in others]
    alerts = comparison.as_evidence(own, lake.read(tables.SILVER_TRANSACTIONS))
    report = history.report(version.rule, history.in_order(alerts.toArrow()), there, truths)
    return comparison.Comparison(report, overlaps)


def _in_range(day: str, first: date | None, last: date | None) -> str:
    limits = [f"{day} >= '{first}'"] if first else []
    limits += [f"{day} <= '{last}'"] if last else []
    return " AND ".join(limits) or "true"


def _truth(lake: Lake, in_range: str) -> tuple[history.Range, dict[str, bool]]:
    """Return what silver holds of a range, and the latest verdicts on its transactions, by their ids."""
    figures = "count(*) AS transactions, min(date) AS first, max(date) AS last, sum(CASE WHEN label THEN 1 ELSE 0 END)"
    (row,) = lake.query(tables.SILVER_TRANSACTIONS, f"{figures} AS fraud", f"WHERE {in_range}").to_pylist()
    there = history.Range(row["transactions"], row["first"], row["last"], row["fraud"] or 0)
    return there, _verdicts(lake, in_range)


def _verdicts(lake: Lake, in_range: str, transactions: DataFrame | None = None) -> dict[str, bool]:
    """Return the latest verdicts of a range, or those on some of its transactions, by these."""
    latest = verdicts.latest(lake.read(tables.SILVER_VERDICTS)).where(in_range).where("verdict IS NOT NULL")
    if transactions is not None:
        latest = latest.join(transactions, on="transaction_id", how="left_semi")
    decided = latest.select("transaction_id", "verdict").toArrow().to_pylist()
    return {row["transaction_id"]: row["verdict"] for row in decided}


def aggregate(lake: Lake) -> list[Stream]:
    """``silver_transactions`` and ``silver_alerts`` → the aggregates by day, and ``gold_alert_windows``.

    Where there is a topic of fast alerts: also ``bronze_fast_alerts`` and ``silver_alerts`` → ``gold_lane_agreement``.
    """
    lanes = [] if lake.settings.fast_alerts_topic is None else [_compared(lake)]
    return [*(_refreshed(lake, aggregate) for aggregate in gold.AGGREGATES), _windowed(lake), *lanes]


def _refreshed(lake: Lake, aggregate: Aggregate) -> Stream:
    transactions = lake.read_stream(tables.SILVER_TRANSACTIONS).select("account_id", "date")
    alerts = lake.read_stream(tables.SILVER_ALERTS).selectExpr("account_id", "to_date(timestamp) AS date")

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        def compute(dates: list[date]) -> DataFrame:
            days = refresh.on_dates(lake.read(tables.SILVER_TRANSACTIONS), dates)
            return aggregate.compute(days, lake.read(tables.SILVER_ALERTS), fraud_rules(lake))

        refresh.refresh(lake, _of_whole_days(lake, batch, F.col("date")), aggregate.table, aggregate.keys, compute)

    return Stream(
        aggregate.table.name.removeprefix("gold_"),
        transactions.unionByName(alerts),
        write,
        reads=(tables.SILVER_TRANSACTIONS, tables.SILVER_ALERTS),
        persist=False,
    )


def _of_whole_days(lake: Lake, batch: DataFrame, date: Column) -> DataFrame:
    """Leave out late rows of days whose other rows may have left silver: these days cannot be computed again."""
    first_day = lake.settings.first_day(tables.SILVER_TRANSACTIONS.name, tables.SILVER_ALERTS.name)
    return batch if first_day is None else batch.where(date >= literals.day(first_day))


def _windowed(lake: Lake) -> Stream:
    """``silver_transactions`` and ``silver_alerts`` → ``gold_alert_windows``."""

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        recompute_windows(lake, _of_whole_days(lake, batch, F.to_date("timestamp")))

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
        touched: ``account_id, timestamp`` of transactions and alerts that came or went; perhaps none.
    """
    current = lake.read(tables.GOLD_ALERT_WINDOWS)
    with persisted(alert_windows.scope(touched, current), eager=False) as scope:
        earliest = scope.selectExpr("unix_micros(min(touched_from))", "unix_micros(min(read_from))").collect()[0]
        if earliest[0] is None:
            return
        touched_from, read_from = map(_instant, earliest)
        watermark = _watermark(lake)
        transactions = lake.read(tables.SILVER_TRANSACTIONS).where(F.col("date") >= F.to_date(read_from))
        alerts = lake.read(tables.SILVER_ALERTS).where(F.col("timestamp") >= read_from)
        recomputed = alert_windows.alert_windows(transactions, alerts, scope, watermark)
        # The condition compares with a literal, so Delta skips files in which all windows are closed and untouched.
        may_change = current.where((F.col("window_end") >= touched_from) | (F.col("state") == "open"))
        changes = alert_windows.changes(recomputed, may_change, scope, watermark)
        lake.apply_changes(changes, tables.GOLD_ALERT_WINDOWS, alert_windows.KEYS)


def _compared(lake: Lake) -> Stream:
    """``bronze_fast_alerts`` and ``silver_alerts`` → ``gold_lane_agreement``."""

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        touched = batch.where("date IS NOT NULL").groupBy("date").agg(F.max("is_fast").alias("is_fast")).collect()
        # What only the exact lane has is pending until the fast one raises another alert.
        lanes = lane_agreement.LANES if any(row["is_fast"] for row in touched) else ("fast",)
        _compare(lake, {row["date"] for row in touched} | _pending_days(lake, lanes))

    fast = lake.read_stream(tables.BRONZE_FAST_ALERTS).selectExpr("date", "true AS is_fast")
    exact = lake.read_stream(tables.SILVER_ALERTS).selectExpr("to_date(timestamp) AS date", "false AS is_fast")
    return Stream(
        _LANES,
        fast.unionByName(exact),
        write,
        reads=(tables.BRONZE_FAST_ALERTS, tables.SILVER_ALERTS),
        persist=False,
        # What only the fast lane has need not become an alert of the exact one, which would start a micro-batch.
        after=lambda: _compare(lake, _pending_days(lake, ("fast",))),
    )


def _pending_days(lake: Lake, lanes: Iterable[str]) -> set[date]:
    """Return the days with alerts that only one of some lanes has, and the other one may have later."""
    condition = " OR ".join(f"only_{lane}_pending > 0" for lane in lanes)
    rows = lake.query(tables.GOLD_LANE_AGREEMENT, "DISTINCT date", f"WHERE {condition}")
    return set(rows["date"].to_pylist())


def recompute_lanes(lake: Lake, days: Iterable[date], messages: DataFrame | None = None) -> None:
    """Compare the lanes on some days again; nothing happens in a lake that does not compare them.

    Args:
        lake: the lake.
        days: the days.
        messages: ``bronze_fast_alerts``, where it is not to be taken as it is.
    """
    if not lake.checkpoint(_LANES).is_new:
        _compare(lake, set(days), messages)


def _compare(lake: Lake, days: set[date], messages: DataFrame | None = None) -> None:
    """Compare the lanes on days of which no row may have left the tables."""
    compared = (tables.BRONZE_FAST_ALERTS, tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE, tables.SILVER_ALERTS)
    first_day = lake.settings.first_day(*(table.name for table in compared))
    chosen = sorted(day for day in days if first_day is None or day >= first_day)
    if not chosen:
        return
    silver, live = lake.read(tables.SILVER_TRANSACTIONS), [version.rule for version in rule_table.read(lake).live]
    rules = {rule.name: rule.within for rule in live if isinstance(rule, SmallThenLargeRule)}
    rules |= {rule.name: rule.last or timedelta(0) for rule in live if isinstance(rule, ThresholdRule)}
    # What an alert depends on may lie before its day, and rows that explain it beside that.
    beside = 1 + max((look_back.days for look_back in rules.values()), default=0)
    numbers = {day.toordinal() + distance for day in chosen for distance in range(-beside, beside + 1)}
    near = [date.fromordinal(number) for number in sorted(numbers) if 1 <= number <= date.max.toordinal()]
    transactions = lane_agreement.with_places(refresh.on_dates(silver, near))
    sent = lake.read(tables.BRONZE_FAST_ALERTS) if messages is None else messages
    raised = lake.read(tables.SILVER_ALERTS).where(F.to_date("timestamp").isin([literals.day(one) for one in chosen]))
    with persisted(lane_agreement.alerts(refresh.on_dates(sent, chosen), raised, transactions)) as alerts:
        agreement = lane_agreement.lane_agreement(
            alerts,
            lane_agreement.progress(sent, transactions),
            transactions,
            lake.read(tables.SILVER_QUARANTINE),
            rules,
            _watermark(lake) if lake.settings.ordering == "event_time" else None,
        )
        _replace_days(lake, agreement, tables.GOLD_LANE_AGREEMENT, lane_agreement.KEYS, chosen)


def recompute_days(lake: Lake, aggregate: Aggregate, transactions: DataFrame, days: list[date]) -> None:
    """Compute the groups of some days again, and remove those that have no transaction any more."""
    computed = aggregate.compute(
        refresh.on_dates(transactions, days), lake.read(tables.SILVER_ALERTS), fraud_rules(lake)
    )
    _replace_days(lake, computed, aggregate.table, aggregate.keys, days)


def _replace_days(lake: Lake, computed: DataFrame, table: Table, keys: tuple[str, ...], days: list[date]) -> None:
    """Put computed rows in the place of a table's rows of some days."""
    with persisted(computed, eager=False):
        gone = refresh.on_dates(lake.read(table), days).join(computed, on=list(keys), how="left_anti")
        changes = computed.withColumn("gone", F.lit(False)).unionByName(gone.withColumn("gone", F.lit(True)))
        lake.apply_changes(changes, table, keys)


def fraud_rules(lake: Lake) -> list[SmallThenLargeRule]:
    """Return the rules of the kind ``small_then_large`` that are live."""
    return [version.rule for version in rule_table.read(lake).live if isinstance(version.rule, SmallThenLargeRule)]


def _watermark(lake: Lake) -> Column:
    """Return the watermark: the newest event time in silver, less the delay; null where silver has no rows.

    Only late rows lie before it.
    """
    newest_day = lake.query(tables.SILVER_TRANSACTIONS, "max(date) AS day")["day"][0].as_py()
    if newest_day is None:
        return F.lit(None).cast("timestamp")
    of_day = f"WHERE date = DATE '{newest_day}'"
    newest = lake.query(tables.SILVER_TRANSACTIONS, "max(timestamp) AS time", of_day)["time"][0].value
    return _instant(newest - lake.settings.max_out_of_orderness // MICROSECOND)


def _instant(micros: int) -> Column:
    """Return a time as a literal. It passes as a number, which no time zone can change."""
    return F.timestamp_micros(F.lit(micros))


def train(lake: Lake, progress: search.Progress = lambda *_: None) -> training.Outcome:
    """``silver_transactions`` and ``silver_verdicts`` → a registered model."""
    return training.train(lake, progress)


def score(lake: Lake, from_topic: bool = False, forget: Mapping[int, str] | None = None) -> list[Stream]:
    """``silver_transactions``, or the Kafka topic itself → ``gold_fraud_predictions`` → quality and drift.

    The accounts in ``forget``, by their hashes (``xxhash64``), leave the state.
    """
    return scoring.streams(lake, from_topic, forget or ())
