"""Thresholds of the fast lane: evaluates them on an account's last rows, with the same alerts as the detector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.rules.kinds.threshold import EVIDENCE, OF_EARLIER, ROLE
from fraudlake.statistics.windows import plus
from fraudlake.times.durations import microseconds
from fraudlake_lane import evidence

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
        An array of structs: ``row``, the transaction; and as in the detector's output ``first_transaction_id``,
        ``evidence``, ``measures`` and ``explanation``.
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

    def counted(alert: Column) -> Column:
        begin = F.greatest(F.size(alert["window"]) - EVIDENCE, F.lit(0)) + 1
        latest = F.slice(alert["window"], begin, F.lit(EVIDENCE))
        return F.concat(F.filter(latest, lambda other: other != alert["row"]), F.array(alert["row"]))

    # Each stage's array is the only input of the next stage, so that nothing is computed twice.
    windows = F.transform(due, lambda row: F.struct(row.alias("row"), window(row).alias("window")))
    touched = F.filter(windows, lambda alert: F.array_contains(alert["window"], current) & is_whole(alert))
    totals = F.transform(touched, lambda alert: alert.withField("total", _total(rule, alert["window"], alert["row"])))
    beyond = F.filter(totals, lambda alert: rule.is_raised(alert["total"]))
    return F.transform(
        F.transform(beyond, lambda alert: alert.withField("evidence", counted(alert))),
        lambda alert: F.struct(
            alert["row"].alias("row"),
            F.get(alert["evidence"], F.lit(0))["transaction_id"].alias("first_transaction_id"),
            F.to_json(F.transform(alert["evidence"], lambda row: evidence.transaction(ROLE, row))).alias("evidence"),
            evidence.as_json(_measures(rule, alert)).alias("measures"),
            evidence.sentence(account_id, _shown(alert["evidence"]), _measures(rule, alert)).alias("explanation"),
        ),
    )


def _total(rule: ThresholdRule, window: Column, row: Column) -> Column:
    """Return the aggregate of a window, or of a row compared with those of its window before it; null if undefined."""
    if rule.aggregate in OF_EARLIER:
        return _compared(rule, F.filter(window, lambda other: other < row), row)
    amounts = F.transform(window, lambda other: other["amount"])
    match rule.aggregate:
        case "count":
            return F.size(window).cast("double")
        case "distinct":
            return F.size(F.array_distinct(amounts)).cast("double")
        case "min":
            return F.array_min(amounts)
        case "max":
            return F.array_max(amounts)
        case "quantile":
            rank = F.ceil(F.round(F.size(window) * float(rule.quantile or 0), 6))
            return F.get(F.array_sort(amounts), F.greatest(rank, F.lit(1)).cast("int") - 1)
        case "sum":
            return _sum(amounts)
    return _sum(amounts) / F.size(window)


def _compared(rule: ThresholdRule, earlier: Column, row: Column) -> Column:
    amounts = F.transform(earlier, lambda other: other["amount"])
    first = F.get(earlier, F.lit(0))
    last = F.get(earlier, F.size(earlier) - 1)
    match rule.aggregate:
        case "is_first":
            return (F.size(earlier) == 0).cast("double")
        case "last":
            return last["amount"]
        case "changed":
            return (last["amount"] != row["amount"]).cast("double")
        case "seconds_since_first":
            return (row["time"] - first["time"]) / 1_000_000
        case "seconds_since_last":
            return (row["time"] - last["time"]) / 1_000_000
    mean = F.try_divide(_sum(amounts), F.size(earlier))
    return F.try_divide(row["amount"], mean)


def _sum(amounts: Column) -> Column:
    """Add amounts with the rounding error of each addition, as exact as the exact lane."""

    def add(so_far: Column, amount: Column) -> Column:
        total, lost = plus(so_far["total"], amount)
        return F.struct(total.alias("total"), (so_far["lost"] + lost).alias("lost"))

    nothing = F.struct(F.lit(0.0).alias("total"), F.lit(0.0).alias("lost"))
    return F.aggregate(amounts, nothing, add, lambda so_far: so_far["total"] + so_far["lost"])


def _measures(rule: ThresholdRule, alert: Column) -> dict[str, Column]:
    # As Python writes a number, without an exponent; numbers of more than 18 digits have one.
    digits = F.regexp_replace(alert["total"].try_cast("decimal(38,20)").cast("string"), r"\.?0+$", "")
    total = F.coalesce(digits, alert["total"].cast("string"))
    return {rule.aggregate: total, "transactions": F.size(alert["window"]).cast("string")}


def _shown(transactions: Column) -> Column:
    """Return the words of the evidence; of more than six transactions, the first and the last three."""

    def words(row: Column) -> Column:
        return evidence.words(ROLE, row)

    size = F.size(transactions)
    few = F.concat(
        F.transform(F.slice(transactions, 1, 3), words),
        F.array(F.concat((size - 6).cast("string"), F.lit(" more"))),
        F.transform(F.slice(transactions, F.greatest(size - 2, F.lit(1)), F.lit(3)), words),
    )
    return F.concat_ws(", ", F.when(size > 6, few).otherwise(F.transform(transactions, words)))
