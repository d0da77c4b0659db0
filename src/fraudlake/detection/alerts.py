"""Silver alerts: the stateful detector turns the stream of valid transactions into alerts.

Rules of the kind ``small_then_large`` are evaluated by :mod:`~fraudlake.detection.detector`, those of other kinds by
:mod:`~fraudlake.detection.live_rules`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from fraudlake.detection import buckets, detector, evidence, live_rules, ordering
from fraudlake.silver import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

    from fraudlake.rules.kinds import Rule
    from fraudlake.settings import Settings

GRACE_SECONDS = 600
"""Grace period in the order of arrival: how long, in event time, an expired flag stays open for rows out of order."""

_OUTPUT = pa.schema(
    [
        ("rule", pa.string()),  # null for a row that came too late
        ("account_id", pa.string()),
        ("transaction_id", pa.string()),
        ("time", pa.int64()),
        ("amount", pa.float64()),
        ("small_transaction_id", pa.string()),
        ("small_time", pa.int64()),
        ("small_amount", pa.float64()),
        ("label", pa.bool_()),
        ("source", pa.string()),
        ("position", pa.int64()),
        ("kind", pa.string()),  # from here on null for small_then_large, which has its rows above
        ("first_transaction_id", pa.string()),
        ("evidence", pa.string()),  # JSON
        ("measures", pa.string()),  # JSON
        ("explanation", pa.string()),
    ]
)
_EVIDENCE = "array<struct<variable:string,transaction_id:string,time:bigint,amount:double>>"


def detector_output(silver: DataFrame, settings: Settings, forget: Mapping[int, str] | None = None) -> DataFrame:
    """Run the detector over a stream, in the order that ``settings.ordering`` names.

    Args:
        silver: a stream of ``silver_transactions``.
        settings: the fraud rules, the order, how late a row may be, and the number of buckets.
        forget: accounts by their hash (``xxhash64``), which leave the state of every bucket; usually none.

    Returns:
        A stream of alerts and of rows that came too late: :func:`alerts` and :func:`late` select from it.
    """
    limits, in_event_time = detector.Limits.of(settings.active_rules), settings.ordering == "event_time"
    live = live_rules.LiveRules.of(settings)
    if in_event_time:
        bound = math.ceil(settings.max_out_of_orderness / timedelta(milliseconds=1))
        silver = silver.withWatermark("timestamp", f"{bound} milliseconds")
    further = live.fields(settings)
    rows = pa.schema([*detector.ROWS, *further.values()])
    columns = _columns(limits, in_event_time, is_whole=bool(live.rules))
    columns += [F.col(name).alias(field.name) for name, field in further.items()]
    packed = buckets.pack(silver.select(*columns), rows, settings.buckets, every=bool(forget)).groupBy("bucket")
    schema = from_arrow_schema(_OUTPUT)
    # The state has a table for rules even without any, so that what it holds of the last one leaves it.
    state = {"kept": detector.FLAGS, "rules": live_rules.STATE}
    if in_event_time:
        timed = buckets.TimedBucketProcessor(state, rows, _in_event_time(limits, live, bound), _clean(live, forget))
        return packed.transformWithStateInPandas(timed, schema, "Append", "EventTime")
    processor = buckets.BucketProcessor(state, rows, _as_they_arrive(limits, live), _clean(live, forget))
    return packed.transformWithStateInPandas(processor, schema, "Append", "None")


def detector_output_of_history(silver: DataFrame, settings: Settings, tasks: int) -> DataFrame:
    """Apply the rules of the kind ``small_then_large`` to transactions that are there, in event-time order.

    Args:
        silver: rows of ``silver_transactions``, from the longest time of a rule before those that matter.
        settings: the rules.
        tasks: how many tasks share the accounts.

    Returns:
        What :func:`alerts` selects from; no row is late.
    """
    limits = detector.Limits.of(settings.active_rules)

    def detect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        present = [batch for batch in batches if batch.num_rows]
        if present:
            rows = pa.Table.from_batches(present).combine_chunks()
            rows = rows.set_column(3, "source", rows["source"].dictionary_encode()).cast(detector.ROWS)
            pairs, _ = detector.detect(detector.FLAGS.empty_table(), rows, limits, now=0)
            yield from _alert_rows(pairs, limits.names).to_batches()

    rows = silver.select(*_columns(limits, in_event_time=False, is_whole=False))
    return rows.repartition(tasks, "account").mapInArrow(detect, from_arrow_schema(_OUTPUT))


def _clean(live: live_rules.LiveRules, forget: Mapping[int, str] | None) -> buckets.Clean:
    """Return what leaves accounts out of the state."""
    if not forget:
        return buckets.all_stays

    def clean(name: str, table: pa.Table) -> pa.Table:
        if name == "rules":
            return live.without_accounts(table, set(forget.values()))
        return buckets.without_accounts(forget, table)

    return clean


def alerts(detector_output: DataFrame) -> DataFrame:
    """Return the alerts in the columns of ``silver_alerts``: times in UTC, ``seconds_between`` in event time.

    What describes the small transaction is null in alerts of other kinds than ``small_then_large``.
    """
    time, seconds = F.timestamp_micros("time"), (F.col("time") - F.col("small_time")) / 1_000_000
    seconds_text = F.regexp_replace(F.format_string("%.3f", seconds), r"\.?0+$", "")
    pair = [
        _transaction(F.lit(variable), *map(F.col, (f"{prefix}transaction_id", f"{prefix}time", f"{prefix}amount")))
        for variable, prefix in (("SMALL", "small_"), ("LARGE", ""))
    ]
    listed = F.transform(
        F.from_json("evidence", _EVIDENCE),
        lambda row: _transaction(row["variable"], row["transaction_id"], row["time"], row["amount"]),
    )
    is_pair = F.col("kind").isNull()
    return detector_output.where(F.col("rule").isNotNull()).select(
        alert_id("rule", "first_transaction_id", "transaction_id").alias("alert_id"),
        "rule",
        "account_id",
        "transaction_id",
        time.alias("timestamp"),
        "amount",
        "small_transaction_id",
        F.timestamp_micros("small_time").alias("small_timestamp"),
        "small_amount",
        seconds.alias("seconds_between"),
        F.coalesce(
            "explanation",
            F.format_string(
                "Account %s paid %.2f and, %s s later, %.2f at %s UTC: "
                "a small payment to test the card, then a large one.",
                "account_id",
                "small_amount",
                seconds_text,
                "amount",
                F.date_format(time, "yyyy-MM-dd HH:mm:ss"),
            ),
        ).alias("explanation"),
        clock.now().alias("detected_at"),
        F.coalesce("kind", F.lit("small_then_large")).alias("kind"),
        F.when(is_pair, F.array(*pair)).otherwise(listed).alias("evidence"),
        F.when(is_pair, F.create_map(F.lit("seconds_between"), seconds_text))
        .otherwise(F.from_json("measures", "map<string,string>"))
        .alias("measures"),
    )


def _transaction(variable: Column, transaction_id: Column, time: Column, amount: Column) -> Column:
    """Return a transaction of an alert's evidence."""
    return F.struct(
        variable.alias("variable"),
        transaction_id.alias("transaction_id"),
        F.timestamp_micros(time).alias("timestamp"),
        amount.alias("amount"),
    )


