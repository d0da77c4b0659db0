"""Table rows: removes accounts from every table, and recomputes figures of whole days without them.

The other tables' rows are located through silver and bronze, so these two come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.forget import traces
from fraudlake.forget.account_rows import BY_ACCOUNT, account_of_alert, rows_of
from fraudlake.gold import gold_tables
from fraudlake.lake import conflict, merge
from fraudlake.lake.rows import has_rows
from fraudlake.model import published
from fraudlake.silver import clock, quality_rules
from fraudlake.streams import cases, groups, lanes, refresh
from fraudlake.streams.prediction_figures import measure
from fraudlake.text import sql_text

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.tables import Table

_MESSAGE_POSITION = ("_topic", "_partition", "_offset")
_TEXTS = {
    tables.BRONZE_FILES: "error",
    tables.BRONZE_REJECTED_FILES: "error",
    tables.SILVER_VERDICTS: "reason",
    tables.SILVER_LIST_ENTRIES: "reason",
    tables.SILVER_RULES: "reason",
    tables.SILVER_DEFINITION: "reason",
}
"""The columns of texts, in rows that are not of an account, that may name one."""
_NAMES = "exists(t.evidence_columns, columns -> columns['account_id'] = s.account_id)"
"""The condition that an alert by another entity has a transaction of the account."""
_ERASED = "erased: it named an account that was forgotten"
_CHAINED = ("number", "at", "hash", "date")
_ERASED_EVENT = ", ".join(
    ["kind = 'erased'", "is_erased = true"]
    + [
        f"{name} = NULL"
        for name in tables.SILVER_REVIEW_EVENTS.column_names
        if name not in (*_CHAINED, "kind", "is_erased")
    ]
)
"""The change that erases an event on an account but for its hash, without which the chain of events would break."""
_OF_REQUEST = ("reason", "subject", "before", "after", "arguments")
"""The texts of an event of approvals that may name an account."""


def remove(lake: Lake, accounts: Sequence[str], names: set[str]) -> None:
    """Remove the accounts from the named tables, which have rows of them, and from texts of others."""
    # A MERGE, unlike a DELETE, does not write its values into Delta's log.
    wanted = lake.session.createDataFrame([(account,) for account in accounts], "account_id STRING")
    theirs = "t.account_id = s.account_id"
    others = ~F.col("account_id").isin(list(accounts))
    days = _dates(rows_of(lake, tables.SILVER_TRANSACTIONS, accounts))
    if tables.SILVER_VERDICTS.name in names:
        verdicts = rows_of(lake, tables.SILVER_VERDICTS, accounts).select("transaction_id").distinct()
        merge.merge(lake, verdicts, tables.SILVER_VERDICTS, merge.same(["transaction_id"]), "WHEN MATCHED THEN DELETE")
    alerts = rows_of(lake, tables.SILVER_ALERTS, accounts)
    alerted = _dates(alerts.where("account_id <> account").select(F.to_date("timestamp").alias("date")))
    _leave_merges(lake, accounts)
    for table in BY_ACCOUNT:
        if table.name in names and table not in (*tables.ALERTS, tables.SILVER_TRANSACTIONS):
            change = f"UPDATE SET {_ERASED_EVENT}" if table == tables.SILVER_REVIEW_EVENTS else "DELETE"
            merge.merge(lake, wanted, table, theirs, f"WHEN MATCHED THEN {change}")
    if days:
        # Before alerts are deleted: a call after a crash finds the affected days by them.
        left = lake.read(tables.SILVER_ALERTS).where(account_of_alert(accounts).isNull())
        _compute_again(lake, days, alerted, lake.read(tables.SILVER_TRANSACTIONS).where(others), left)
    for table in tables.ALERTS:
        if table.name in names:
            merge.merge(lake, wanted, table, f"{theirs} OR {_NAMES}", "WHEN MATCHED THEN DELETE")
    _leave_reviews(lake, accounts)
    _leave_approvals(lake, accounts)
    cases.update_all(lake)
    if days:
        lanes.recompute(lake, days, lake.read(tables.BRONZE_FAST_ALERTS).where(others))
    for table, column in _TEXTS.items():
        texts = lake.read(table).where(F.col(column).rlike(f"(?s){traces.Search(accounts).pattern}"))
        if has_rows(texts):
            erased = f"WHEN MATCHED THEN UPDATE SET {column} = '{_ERASED}'"
            merge.merge(lake, texts.select(column).distinct(), table, f"t.{column} = s.{column}", erased)
    if tables.BRONZE_FAST_ALERTS.name in names:
        positions = rows_of(lake, tables.BRONZE_FAST_ALERTS, accounts).select(*_MESSAGE_POSITION).distinct()
        _empty(lake, tables.BRONZE_FAST_ALERTS, positions, _MESSAGE_POSITION)
    if names & {tables.BRONZE_TRANSACTIONS.name, tables.SILVER_TRANSACTIONS.name}:
        _empty_landed_rows(lake, wanted, theirs, accounts)


def _leave_merges(lake: Lake, accounts: Sequence[str]) -> None:
    """Remove references to the accounts' cases from events on other accounts' cases that were merged into them."""
    events = lake.read(tables.SILVER_REVIEW_EVENTS)
    merged = events.where("merged_into IS NOT NULL").select("event_id", "merged_into")
    if not has_rows(merged):
        return
    of_events = events.where(F.col("account_id").isin(list(accounts))).select(F.col("item_id").alias("merged_into"))
    of_alerts = rows_of(lake, tables.SILVER_ALERTS, accounts).select(F.col("alert_id").alias("merged_into"))
    into = merged.join(of_events.union(of_alerts).distinct(), on="merged_into").select("event_id")
    change = "WHEN MATCHED THEN UPDATE SET merged_into = NULL, is_erased = true"
    merge.merge(lake, into, tables.SILVER_REVIEW_EVENTS, "t.event_id = s.event_id", change)


def _leave_reviews(lake: Lake, accounts: Sequence[str]) -> None:
    """Remove the accounts from events on cases of other accounts, and from analysts' texts."""
    events = lake.read(tables.SILVER_REVIEW_EVENTS)
    if not has_rows(events):
        return
    silver = rows_of(lake, tables.SILVER_TRANSACTIONS, accounts)
    theirs = silver.select("transaction_id").distinct().withColumn("is_theirs", F.lit(True))
    decided = events.select("event_id", F.posexplode("transaction_ids").alias("place", "transaction_id"))
    others = F.array_sort(F.collect_list(F.when(F.col("is_theirs").isNull(), F.struct("place", "transaction_id"))))
    left = (
        decided.join(theirs, on="transaction_id", how="left")
        .groupBy("event_id")
        .agg(F.max("is_theirs").alias("has_theirs"), others["transaction_id"].alias("transaction_ids"))
        .where("has_theirs")
    )
    of_left = "filter(t.fraud_ids, id -> array_contains(s.transaction_ids, id))"
    changed = (
        f"WHEN MATCHED THEN UPDATE SET transaction_ids = s.transaction_ids, fraud_ids = {of_left}, is_erased = true"
    )
    merge.merge(lake, left, tables.SILVER_REVIEW_EVENTS, "t.event_id = s.event_id", changed)
    texts = F.concat_ws("\n", "reason", "note", "file_name").rlike(f"(?s){traces.Search(accounts).pattern}")
    naming = events.where(texts).select("event_id")
    erased = (
        f"WHEN MATCHED THEN UPDATE SET reason = NULL, note = '{_ERASED}', is_erased = true, "
        "file_name = if(t.file_name IS NULL, NULL, 'erased')"
    )
    merge.merge(lake, naming, tables.SILVER_REVIEW_EVENTS, "t.event_id = s.event_id", erased)


