"""Candidates: an account's last rows become what the detector says of each alert that rules raise on them.

A row is a struct of :data:`ROW`. A candidate is a struct of the columns of the detector's output, of which
:func:`fraudlake.detection.alerts.alerts` makes alerts, and of :data:`PLACE`; it is null where the rule does not hold.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.rules.threshold import EVIDENCE

if TYPE_CHECKING:
    from pyspark.sql import Column

    from fraudlake.rules.small_then_large import FraudRule
    from fraudlake.rules.threshold import ThresholdRule

ROW = ("time", "partition", "offset", "appended", "transaction_id", "amount", "window_time")
"""The fields of a row: its event time and ``window_time`` in microseconds since 1970 UTC, and where its message is.

As structs, rows are sorted by event time, then by place.
"""
PLACE = ("partition", "offset", "appended")
"""Where the message of a candidate's transaction is, and since when."""
_OUTPUT = {
    "rule": "string",
    "transaction_id": "string",
    "time": "bigint",
    "amount": "double",
    "small_transaction_id": "string",
    "small_time": "bigint",
    "small_amount": "double",
    "kind": "string",
    "first_transaction_id": "string",
    "evidence": "string",
    "measures": "string",
    "explanation": "string",
}
_MICROSECOND = timedelta(microseconds=1)


def of_pair(rule: FraudRule, small: Column, large: Column) -> Column:
    """Return the candidate of two rows, of which the large one follows the small one; either may be null."""
    is_near = F.abs(large["time"] - small["time"]) <= rule.within // _MICROSECOND
    holds = (small["amount"] < rule.small_below) & (large["amount"] > rule.large_above) & is_near
    of_small = {f"small_{name}": small[name] for name in ("transaction_id", "time", "amount")}
    candidate = _candidate(rule.name, large, first_transaction_id=small["transaction_id"], **of_small)
    return F.when(holds, candidate)


def of_threshold(rule: ThresholdRule, last: timedelta, account_id: Column, current: Column, rows: Column) -> Column:
    """Return the candidates of a row, and of those of the same time: they are in each other's windows.

    Args:
        rule: the threshold.
        last: the duration of its window.
        account_id: whose rows they are.
        current: the row; it may be null.
        rows: an array of the account's rows, which has all of the window.
    """
    begin = current["time"] - last // _MICROSECOND
    window = F.array_sort(F.filter(rows, lambda row: row["time"].between(begin, current["time"])))
    count = F.size(window)
    total = _total(rule.aggregate, F.transform(window, lambda row: row["amount"]), count)
    holds = total > rule.above if rule.above is not None else total < (rule.below or 0.0)
    measures = {rule.aggregate: _text(total), "transactions": count.cast("string")}
    latest = F.slice(window, F.greatest(count - EVIDENCE, F.lit(0)) + 1, F.lit(EVIDENCE))

    def candidate(row: Column) -> Column:
        evidence = F.concat(F.filter(latest, lambda other: other != row), F.array(row))
        listed = F.transform(
            evidence,
            lambda one: F.struct(
                F.lit("counted").alias("variable"),
                *(one[name].alias(name) for name in ("transaction_id", "time", "amount")),
            ),
        )
        names_and_values = [part for name, value in measures.items() for part in (F.lit(name), value)]
        return _candidate(
            rule.name,
            row,
            kind=F.lit(rule.kind),
            first_transaction_id=F.get(evidence, F.lit(0))["transaction_id"],
            evidence=F.to_json(listed),
            measures=F.to_json(F.create_map(*names_and_values)),
            explanation=_story(account_id, evidence, measures),
        )

    return F.transform(F.filter(window, lambda row: (row["time"] == current["time"]) & holds), candidate)


def _candidate(rule: str, row: Column, **output: Column) -> Column:
    known = {"rule": F.lit(rule), **{name: row[name] for name in ("transaction_id", "time", "amount")}, **output}
    columns = [known.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _OUTPUT.items()]
    return F.struct(*columns, *(row[name].alias(name) for name in PLACE))


def _total(aggregate: str, amounts: Column, count: Column) -> Column:
    if aggregate == "count":
        return count.cast("double")
    if aggregate in ("minimum", "maximum"):
        return F.array_min(amounts) if aggregate == "minimum" else F.array_max(amounts)
    return _sum(amounts) if aggregate == "sum" else _sum(amounts) / count


def _sum(amounts: Column) -> Column:
    """Add amounts with Neumaier's correction: right to a double, as the exact lane's sum of long doubles is."""

    def add(so_far: Column, amount: Column) -> Column:
        total = so_far["total"] + amount
        larger, smaller = F.greatest(so_far["total"], amount), F.least(so_far["total"], amount)
        lost = (larger - total) + smaller
        return F.struct(total.alias("total"), (so_far["lost"] + lost).alias("lost"))

    nothing = F.struct(F.lit(0.0).alias("total"), F.lit(0.0).alias("lost"))
    return F.aggregate(amounts, nothing, add, lambda so_far: so_far["total"] + so_far["lost"])


def _text(number: Column) -> Column:
    """Write a double as Python does, without an exponent and without `.0`."""
    return F.regexp_replace(number.try_cast("decimal(38,15)").cast("string"), r"\.?0+$", "")


def _story(account_id: Column, evidence: Column, measures: dict[str, Column]) -> Column:
    """Tell an alert as :func:`fraudlake.detection.evidence.story` does."""
    parts = F.transform(
        evidence,
        lambda row: F.format_string(
            "counted %.2f at %s",
            row["amount"],
            F.date_format(F.timestamp_micros(row["time"]), "yyyy-MM-dd HH:mm:ss"),
        ),
    )
    count = F.size(parts)
    more = F.array(F.format_string("%d more", count - 6))
    few = F.concat(F.slice(parts, 1, 3), more, F.slice(parts, F.greatest(count - 2, F.lit(1)), F.lit(3)))
    rows = F.concat_ws(", ", F.when(count > 6, few).otherwise(parts))
    values = F.concat_ws(", ", *(F.concat(F.lit(f"{name} "), value) for name, value in measures.items()))
    return F.format_string("Account %s: %s (UTC); %s.", account_id, rows, values)