def alert_id(rule: str, first: str, second: str) -> Column:
    """Make an id from a rule's name and two transactions' ids, all given as columns' names.

    The three are joined by ``|``. Where a producer's id holds that, the first id's length says where it ends.
    """
    length = F.when(F.concat(first, second).contains("|"), F.length(first))
    return F.sha2(F.concat_ws("|", rule, length.cast("string"), first, second), 256).substr(1, 32)


def late(detector_output: DataFrame) -> DataFrame:
    """Return the rows too late for event-time order: ``dt, accountId, amount, alert, source, position, reasons``."""
    return detector_output.where(F.col("rule").isNull()).select(
        F.timestamp_micros("time").alias("dt"),
        F.col("account_id").alias("accountId"),
        "amount",
        F.col("label").alias("alert"),
        "source",
        "position",
        F.array(F.lit("late")).alias("reasons"),
    )


def _columns(limits: detector.Limits, in_event_time: bool, is_whole: bool) -> list[Column]:
    """Return the detector's columns. A value that no output can need is sent as null, which saves space."""
    amount = F.col("amount")
    candidate = (amount < max(limits.small_below)) | (amount > min(limits.large_above)) | F.lit(is_whole)
    may_be_late = F.lit(in_event_time or is_whole)
    return [
        F.xxhash64("account_id").alias("account"),
        F.unix_micros("timestamp").alias("time"),
        amount,
        F.col("source"),
        F.col("position"),
        F.when(candidate | may_be_late, F.col("account_id")).alias("account_id"),
        F.when(candidate, F.col("transaction_id")).alias("transaction_id"),
        F.when(may_be_late, F.col("label")).alias("label"),
    ]