def _leave_approvals(lake: Lake, accounts: Sequence[str]) -> None:
    """Erase requests that name the accounts, and reasons that do, but for their hashes."""
    events = lake.read(tables.SILVER_APPROVAL_EVENTS)
    texts = F.concat_ws("\n", *_OF_REQUEST).rlike(f"(?s){traces.Search(accounts).pattern}")
    names = F.arrays_overlap("account_ids", F.array(*map(F.lit, accounts)))
    naming = events.where(texts | F.coalesce(names, F.lit(False))).select("number")
    if has_rows(naming):
        nulls = ", ".join(f"{name} = NULL" for name in (*_OF_REQUEST, "account_ids"))
        erased = f"WHEN MATCHED THEN UPDATE SET {nulls}, is_erased = true"
        merge.merge(lake, naming, tables.SILVER_APPROVAL_EVENTS, merge.same(("number",)), erased)


def _dates(rows: DataFrame) -> list[date]:
    return [row["date"] for row in rows.select("date").distinct().collect()]


def _compute_again(lake: Lake, days: list[date], alerted: list[date], others: DataFrame, alerts: DataFrame) -> None:
    """Recompute the figures of whole days from the remaining transactions and alerts.

    On the days ``alerted`` other accounts lose alerts.
    """
    for aggregate in gold_tables.GROUPED:
        touched = alerted if "account_id" in aggregate.keys else sorted({*days, *alerted})
        if touched:
            groups.recompute(lake, aggregate, others, touched, alerts)
    predicted = refresh.on_dates(lake.read(tables.GOLD_FRAUD_PREDICTIONS), days)
    measured = predicted.select("date", "model_version").distinct()
    scored = {(row["date"], row["model_version"]) for row in measured.collect()}
    versions = sorted({version for _, version in scored})
    measure(lake, scored, published.profiles(lake, versions))
    for table in (tables.GOLD_PREDICTION_QUALITY, tables.GOLD_FEATURE_DRIFT):
        without = refresh.on_dates(lake.read(table), days).select("date", "model_version").distinct().subtract(measured)
        merge.merge(lake, without, table, merge.same(("date", "model_version")), "WHEN MATCHED THEN DELETE")


