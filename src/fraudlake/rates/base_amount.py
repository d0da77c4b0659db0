"""Base amount: converts the amounts of transactions to the base currency, by the rates of their days."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.times import literals
from fraudlake.values import BASE_AMOUNT

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import Column, DataFrame

    from fraudlake.lake import Lake
    from fraudlake.settings.currency import Currency


def with_base_amount(transactions: DataFrame, lake: Lake, days: tuple[date, date] | None = None) -> DataFrame:
    """Add ``base_amount`` by the present rates; without the setting ``currency``, return the rows as they are.

    Args:
        transactions: rows in the columns of ``silver_transactions``; a ``base_amount`` that they have is replaced.
        lake: the lake, in the session of the rows.
        days: the first and the last day of the rows, if they are known: other rates are not read.
    """
    currency = lake.settings.currency
    if currency is None:
        return transactions
    rates = lake.read(tables.SILVER_RATES)
    if days is not None:
        first = days[0] - min(timedelta(currency.carry_days), days[0] - days[0].min)
        rates = rates.where(F.col("date").between(literals.day(first), literals.day(days[1])))
    return converted(transactions, currency, rates)


def converted(transactions: DataFrame, currency: Currency, rates: DataFrame) -> DataFrame:
    """Add ``base_amount``: the amount times its day's rate; null without a rate.

    Args:
        transactions: rows with ``amount, date`` and the currency's column.
        currency: the setting.
        rates: ``date, currency, rate, at``.
    """
    code = _code(F.col(currency.column))
    daily = _daily(rates, currency.carry_days)
    rows = transactions.drop(BASE_AMOUNT).withColumn("_code", code)
    is_its_rate = (F.col("_code") == F.col("_of")) & (F.col("date") == F.col("_day"))
    joined = rows.join(daily, on=is_its_rate, how="left")
    in_base = F.when(F.col("_code") == currency.base, F.col("amount")).otherwise(F.col("amount") * F.col("_rate"))
    return joined.withColumn(BASE_AMOUNT, in_base).drop("_code", "_of", "_day", "_rate")


def _code(text: Column) -> Column:
    return F.upper(F.regexp_replace(text, r"^\s+|\s+$", ""))


def _daily(rates: DataFrame, carry_days: int) -> DataFrame:
    """Return the rate of each day and currency, ``_of, _day, _rate``: that of the latest day not too far back."""
    days = F.explode(F.sequence("date", F.date_add("date", carry_days)))
    latest = F.max_by("rate", F.struct("date", "at"))
    return (
        rates.select("*", days.alias("_day")).groupBy(F.col("currency").alias("_of"), "_day").agg(latest.alias("_rate"))
    )
