"""Forget: accounts leave tables, files, the state of streams and Delta's log, and a scan proves it.

Every part can be repeated: the next call finishes one that was cut. Rows are found by silver and bronze, so these two
come last. A row of bronze stays as an empty one, with its source position, and so does its row in the quarantine: each
landed row is still in bronze once, and in silver or quarantine once. A fast alert stays as an empty row, too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import gold, steps, tables
from fraudlake.bronze import parquet
from fraudlake.detection import alerts, detector, live_rules, state
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.forget import forgotten, own_files, traces
from fraudlake.lake import conflict, contents, merge
from fraudlake.lake.rows import has_rows
from fraudlake.model import features, published, scoring
from fraudlake.operations import lag, maintenance
from fraudlake.operations.rebuild_note import RebuildNote
from fraudlake.operations.standstill import standstill
from fraudlake.quarantine import replay
from fraudlake.silver import clock, rules
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.streaming import refresh, stream

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import Column, DataFrame

    from fraudlake.lake import Lake
    from fraudlake.tables import Table

LANDED_FILES, DELIVERED_FILES = "landed files", "delivered files"
_LANDED = (tables.BRONZE_TRANSACTIONS, tables.SILVER_QUARANTINE)
_MESSAGE_POSITION = ("_topic", "_partition", "_offset")
_LEDGERS = (tables.BRONZE_FILES, tables.BRONZE_REJECTED_FILES)
_BY_ACCOUNT = tuple(
    table for table in contents.TABLES if "account_id" in table.column_names and table is not tables.BRONZE_FAST_ALERTS
)
_STATEFUL = ("detect", "score")
_MICRO_BATCHES = 4
"""At most so many empty the state."""
_ERASED = "erased: it named an account that was forgotten"
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
_WHOLE_STATE = {
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "false",
    f"{_ROCKSDB}.compactOnCommit": "true",
    f"{_ROCKSDB}.compression": "none",
}
"""Settings with which a micro-batch writes its state as a whole, without what was deleted from it, so that it can be
scanned."""


@dataclass(frozen=True)
class Plan:
    """What a lake has of accounts.

    ``rows`` counts rows by account and table; ``landed files`` and ``delivered files`` stand beside the tables.
    ``stays`` are sentences on what cannot be removed.
    """

    rows: dict[str, dict[str, int]]
    stays: list[str]


@dataclass(frozen=True)
class Result(Plan):
    """What was removed; ``traces`` names what still holds one of the accounts among the files that were scanned."""

    scanned_files: int = 0
    traces: list[str] = field(default_factory=list)


def plan(lake: Lake, accounts: Sequence[str]) -> Plan:
    """Count what would be removed; nothing is changed.

    Raises:
        UsageError: the lake has nothing of an account.
    """
    counted = _plan(lake, accounts)
    _require_known(lake, counted)
    return counted


def forget(lake: Lake, accounts: Sequence[str]) -> Result:
    """Remove accounts, and scan what is left.

    Raises:
        UsageError: the lake has nothing of an account.
        FraudlakeError: a step runs, is behind or was cut; nothing was changed.
    """
    for step in _STATEFUL:  # an earlier call may have been cut there
        if lake.checkpoint(step).pending_batch() is not None:
            _run_stateful(lake, [step], {})
    with standstill(lake):
        _require_idle(lake)
        counted = _plan(lake, accounts)
        audit = _require_known(lake, counted)
        audit.begin(lake, counted.rows)
        _remove_rows(lake, accounts, {name for by_table in counted.rows.values() for name in by_table})
        if lake.folder:
            for landed in own_files.landed(lake, accounts):
                if landed.is_own:
                    own_files.blank(lake, landed)
            own_files.delivered(lake, set(accounts), erase=True)
    if lake.folder is None:
        for table in contents.TABLES:
            maintenance.purge(lake, table)
        audit.finish(lake, accounts)
        return Result(counted.rows, counted.stays)
    older = _empty_whole_state(lake, lake.folder, accounts)
    with standstill(lake):
        _erase_leftovers(lake, lake.folder)
        scanned, places = _scan(lake, lake.folder, accounts)
        places += [f"{file}: it was written before, and cannot be decoded" for file in sorted(older)]
        if not places:
            audit.finish(lake, accounts)
        return Result(counted.rows, counted.stays, scanned, places)


def _require_idle(lake: Lake) -> None:
    """Refuse where a stream has still to read what will be removed."""
    for table in contents.TABLES:
        for step in lag.unread(lake, table):
            raise FraudlakeError(
                f"{step} has not read all of {table.name}: run '{lag.command_of(step)}' to its end first, "
                f"or remove {lake.checkpoint(step).folder} where it is not needed any more"
            )
        if lake.folder and lake.detail(table).clustering_columns:
            raise FraudlakeError(f"{table.name} has liquid clustering: its log cannot be rewritten here")
    note = RebuildNote.of(lake)
    if note is not None:
        raise FraudlakeError(f"a replay of days was cut: run '{note.command}', which finishes it, first")
    if replay.unfinished(lake):
        raise FraudlakeError("a replay was cut: run 'fraudlake quarantine --replay', which finishes it, first")


def _require_known(lake: Lake, counted: Plan) -> forgotten.Forgotten:
    audit = forgotten.read(lake)
    for account, rows in counted.rows.items():
        if not rows and not audit.is_unfinished(account):
            at = audit.finished_at(account)
            was = f"it was forgotten at {at:%Y-%m-%d %H:%M} UTC" if at else "no table and no landed file has it"
            raise UsageError(f"{account}: there is nothing of it in {lake.name}: {was}")
    return audit


def _plan(lake: Lake, accounts: Sequence[str]) -> Plan:
    rows: dict[str, dict[str, int]] = {account: {} for account in accounts}
    for table in (*_LANDED, tables.BRONZE_FAST_ALERTS, *_BY_ACCOUNT, tables.SILVER_VERDICTS):
        for account, count in _rows_of(lake, table, accounts).groupBy("account").count().collect():
            rows[account][table.name] = count
    stays = _elsewhere(lake, accounts)
    if lake.folder is None:
        return Plan(
            rows,
            [
                *stays,
                f"landed files: this cannot rewrite files of a volume; see {landing_folder(lake).path}",
                f"the state of detect and score under {lake.checkpoints}: it leaves with the accounts' next "
                "transactions, or as detect's flags expire and after 30 days without a transaction",
                "the tables' logs: they name the least and largest account of files, until Databricks removes them",
            ],
        )
    flinks = []
    for landed in own_files.landed(lake, accounts):
        if landed.is_own:
            for account, count in landed.rows.items():
                rows[account][LANDED_FILES] = rows[account].get(LANDED_FILES, 0) + count
    search = traces.Search(accounts)
    for file in landing_folder(lake).list_files():
        if file.size is not None and not parquet.is_own(file.path) and search.in_file(Path(file.path)):
            flinks.append(file.source)
    if flinks:
        stays.append(f"landed files that Flink wrote, in {landing_folder(lake).path}: {', '.join(sorted(flinks))}")
    for account, count in own_files.delivered(lake, set(accounts), erase=False).items():
        rows[account][DELIVERED_FILES] = count
    return Plan(rows, stays)


def _elsewhere(lake: Lake, accounts: Sequence[str]) -> list[str]:
    """Say what of the accounts is where no lake reaches."""
    stays = []
    for table in (tables.BRONZE_TRANSACTIONS, tables.BRONZE_FAST_ALERTS):
        of_topics = _rows_of(lake, table, accounts).where("_topic IS NOT NULL").groupBy("_topic")
        for topic, count in of_topics.count().collect():
            stays.append(f"{count:,} messages of the topic {topic}: Kafka removes them by the topic's own retention")
    delivered = _rows_of(lake, tables.SILVER_DELIVERIES, accounts).where("attempts > 0").groupBy("destination")
    for destination, count in delivered.count().collect():
        if destination != "file" or lake.folder is None:
            stays.append(f"{count:,} alerts that were delivered to {destination}: their receiver has them")
        elif not lake.settings.delivery_folder:
            stays.append(f"{count:,} alerts that were delivered to files: name their folder with --delivery-folder")
    if not lake.checkpoint(scoring.FROM_KAFKA).is_new:
        stays.append(
            "sums of the accounts' amounts, under a hash, in the state of score_kafka: they leave it after "
            f"{features.FORGET_DAYS} days without a transaction"
        )
    if lake.count(tables.GOLD_MODELS):
        stays.append("the trained models: they have learned from these transactions, and name no account")
    return stays


def _rows_of(lake: Lake, table: tables.Table, accounts: Sequence[str]) -> DataFrame:
    """Return the rows of accounts, with the column ``account``."""
    rows = lake.read(table)  # which starts Spark, if need be: there are no columns before
    if table in _LANDED:
        text = F.concat_ws("\n", "_rescued_data", F.col("_raw").cast("string"))
        return _naming(rows, F.col("accountId"), text, accounts)
    if table == tables.BRONZE_FAST_ALERTS:
        return _naming(rows, F.col("account_id"), F.col("value").cast("string"), accounts)
    if table == tables.SILVER_VERDICTS:
        silver = _rows_of(lake, tables.SILVER_TRANSACTIONS, accounts).select("transaction_id", "account").distinct()
        return rows.join(silver, on="transaction_id")
    theirs = F.col("account_id").isin(list(accounts))
    return rows.where(theirs).withColumn("account", F.col("account_id"))


def _naming(rows: DataFrame, own: Column, text: Column, accounts: Sequence[str]) -> DataFrame:
    """Return the landed rows of accounts, with the column ``account``.

    Args:
        rows: the rows.
        own: the account that a row is of.
        text: where a row without one may name it.
        accounts: the accounts.
    """
    is_of = {
        account: (own == account) | (own.isNull() & text.rlike(f"(?s){traces.pattern(account)}"))
        for account in accounts
    }
    account = F.coalesce(*(F.when(condition, F.lit(account)) for account, condition in is_of.items()))
    return rows.withColumn("account", account).where("account IS NOT NULL")


def _remove_rows(lake: Lake, accounts: Sequence[str], names: set[str]) -> None:
    """Remove the accounts from the tables of these names, which have rows of them, and from what errors say."""
    # A MERGE, unlike a DELETE, does not write its values into Delta's log.
    wanted = lake.session.createDataFrame([(account,) for account in accounts], "account_id STRING")
    theirs = "t.account_id = s.account_id"
    others = ~F.col("account_id").isin(list(accounts))
    days = _dates(_rows_of(lake, tables.SILVER_TRANSACTIONS, accounts))
    if tables.SILVER_VERDICTS.name in names:
        verdicts = _rows_of(lake, tables.SILVER_VERDICTS, accounts).select("transaction_id").distinct()
        merge.merge(lake, verdicts, tables.SILVER_VERDICTS, merge.same(["transaction_id"]), "WHEN MATCHED THEN DELETE")
    for table in _BY_ACCOUNT:
        if table.name in names and table != tables.SILVER_TRANSACTIONS:
            merge.merge(lake, wanted, table, theirs, "WHEN MATCHED THEN DELETE")
    if days:
        _compute_again(lake, days, lake.read(tables.SILVER_TRANSACTIONS).where(others))
        steps.recompute_lanes(lake, days, lake.read(tables.BRONZE_FAST_ALERTS).where(others))
    for table in _LEDGERS:
        texts = lake.read(table).where(F.col("error").rlike(f"(?s){traces.Search(accounts).pattern}"))
        if has_rows(texts):
            erased = f"WHEN MATCHED THEN UPDATE SET error = '{_ERASED}'"
            merge.merge(lake, texts.select("error").distinct(), table, "t.error = s.error", erased)
    if tables.BRONZE_FAST_ALERTS.name in names:
        positions = _rows_of(lake, tables.BRONZE_FAST_ALERTS, accounts).select(*_MESSAGE_POSITION).distinct()
        _empty(lake, tables.BRONZE_FAST_ALERTS, positions, _MESSAGE_POSITION)
    if names & {tables.BRONZE_TRANSACTIONS.name, tables.SILVER_TRANSACTIONS.name}:
        _empty_landed_rows(lake, wanted, theirs, accounts)


def _dates(rows: DataFrame) -> list[date]:
    return [row["date"] for row in rows.select("date").distinct().collect()]


def _compute_again(lake: Lake, days: list[date], others: DataFrame) -> None:
    """Compute the figures of whole days from the transactions of the other accounts."""
    for aggregate in gold.AGGREGATES:
        if "account_id" not in aggregate.keys:
            steps.recompute_days(lake, aggregate, others, days)
    predicted = refresh.on_dates(lake.read(tables.GOLD_FRAUD_PREDICTIONS), days)
    measured = predicted.select("date", "model_version").distinct()
    versions = [row["model_version"] for row in measured.select("model_version").distinct().collect()]
    scoring.measure(lake, measured, published.profiles(lake.read(tables.GOLD_MODELS), versions))
    for table in (tables.GOLD_PREDICTION_QUALITY, tables.GOLD_FEATURE_DRIFT):
        without = refresh.on_dates(lake.read(table), days).select("date", "model_version").distinct().subtract(measured)
        merge.merge(lake, without, table, merge.same(("date", "model_version")), "WHEN MATCHED THEN DELETE")


def _empty_landed_rows(lake: Lake, wanted: DataFrame, theirs: str, accounts: Sequence[str]) -> None:
    """Leave of each row of bronze its source position, and have it in the quarantine instead of in silver."""
    landed = _rows_of(lake, tables.BRONZE_TRANSACTIONS, accounts)
    positions = landed.select(*tables.SOURCE_POSITION).distinct()
    at = merge.same(tables.SOURCE_POSITION)
    merge.merge(lake, positions, tables.SILVER_QUARANTINE, at, "WHEN MATCHED THEN DELETE")
    quarantine = lake.table(tables.SILVER_QUARANTINE)
    known = {name: F.col(name) for name in (*tables.SOURCE_POSITION, "_ingested_at")} | {
        "reasons": F.array(F.lit(rules.FORGOTTEN)),
        "quarantined_at": clock.now(),
    }
    empty = landed.select(
        *(known.get(column.name, F.lit(None).cast(column.type)).alias(column.name) for column in quarantine.fields)
    )
    conflict.retried(lambda: lake.append(empty, tables.SILVER_QUARANTINE))
    merge.merge(lake, wanted, tables.SILVER_TRANSACTIONS, theirs, "WHEN MATCHED THEN DELETE")
    _empty(lake, tables.BRONZE_TRANSACTIONS, positions, tables.SOURCE_POSITION)


def _empty(lake: Lake, table: Table, positions: DataFrame, of_position: Sequence[str]) -> None:
    """Leave of rows of bronze their source position, and when they were ingested."""
    values = [name for name in lake.table(table).column_names if name not in (*of_position, "_ingested_at")]
    nulls = ", ".join(f"t.`{name}` = NULL" for name in values)
    merge.merge(lake, positions, table, merge.same(of_position), f"WHEN MATCHED THEN UPDATE SET {nulls}")


def _empty_whole_state(lake: Lake, folder: Path, accounts: Sequence[str]) -> set[Path]:
    """Empty the state until no file of before is left: :func:`_empty_state`.

    Now and then RocksDB does not merge what a micro-batch has just written with the file that was there (seen in Spark
    4.2); the next micro-batch does.
    """
    for _ in range(_MICRO_BATCHES - 1):
        if not _empty_state(lake, folder, accounts):
            return set()
    return _empty_state(lake, folder, accounts)


def _empty_state(lake: Lake, folder: Path, accounts: Sequence[str]) -> set[Path]:
    """Have the stateful streams drop the accounts from their state, and remove all older versions of it.

    Returns:
        RocksDB's files of before that the present version still has; there should be none.
    """
    from fraudlake.lake import delta_folder

    begun = [step for step in _STATEFUL if not lake.checkpoint(step).is_new]
    before = {file for step in begun for file in lake.checkpoint(step).state.rglob("*.sst")}
    if begun:
        delta_folder.append_empty_file(folder / "tables" / tables.SILVER_TRANSACTIONS.name)
        _run_stateful(lake, begun, _by_hash(lake, accounts))
    for step in begun:
        with lake.exclusive(step):
            lake.checkpoint(step).erase_past_state()
    return {file for file in before if file.exists()}


def _run_stateful(lake: Lake, names: list[str], forget: Mapping[int, str]) -> None:
    begun = [item for step in names for item in getattr(steps, step)(lake, forget=forget) if item.step == step]
    # The commit without rows is no reason for a stream to start.
    streams = [replace(item, waits=True) for item in begun]
    before = {name: lake.session.conf.get(name, None) for name in _WHOLE_STATE}
    try:
        for name, value in _WHOLE_STATE.items():
            lake.session.conf.set(name, value)
        stream.run(lake, streams, "available-now")
    finally:
        for name, previous in before.items():
            if previous is None:
                lake.session.conf.unset(name)
            else:
                lake.session.conf.set(name, previous)


def _by_hash(lake: Lake, accounts: Sequence[str]) -> dict[int, str]:
    """Return accounts by the hashes by which the state of streams knows them."""
    frame = lake.session.createDataFrame([(account,) for account in accounts], "account_id STRING")
    return dict(frame.select(F.xxhash64("account_id"), "account_id").collect())


def _erase_leftovers(lake: Lake, folder: Path) -> None:
    """Remove files that served their purpose and may name accounts, and the past of every table."""
    from fraudlake.lake import delta_folder

    for done in (lake.replays, folder / "spool"):
        shutil.rmtree(done, ignore_errors=True)
    for log in (folder / "logs").glob("*"):
        os.truncate(log, 0)  # Spark goes on at its end
    for example in (folder / "models").rglob("*input_example*.json"):
        example.unlink()
    for table in contents.TABLES:
        delta_folder.erase_past(folder / "tables" / table.name)


def _scan(lake: Lake, folder: Path, accounts: Sequence[str]) -> tuple[int, list[str]]:
    """Search every file of the lake, landed files but Flink's, and delivered ones; return their number and traces."""
    search, places, number = traces.Search(accounts), [], 0
    landing, delivered = Path(landing_folder(lake).path), lake.settings.delivery_folder
    for file in traces.files([folder, landing, *([Path(delivered)] if delivered else [])]):
        if file.is_relative_to(landing) and not parquet.is_own(str(file)):
            continue
        number += 1
        places += [f"{file}: {part}" for part in search.in_file(file)]
    hashes = pa.array(list(_by_hash(lake, accounts)), pa.int64())
    for step, name, rows in _state(lake):
        is_hashed = "account" in rows.column_names and pc.any(pc.is_in(rows["account"], hashes)).as_py()
        if is_hashed or any(map(search.is_in, rows.columns)):
            places.append(f"state of {step}: {name}")
    return number, places


def _state(lake: Lake) -> Iterator[tuple[str, str, pa.Table]]:
    """Return the tables of the state of all streams, with the step and the name of each."""
    yield "detect", "open flags", state.read(lake, "detect", alerts.OPEN_FLAGS, detector.FLAGS)
    yield "detect", "waiting", state.read(lake, "detect", "waiting", detector.ROWS)
    for row in state.read(lake, "detect", "rules", live_rules.STATE).to_pylist():
        yield "detect", f"rule {row['rule']}", pa.ipc.open_stream(row["rows"]).read_all()
    yield "score", "memory", state.read(lake, "score", features.STATE, features.MEMORY)