def _as_they_arrive(limits: detector.Limits, live: live_rules.LiveRules) -> buckets.Step:
    grace = detector.microseconds(GRACE_SECONDS)

    def step(state: buckets.State, rows: pa.Table) -> tuple[pd.DataFrame, buckets.State]:
        alerts, state = _evaluate(state, rows, limits, live, ordering.clock(rows) - grace)
        return _frame(alerts), state

    return step


def _in_event_time(limits: detector.Limits, live: live_rules.LiveRules, bound_milliseconds: int) -> buckets.TimedStep:
    bound = bound_milliseconds * 1000

    def step(
        state: buckets.State, waiting: pa.Table, rows: pa.Table, watermark: int
    ) -> tuple[pd.DataFrame, buckets.State, pa.Table]:
        split = detector.split_by_watermark(waiting, rows, watermark, bound)
        alerts, state = _evaluate(state, split.ready, limits, live, split.ready_before)
        return _frame(pa.concat_tables([alerts, _late_rows(split.late)])), state, split.waiting

    return step


def _evaluate(
    state: buckets.State, rows: pa.Table, limits: detector.Limits, live: live_rules.LiveRules, now: int
) -> tuple[pa.Table, buckets.State]:
    """Apply all rules to a bucket's rows; return the alerts, :data:`_OUTPUT`, and the new state."""
    pairs, open_flags = detector.detect(state["kept"], rows, limits, now)
    raised, needed = live.evaluate(state["rules"], rows, now)
    alerts = [_alert_rows(pairs, limits.names), *(_rule_alert_rows(*alerts_of_rule) for alerts_of_rule in raised)]
    return pa.concat_tables(alerts), {"kept": open_flags, "rules": needed}


def _alert_rows(pairs: detector.AlertPairs, names: tuple[str, ...]) -> pa.Table:
    large, small = (pairs.candidates.take(pa.array(numbers)) for numbers in (pairs.large, pairs.small))
    return _output_table(
        len(pairs.rule),
        rule=pa.array(np.array(names)[pairs.rule]),
        **{name: large[name] for name in ("account_id", "transaction_id", "time", "amount")},
        first_transaction_id=small["transaction_id"],
        small_transaction_id=small["transaction_id"],
        small_time=small["time"],
        small_amount=small["amount"],
    )


def _rule_alert_rows(rule: Rule, alerts: pa.Table) -> pa.Table:
    names = ("variable", "transaction_id", "time", "amount")
    lists = ("roles", "transaction_ids", "times", "amounts")
    rows = [
        {
            **{name: alert[name] for name in ("account_id", "transaction_id", "amount", "measures")},
            "rule": rule.name,
            "kind": rule.kind,
            "time": alert["times"][-1],
            "first_transaction_id": alert["transaction_ids"][0],
            "evidence": json.dumps(
                [dict(zip(names, row, strict=True)) for row in zip(*(alert[name] for name in lists), strict=True)]
            ),
            "explanation": evidence.story(alert),
        }
        for alert in alerts.to_pylist()
    ]
    return pa.Table.from_pylist(rows, _OUTPUT)


def _late_rows(rows: pa.Table) -> pa.Table:
    columns = {name: rows[name] for name in ("account_id", "time", "amount", "label", "position")}
    return _output_table(len(rows), **columns, source=rows["source"].cast(pa.string()))


def _output_table(rows: int, **columns: pa.Array) -> pa.Table:
    """Make a table of :data:`_OUTPUT` from some of its columns; the others are null."""
    return pa.table([columns.get(field.name, pa.nulls(rows, field.type)) for field in _OUTPUT], schema=_OUTPUT)


def _frame(output: pa.Table) -> pd.DataFrame:
    # Without nullable types, pandas turns a column of integers and nulls into floats.
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame: pd.DataFrame = output.to_pandas(types_mapper=nullable.get)
    return frame
