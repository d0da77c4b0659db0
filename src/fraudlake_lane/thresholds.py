"""Thresholds of the fast lane: evaluates them on an account's last rows, with the same alerts as the detector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.rules.kinds.threshold import EVIDENCE
from fraudlake.text.durations import microseconds
from fraudlake.windows import plus

if TYPE_CHECKING:
    from pyspark.sql import Column

    from fraudlake.rules.kinds.threshold import ThresholdRule


def raised(rule: ThresholdRule, account_id: Column, rows: Column, current: Column, due: Column, gap: Column) -> Column:
    """Return the alerts of a rule after a new row: on the row itself, and on other rows whose windows contain it.

    The others have the same time, or arrived earlier although their time is later. A window with possibly missing rows
    raises nothing.

    Args:
        rule: the rule, over a duration or a number of transactions.
        account_id: the account.
        rows: its rows, :data:`fraudlake_lane.neighbours.ROW`, in the order of event time.
        current: the new row among them; null if it is not among them.
        due: the rows to evaluate.
        gap: the event time, in microseconds, up to which rows may be missing; null if none is missing.

    Returns:
        An array of structs: ``row``, the transaction; and as in the detector's output ``kind``,
        ``first_transaction_id``, ``evidence``, ``measures`` and ``explanation``.
    """
    duration = None if rule.duration is None else microseconds(rule.duration)

    def window(row: Column) -> Column:
        if duration is not None:
            return F.filter(rows, lambda other: other["time"].between(row["time"] - duration, row["time"]))
        before = F.filter(rows, lambda other: other <= row)
        return F.slice(before, F.greatest(F.size(before) - F.lit(rule.transactions), F.lit(0)) + 1, F.size(before))

    def is_whole(alert: Column) -> Column:
        reaches = (
            alert["row"]["time"] - duration > gap
            if duration is not None
            else F.size(alert["window"]) == rule.transactions
        )
        return gap.isNull() | reaches

    def evidence(alert: Column) -> Column:
        begin = F.greatest(F.size(alert["window"]) - EVIDENCE, F.lit(0)) + 1
        latest = F.slice(alert["window"], begin, F.lit(EVIDENCE))
        return F.concat(F.filter(latest, lambda other: other != alert["row"]), F.array(alert["row"]))

    # Each stage's array is the only input of the next stage, so that nothing is computed twice.
    windows = F.transform(due, lambda row: F.struct(row.alias("row"), window(row).alias("window")))
    touched = F.filter(windows, lambda alert: F.array_contains(alert["window"], current) & is_whole(alert))
    totals = F.transform(touched, lambda alert: alert.withField("total", _total(rule, alert["window"])))
    beyond = F.filter(totals, lambda alert: rule.is_raised(alert["total"]))
    return F.transform(
        F.transform(beyond, lambda alert: alert.withField("evidence", evidence(alert))),
        lambda alert: F.struct(
            alert["row"].alias("row"),
            F.lit(rule.kind).alias("kind"),
            F.get(alert["evidence"], F.lit(0))["transaction_id"].alias("first_transaction_id"),
            F.to_json(F.transform(alert["evidence"], _counted)).alias("evidence"),
            _measures(rule, alert).alias("measures"),
            F.concat(F.lit("Account "), account_id, F.lit(": "), _story(rule, alert)).alias("explanation"),
        ),
    )


def _total(rule: ThresholdRule, window: Column) -> Column:
    amounts = F.transform(window, lambda row: row["amount"])
    match rule.aggregate:
        case "count":
            return F.size(window).cast("double")
        case "distinct":
            return F.size(F.array_distinct(amounts)).cast("double")
        case "min":
            return F.array_min(amounts)
        case "max":
            return F.array_max(amounts)
        case "sum":
            return _sum(amounts)
        case "mean":
            return _sum(amounts) / F.size(window)


def _sum(amounts: Column) -> Column:
    """Add amounts with the rounding error of each addition, as exact as the exact lane."""

    def add(so_far: Column, amount: Column) -> Column:
        total, lost = plus(so_far["total"], amount)
        return F.struct(total.alias("total"), (so_far["lost"] + lost).alias("lost"))

    nothing = F.struct(F.lit(0.0).alias("total"), F.lit(0.0).alias("lost"))
    return F.aggregate(amounts, nothing, add, lambda so_far: so_far["total"] + so_far["lost"])


def _counted(row: Column) -> Column:
    values = (row[name].alias(name) for name in ("transaction_id", "time", "amount"))
    return F.struct(F.lit("counted").alias("variable"), *values)


def _values(rule: ThresholdRule, alert: Column) -> tuple[tuple[str, Column], ...]:
    # As Python writes a number, without an exponent; numbers of more than 18 digits have one.
    digits = F.regexp_replace(alert["total"].try_cast("decimal(38,20)").cast("string"), r"\.?0+$", "")
    total = F.coalesce(digits, alert["total"].cast("string"))
    return (rule.aggregate, total), ("transactions", F.size(alert["window"]).cast("string"))


def _measures(rule: ThresholdRule, alert: Column) -> Column:
    members = (F.concat(F.lit(f'"{name}": '), value) for name, value in _values(rule, alert))
    return F.concat(F.lit("{"), F.concat_ws(", ", *members), F.lit("}"))


def _story(rule: ThresholdRule, alert: Column) -> Column:
    """Describe an alert like :func:`fraudlake.detection.evidence.story`, without the account."""

    def part(row: Column) -> Column:
        # Half a cent is rounded as in Python; `format_string` rounds differently.
        amount = F.call_function("format_number", row["amount"], F.lit("0.00"))
        at = F.date_format(F.timestamp_micros(row["time"]), "yyyy-MM-dd HH:mm:ss")
        return F.concat(F.lit("counted "), amount, F.lit(" at "), at)

    evidence = alert["evidence"]
    size = F.size(evidence)
    few = F.concat(
        F.transform(F.slice(evidence, 1, 3), part),
        F.array(F.concat((size - 6).cast("string"), F.lit(" more"))),
        F.transform(F.slice(evidence, F.greatest(size - 2, F.lit(1)), F.lit(3)), part),
    )
    rows = F.concat_ws(", ", F.when(size > 6, few).otherwise(F.transform(evidence, part)))
    values = F.concat_ws(", ", *(F.concat(F.lit(f"{name} "), value) for name, value in _values(rule, alert)))
    return F.concat(rows, F.lit(" (UTC); "), values, F.lit("."))
