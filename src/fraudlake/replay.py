"""Replay: quarantined rows are judged again, and those that are valid by now move to silver, exactly once.

A replay first writes down what it will do: ``replays/<id>/plan`` in the lake holds the rows, judged, and
``replays/<id>/replay.json``, written last, makes them a plan. Only then it touches tables: an append to silver under
the replay's own transaction id, which Delta passes over when it is repeated, and one MERGE that takes the moved rows
out of the quarantine, which finds nothing when it is repeated. A replay that was cut is therefore finished by doing it
again, and that is what the next one does before anything else.
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

from fraudlake import conflict, tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.quarantine import RAW, broken, require_known
from fraudlake.rows import has_rows
from fraudlake.silver import duplicates, transactions
from fraudlake.stream import Appender

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.lake import Lake

_PLACE = ("_source_file", "_source_row", "_topic", "_partition", "_offset")


@dataclass(frozen=True)
class Replayed:
    """What a replay did, in rows; ``finished`` counts earlier replays that had been cut and were finished first."""

    moved: int
    stayed: int
    not_replayable: int
    finished: int


def replay(lake: Lake, rule: str | None, mended: Mapping[str, str]) -> Replayed:
    """Judge quarantined rows again, under the settings as they are and the clock as it is.

    Rows that are valid move to ``silver_transactions``; the others stay untouched, with the reasons that they have now.
    Late rows and second rows of one place are left alone: the lake holds them already.

    Args:
        lake: the lake; ``refine`` must not run.
        rule: replay only rows that broke it.
        mended: SQL expressions by the raw column that they are to replace. What landed stays in bronze.

    Raises:
        UsageError: there is no such rule or column, or Spark cannot read an expression.
        FraudlakeError: ``refine`` or another replay runs, or an expression fails on a row; nothing has changed then.
    """
    if rule is not None:
        require_known(rule)
    with lake.exclusive("refine"):
        cut = unfinished(lake)
        for folder in cut:
            _carry_out(lake, folder)
        rows = lake.read(tables.SILVER_QUARANTINE)
        rows = rows if rule is None else broken(rows, rule)
        replayable = rows.where(duplicates.REPLAYABLE)
        candidates, total = replayable.count(), rows.count()
        moved = 0
        if candidates:
            folder = _plan(lake, replayable, rule, mended)
            moved = json.loads((folder / "replay.json").read_text())["moved"]
            _carry_out(lake, folder)
        return Replayed(moved, candidates - moved, total - candidates, len(cut))


def unfinished(lake: Lake) -> list[Path]:
    """Return the plans that were not carried out to their end."""
    plans = sorted(lake.replays.glob("*/replay.json"))
    return [plan.parent for plan in plans if not (plan.parent / "done").exists()]


def _plan(lake: Lake, rows: DataFrame, rule: str | None, mended: Mapping[str, str]) -> Path:
    started = datetime.now(UTC)
    folder = lake.replays / f"{started:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    bronze = rows.drop("reasons", "quarantined_at")
    now = F.lit(started)
    as_landed = transactions.checked(_dated(bronze), lake.settings, now)
    as_mended = transactions.checked(_dated(_mended(bronze, mended)), lake.settings, now)
    try:
        judged = _new(lake, as_mended)
        # A row that stays keeps its values as they landed, so its reasons are theirs, too.
        reasons = _new(lake, as_landed).select(*_PLACE, F.col("reasons").alias("reasons_as_landed"))
        same = [F.col(f"judged.{name}").eqNullSafe(F.col(f"landed.{name}")) for name in _PLACE]
        plan = judged.alias("judged").join(reasons.alias("landed"), on=same, how="inner")
        plan.select("judged.*", "reasons_as_landed").write.parquet(str(folder / "plan"))
        moved = lake.spark.read.parquet(str(folder / "plan")).where(F.size("reasons") == 0).count()
    except AnalysisException as error:
        raise UsageError(f"--set: {_first_line(error)}") from None
    except PySparkException as error:
        raise FraudlakeError(f"the replay failed, and nothing was changed: {_first_line(error)}") from None
    told = {"started": started.isoformat(), "rule": rule, "set": dict(mended), "moved": moved}
    draft = folder / "replay.tmp"
    draft.write_text(json.dumps(told) + "\n")
    draft.replace(folder / "replay.json")
    return folder


def _new(lake: Lake, checked: DataFrame) -> DataFrame:
    """Tell ids that silver holds by now; the rows' own places are theirs alone."""
    before = duplicates.Before(
        lambda: lake.read(tables.SILVER_TRANSACTIONS), lambda: lake.read(tables.SILVER_QUARANTINE).limit(0)
    )
    found = duplicates.digest(checked)
    return duplicates.marked(checked, found, duplicates.Held().met(found, before), before)


def _dated(bronze: DataFrame) -> DataFrame:
    return bronze.withColumn("date", F.to_date("dt"))


def _mended(bronze: DataFrame, mended: Mapping[str, str]) -> DataFrame:
    """Replace values; every expression sees the row as it landed."""
    replaced: list[Column] = []
    types = {field.name: field.dataType for field in bronze.schema}
    for name, expression in mended.items():
        if name not in RAW:
            raise UsageError(f"--set {name}: there is no such column; there are {', '.join(RAW)}")
        try:
            replaced.append(F.expr(expression).cast(types[name]).alias(name))
            bronze.select(replaced[-1])
        except (AnalysisException, ParseException) as error:
            raise UsageError(f"--set {name}={expression}: {_first_line(error)}") from None
    return bronze.select(*replaced, *(name for name in bronze.columns if name not in mended))


def _carry_out(lake: Lake, folder: Path) -> None:
    plan = lake.spark.read.parquet(str(folder / "plan"))
    valid = transactions.valid(plan)
    if has_rows(valid):
        Appender(f"replay-{folder.name}").append(lake, valid, tables.SILVER_TRANSACTIONS, 0)
    _take_out(lake, plan)
    (folder / "done").touch()


def _take_out(lake: Lake, plan: DataFrame) -> None:
    plan.createOrReplaceTempView("replay_plan")
    same = " AND ".join(f"q.{name} <=> p.{name}" for name in _PLACE)
    merge = (
        f"MERGE INTO {lake.name_of(tables.SILVER_QUARANTINE)} q USING replay_plan p "
        f"ON {same} AND {duplicates.REPLAYABLE.replace('reasons', 'q.reasons')} "
        "WHEN MATCHED AND size(p.reasons) = 0 THEN DELETE "
        "WHEN MATCHED AND q.reasons <> p.reasons_as_landed AND size(p.reasons_as_landed) > 0 "
        "THEN UPDATE SET q.reasons = p.reasons_as_landed"
    )
    conflict.retried(lambda: lake.spark.sql(merge))  # OPTIMIZE of the same table may commit in between


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