def _empty_landed_rows(lake: Lake, wanted: DataFrame, theirs: str, accounts: Sequence[str]) -> None:
    """Empty each row of bronze but for its source position, and move its row of silver, emptied, to quarantine."""
    landed = rows_of(lake, tables.BRONZE_TRANSACTIONS, accounts)
    positions = landed.select(*tables.SOURCE_POSITION).distinct()
    at = merge.same(tables.SOURCE_POSITION)
    merge.merge(lake, positions, tables.SILVER_QUARANTINE, at, "WHEN MATCHED THEN DELETE")
    quarantine = lake.table(tables.SILVER_QUARANTINE)
    values = {name: F.col(name) for name in (*tables.SOURCE_POSITION, "_ingested_at")} | {
        "reasons": F.array(F.lit(quality_rules.FORGOTTEN)),
        "quarantined_at": clock.now(),
    }
    empty = landed.select(
        *(values.get(column.name, F.lit(None).cast(column.type)).alias(column.name) for column in quarantine.fields)
    )
    conflict.retried(lambda: lake.writer(tables.SILVER_QUARANTINE).append(empty))
    merge.merge(lake, wanted, tables.SILVER_TRANSACTIONS, theirs, "WHEN MATCHED THEN DELETE")
    _empty(lake, tables.BRONZE_TRANSACTIONS, positions, tables.SOURCE_POSITION)


def _empty(lake: Lake, table: Table, positions: DataFrame, of_position: Sequence[str]) -> None:
    """Empty rows of bronze but for their source position and time of ingestion."""
    values = [name for name in lake.table(table).column_names if name not in (*of_position, "_ingested_at")]
    nulls = ", ".join(f"t.{sql_text.name(name)} = NULL" for name in values)
    merge.merge(lake, positions, table, merge.same(of_position), f"WHEN MATCHED THEN UPDATE SET {nulls}")
