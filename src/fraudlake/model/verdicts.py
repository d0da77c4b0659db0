"""Verdicts from a file: decisions become rows of ``silver_verdicts``, each once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake.merge import merge, same
from fraudlake.model import verdict_file
from fraudlake.model.verdict_file import PROBLEM, REFERENCE, Format
from fraudlake.silver import verdicts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake

_ALERTS = (tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS)
_KEYS = ("transaction_id", "verdict", "analyst", "decided_at")
_NAMED = (*verdicts.IDS, REFERENCE)


@dataclass(frozen=True)
class Loaded:
    """Numbers of rows of a file that were inserted, were already in the table, and match nothing in the lake."""

    taken: int
    known: int
    unmatched: int
    unknown: list[str]
    """The ids that match no transaction, alert or case."""
    future: int
    """The number of verdicts in the file that are dated in the future: each counts from its ``decided_at`` on."""


def load(lake: Lake, file: Path, of: Format | None = None, reference: str | None = None) -> Loaded:
    """Insert the verdicts of a CSV (with a header) or parquet file; loading the same file again adds nothing.

    What is about a transaction, an alert or a case of the lake is inserted, whatever else the file holds. The other
    rows are written to a file beside it, with the problem of each, and can be loaded again.

    Args:
        lake: the lake.
        file: the file.
        of: how it is to be read.
        reference: the column of ``silver_transactions`` that has the payments' own references.

    Raises:
        UsageError: the file cannot be read or understood, or there is no such column. Nothing is loaded.
    """
    _require_column(lake, reference)
    given = verdict_file.read(file, of or Format())
    rows = given.rows.append_column("row", pa.array(np.arange(len(given.rows))))
    found = _payments(lake, rows, reference)
    times = pc.value_counts(found["row"])
    counts = np.zeros(len(rows), np.int64)
    counts[times.field("values").to_numpy()] = times.field("counts").to_numpy()
    by_reference = pc.is_null(pc.coalesce(*(rows[name] for name in verdicts.IDS))).to_numpy()
    is_ambiguous = by_reference & (counts > 1)
    left_out = np.flatnonzero((counts == 0) | is_ambiguous)
    _write_left_out(file, given.given, left_out, is_ambiguous, of.encoding if of else None)
    found = found.filter(pc.invert(pc.is_in(found["row"], pa.array(left_out))))
    decided = rows.take(found["row"])
    is_of_future = pc.greater(decided["decided_at"], pa.scalar(datetime.now(UTC), decided["decided_at"].type))
    columns = {name: decided[name] for name in ("verdict", "analyst", "reason", "decided_at")}
    new = pa.table({**columns, "transaction_id": found["transaction_id"], "date": found["date"]})
    taken = _insert(lake, new)
    names = pc.coalesce(*(rows[name] for name in _NAMED)).take(pa.array(left_out))
    future = pc.sum(is_of_future).as_py() or 0
    return Loaded(taken, len(new) - taken, len(left_out), sorted({*names.to_pylist()}), future)


def left_out_file(file: Path) -> Path:
    """Return the file with the rows that were not loaded."""
    return file.with_name(f"{file.name}.unmatched.csv")


def _require_column(lake: Lake, reference: str | None) -> None:
    if reference is not None and reference not in lake.settings.columns:
        declared = ", ".join(lake.settings.columns) or "none"
        raise UsageError(f"--reference {reference} is no declared column: the lake has {declared}")


def _payments(lake: Lake, rows: pa.Table, reference: str | None) -> pa.Table:
    """Return ``row, transaction_id, date`` of the payments that rows are about."""
    given = lake.session.createDataFrame(rows.select(["row", *_NAMED]))
    has = {name: rows[name].null_count < len(rows) for name in _NAMED}
    raised = [lake.read(table).select("alert_id", "transaction_id") for table in _ALERTS]
    alerts = _unless(not has["alert_id"], raised[0].unionByName(raised[1]))
    cases = lake.read(tables.GOLD_CASES).select(F.explode("alert_ids").alias("case_id"), "transaction_ids")
    own = F.col(reference).cast("string") if reference else F.lit(None).cast("string")
    silver = lake.read(tables.SILVER_TRANSACTIONS).select("transaction_id", "date", own.alias(REFERENCE))
    return verdicts.payments(given, silver, alerts, _unless(not has["case_id"], cases)).toArrow()


def _unless(is_needless: bool, rows: DataFrame) -> DataFrame:
    """Return no rows if none is needed: Spark then leaves out what is computed from them."""
    return rows.limit(0) if is_needless else rows


def _write_left_out(
    file: Path, given: pa.Table, left_out: NDArray[np.int64], is_ambiguous: NDArray[np.bool_], encoding: str | None
) -> None:
    """Write the rows that were not loaded, in the encoding of the file; none remain of an earlier load."""
    place = left_out_file(file)
    if not len(left_out):
        place.unlink(missing_ok=True)
        return
    problems = np.where(is_ambiguous[left_out], "several payments have this reference", "no such payment in the lake")
    rows = given.take(pa.array(left_out)).append_column(PROBLEM, pa.array(problems.tolist(), pa.string()))
    texts = pa.table([column.cast(pa.string()) for column in rows.columns], rows.column_names)
    written = pa.BufferOutputStream()
    pa.csv.write_csv(texts, written)
    place.write_bytes(written.getvalue().to_pybytes().decode().encode(encoding or "utf-8"))


def _insert(lake: Lake, new: pa.Table) -> int:
    """Insert verdicts that the table lacks; return their number."""
    if not len(new):
        return 0
    frame = lake.session.createDataFrame(new.select(tables.SILVER_VERDICTS.schema.names).combine_chunks())
    with lake.exclusive("verdicts"):
        # The MERGE only inserts, so downstream streams read it as appended rows.
        merged = merge(lake, frame.distinct(), tables.SILVER_VERDICTS, same(_KEYS), "WHEN NOT MATCHED THEN INSERT *")
        return int(merged["num_inserted_rows"])
