"""Rows of accounts: selects a table's rows that belong to an account, or that name one in a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.forget import traces
from fraudlake.lake import contents

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.lake import Lake

LANDED = (tables.BRONZE_TRANSACTIONS, tables.SILVER_QUARANTINE)
"""Tables of landed rows, whose texts may name an account."""
BY_ACCOUNT = tuple(
    table for table in contents.TABLES if "account_id" in table.column_names and table is not tables.BRONZE_FAST_ALERTS
)
"""Tables whose rows are removed, since each belongs to one account."""


def rows_of(lake: Lake, table: tables.Table, accounts: Sequence[str]) -> DataFrame:
    """Return the rows of accounts, with the column ``account``."""
    rows = lake.read(table)  # starts Spark if necessary: columns cannot be built before
    if table in LANDED:
        text = F.concat_ws("\n", "_rescued_data", F.col("_raw").cast("string"))
        return _naming(rows, F.col("accountId"), text, accounts)
    if table == tables.BRONZE_FAST_ALERTS:
        return _naming(rows, F.col("account_id"), F.col("value").cast("string"), accounts)
    if table == tables.SILVER_VERDICTS:
        silver = rows_of(lake, tables.SILVER_TRANSACTIONS, accounts).select("transaction_id", "account").distinct()
        return rows.join(silver, on="transaction_id")
    # An alert by another entity may name further accounts.
    account = account_of_alert(accounts) if table in tables.ALERTS else F.col("account_id")
    return rows.withColumn("account", account).where(F.col("account").isin(list(accounts)))


def account_of_alert(accounts: Sequence[str]) -> Column:
    """Return the account of an alert, or one of the given accounts that has a transaction in its evidence."""
    named = F.transform("evidence_columns", lambda columns: columns["account_id"])
    others = F.get(F.filter(named, lambda account: account.isin(list(accounts))), F.lit(0))
    return F.when(F.col("account_id").isin(list(accounts)), F.col("account_id")).otherwise(others)


def _naming(rows: DataFrame, own: Column, text: Column, accounts: Sequence[str]) -> DataFrame:
    """Return the landed rows of accounts, with the column ``account``.

    Args:
        rows: the rows.
        own: the account of a row.
        text: the text that may name an account, in a row without one.
        accounts: the accounts.
    """
    is_of = {
        account: (own == account) | (own.isNull() & text.rlike(f"(?s){traces.pattern(account)}"))
        for account in accounts
    }
    account = F.coalesce(*(F.when(condition, F.lit(account)) for account, condition in is_of.items()))
    return rows.withColumn("account", account).where("account IS NOT NULL")
