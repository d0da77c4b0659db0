"""Evidence of the fast lane: describes an alert's transactions in SQL as :mod:`fraudlake.detection.evidence` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def transaction(role: str, row: Column) -> Column:
    """Return a transaction of the evidence."""
    values = (row[name].alias(name) for name in ("transaction_id", "time", "amount"))
    return F.struct(F.lit(role).alias("variable"), *values)


def words(role: str, row: Column) -> Column:
    """Return a transaction as a part of a sentence."""
    # Half a cent is rounded as in Python; `format_string` rounds differently.
    amount = F.call_function("format_number", row["amount"], F.lit("0.00"))
    at = F.date_format(F.timestamp_micros(row["time"]), "yyyy-MM-dd HH:mm:ss")
    return F.concat(F.lit(f"{role} "), amount, F.lit(" at "), at)


def sentence(account_id: Column, transactions: Column, measures: Mapping[str, Column]) -> Column:
    """Return the explanation of an alert; ``transactions`` are its words, ``measures`` are numbers as texts."""
    values = F.concat_ws(", ", *(F.concat(F.lit(f"{name} "), value) for name, value in measures.items()))
    return F.concat(F.lit("Account "), account_id, F.lit(": "), transactions, F.lit(" (UTC); "), values, F.lit("."))


def as_json(measures: Mapping[str, Column]) -> Column:
    """Return measures as a JSON object; they are numbers as texts."""
    members = (F.concat(F.lit(f'"{name}": '), value) for name, value in measures.items())
    return F.concat(F.lit("{"), F.concat_ws(", ", *members), F.lit("}"))
