"""Replay: checks quarantined rows again, and moves those that are valid now to silver, exactly once.

A replay first writes its plan: ``replays/<id>/plan`` in the lake holds the rows with their new reasons, and
``replays/<id>/replay.json``, written last, makes the plan complete. Only then does the replay change tables. It appends
to silver under a separate Delta transaction id, so Delta skips the append when it is repeated. Then one MERGE deletes
the moved rows from the quarantine; repeated, it matches nothing. So an interrupted replay is finished by carrying out
its plan again. The next replay, or ``refine``, does that first: otherwise ``refine`` could append a row with an id that
the plan moves.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError, first_line
from fraudlake.lake import json_file
from fraudlake.lake.appender import Appender
from fraudlake.lake.merge import merge, same
from fraudlake.lake.rows import has_rows
from fraudlake.quarantine.show import broken, raw_columns, require_known
from fraudlake.rates.base_amount import with_base_amount
from fraudlake.silver import duplicates, quality_rules, transactions
from fraudlake.times import epochs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.lake import Lake

_PLANNED = "date DATE, warnings ARRAY<STRING>, reasons_as_landed ARRAY<STRING>"
"""The columns of a plan in addition to those of the quarantine."""


@dataclass(frozen=True)
class Replayed:
    """Result of a replay, in rows; ``finished`` counts earlier replays that were interrupted and are finished now."""

    moved: int
    stayed: int
    not_replayable: int
    finished: int


def replay(lake: Lake, rule: str | None, replacements: Mapping[str, str]) -> Replayed:
    """Check quarantined rows again, with the present settings and the present time.

    Rows that are valid move to ``silver_transactions``. The others stay, with their values unchanged and their reasons
    updated. Late rows and rows with a repeated source position are not replayed, since the lake has them already, nor
    are the rows of forgotten accounts, which are empty.

    Args:
        lake: the lake; ``refine`` must not run.
        rule: the quality rule whose rows are replayed; None replays all.
        replacements: SQL expressions by the raw column whose value they replace. Bronze retains the landed values.

    Raises:
        UsageError: the rule or the column does not exist, or Spark cannot parse an expression.
        FraudlakeError: ``refine`` or another replay is running, ``refine`` was cut within a micro-batch, or an
            expression fails on a row. Nothing was changed.
    """
    if rule is not None:
        require_known(lake, rule)
    with lake.exclusive("refine"):
        if lake.checkpoint("refine").pending_batch() is not None:
            # Silver may still lack rows of its micro-batch, with the ids of rows that the replay would move.
            raise FraudlakeError(
                "refine was interrupted within a micro-batch: run 'fraudlake refine' first to finish it"
            )
        finished = finish(lake)
        rows = lake.read(tables.SILVER_QUARANTINE)
        rows = rows if rule is None else broken(rows, rule)
        is_empty = F.array_contains("reasons", quality_rules.FORGOTTEN)
        replayable = rows.where(duplicates.REPLAYABLE).where(~is_empty)
        candidates = replayable.count()
        total = rows.count()
        moved = 0
        if candidates:
            folder = _plan(lake, replayable, rule, replacements)
            moved = json.loads((folder / "replay.json").read_text())["moved"]
            _carry_out(lake, folder)
        return Replayed(moved, candidates - moved, total - candidates, finished)


def finish(lake: Lake) -> int:
    """Carry out the plans of interrupted replays, and return how many there were."""
    interrupted = unfinished(lake)
    for folder in interrupted:
        _carry_out(lake, folder)
    return len(interrupted)


def unfinished(lake: Lake) -> list[Path]:
    """Return the folders of plans that were not carried out completely."""
    plans = sorted(lake.replays.glob("*/replay.json"))
    return [plan.parent for plan in plans if not (plan.parent / "done").exists()]


def moved(lake: Lake) -> DataFrame:
    """Return ``source, position`` of the rows that replays have moved to silver, perhaps with other values."""
    positions = lake.session.createDataFrame([], "source STRING, position BIGINT")
    for file in sorted(lake.replays.glob("*/replay.json")):
        plan = lake.session.read.schema(f"{lake.table(tables.SILVER_QUARANTINE).columns}, {_PLANNED}")
        valid = plan.parquet(str(file.parent / "plan")).where(F.size("reasons") == 0)
        positions = positions.union(
            valid.select(transactions.source().alias("source"), transactions.position().alias("position"))
        )
    return positions.distinct()


def _plan(lake: Lake, rows: DataFrame, rule: str | None, replacements: Mapping[str, str]) -> Path:
    started = datetime.now(UTC)
    folder = lake.replays / f"{started:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    bronze = rows.drop("reasons", "quarantined_at")
    now = F.lit(started)
    as_landed = transactions.checked(_dated(bronze), lake.settings, now)
    as_replaced = transactions.checked(_dated(_replaced(lake, bronze, replacements)), lake.settings, now)
    try:
        checked = _with_duplicate_reasons(lake, as_replaced)
        # A row that stays keeps its landed values, so its reasons refer to these values.
        reasons = _with_duplicate_reasons(lake, as_landed).select(
            *tables.SOURCE_POSITION, F.col("reasons").alias("reasons_as_landed")
        )
        same = [F.col(f"checked.{name}").eqNullSafe(F.col(f"landed.{name}")) for name in tables.SOURCE_POSITION]
        plan = checked.alias("checked").join(reasons.alias("landed"), on=same, how="inner")
        plan.select("checked.*", "reasons_as_landed").write.parquet(str(folder / "plan"))
        moved = lake.session.read.parquet(str(folder / "plan")).where(F.size("reasons") == 0).count()
    except AnalysisException as error:
        raise UsageError(f"--set: {first_line(error)}") from None
    except PySparkException as error:
        raise FraudlakeError(f"the replay failed, and nothing was changed: {first_line(error)}") from None
    metadata = {"started": started.isoformat(), "rule": rule, "set": dict(replacements), "moved": moved}
    json_file.write(folder / "replay.json", metadata)
    return folder


def _with_duplicate_reasons(lake: Lake, checked: DataFrame) -> DataFrame:
    """Add the reason to rows whose id silver has now. Quarantine is not compared: it has these very rows."""
    stored = duplicates.StoredTables(
        lambda: lake.read(tables.SILVER_TRANSACTIONS), lambda: lake.read(tables.SILVER_QUARANTINE).limit(0)
    )
    summary = duplicates.batch_summary(checked)
    overlapping_sources = duplicates.PositionIndex().overlapping_sources(summary, stored)
    return duplicates.with_duplicate_reasons(checked, summary, overlapping_sources, stored)


def _dated(bronze: DataFrame) -> DataFrame:
    return bronze.withColumn("date", F.to_date("dt"))


def _replaced(lake: Lake, bronze: DataFrame, replacements: Mapping[str, str]) -> DataFrame:
    """Replace values; every expression reads the landed values. A replaced value is no longer a misfit."""
    marks = map(epochs.mark, epochs.UNITS) if "dt" in replacements else ()
    replaced: list[Column] = []
    columns = raw_columns(lake)
    types = {field.name: field.dataType for field in bronze.schema}
    for name, expression in replacements.items():
        if name not in columns:
            raise UsageError(f"--set {name}: there is no such column; there are {', '.join(columns)}")
        try:
            replaced.append(F.expr(expression).cast(types[name]).alias(name))
            bronze.select(replaced[-1])
        except (AnalysisException, ParseException) as error:
            raise UsageError(f"--set {name}={expression}: {first_line(error)}") from None
    misfits = F.array_except("_misfits", F.array(*map(F.lit, (*replacements, *marks))).cast("array<string>"))
    others = (name for name in bronze.columns if name not in replacements)
    return bronze.select(*replaced, *others).withColumn("_misfits", misfits)


def _carry_out(lake: Lake, folder: Path) -> None:
    # The settings may have declared other columns when the plan was written.
    quarantine = lake.table(tables.SILVER_QUARANTINE).columns
    plan = lake.session.read.schema(f"{quarantine}, {_PLANNED}").parquet(str(folder / "plan"))
    valid = with_base_amount(transactions.valid(plan, lake.settings.columns), lake)
    if has_rows(valid):
        Appender(f"replay-{folder.name}").append(lake, valid, tables.SILVER_TRANSACTIONS, 0)
    _update_quarantine(lake, plan)
    (folder / "done").touch()


def _update_quarantine(lake: Lake, plan: DataFrame) -> None:
    merge(
        lake,
        plan,
        tables.SILVER_QUARANTINE,
        f"{same(tables.SOURCE_POSITION)} AND {duplicates.REPLAYABLE.replace('reasons', 't.reasons')}",
        "WHEN MATCHED AND size(s.reasons) = 0 THEN DELETE",
        "WHEN MATCHED AND t.reasons <> s.reasons_as_landed AND size(s.reasons_as_landed) > 0 "
        "THEN UPDATE SET t.reasons = s.reasons_as_landed",
    )
