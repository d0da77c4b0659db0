"""Verdicts from a file: inserts decisions into ``silver_verdicts``, each once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.model import disputed, verdict_file
from fraudlake.model.verdict_file import PROBLEM
from fraudlake.settings.disputes import IDS, REFERENCE, Format
from fraudlake.values import size_in_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.lake import Lake

_COLUMNS = tables.SILVER_VERDICTS.column_names
_DECIDED = ("verdict", "analyst", "reason", "decided_at")
_INSTANT = ("transaction_id", "decided_at")
_KEYS = (*_INSTANT, "verdict", "analyst")
LEFT_OUT = ".unmatched.csv"
"""The suffix of a file of left-out rows."""
_UNKNOWN = "no such payment in the lake"
_AMBIGUOUS = {True: "several payments have this reference", False: "several payments of this account, amount and time"}


@dataclass(frozen=True)
class Loaded:
    """Numbers of rows of a file that were inserted, were already in the table, and match nothing in the lake."""

    taken: int
    known: int
    unmatched: int
    unknown: list[str]
    """The ids, references or accounts in the rows that match no payment, or several."""
    future: int
    """The number of verdicts in the file that are dated in the future: training leaves each out until then."""


def load(lake: Lake, file: Path, of: Format | None = None) -> Loaded:
    """Insert the verdicts of a CSV (with a header) or parquet file; loading the same file again adds nothing.

    Rows about a transaction, an alert or a case of the lake are inserted, even if others match nothing. Those others
    are written to a file next to it, each with its problem, and can be loaded again.

    Args:
        lake: the lake.
        file: the file.
        of: its format, and how to find its payments.

    Raises:
        UsageError: the file cannot be read or parsed, the declared column of references does not exist, or the left-out
            rows cannot be written. Nothing is loaded.
    """
    of = of or Format()
    require_column(lake, of.reference)
    content = verdict_file.read(file, of, size_in_bytes(lake.settings.max_value_size))
    rows = content.rows
    if of.reference is None and (at := pc.index(_is_by_reference(rows), True).as_py()) >= 0:
        name = rows[REFERENCE][at].as_py()
        raise UsageError(f"{file}: has the reference {name}: name the declared column that has it with --reference")
    matched = disputed.payments(lake, rows, of)
    alike = np.zeros(len(rows), np.int64)
    alike[matched["nth"].to_numpy()] = matched["alike"].to_numpy()
    left_out = np.flatnonzero(alike != 1)
    _write_left_out(file, content, left_out, alike > 1, of.encoding)
    matched = matched.filter(pc.equal(matched["alike"], 1)).sort_by("nth")
    decided = rows.select(_DECIDED).take(matched["nth"])
    is_of_future = pc.greater(decided["decided_at"], pa.scalar(datetime.now(UTC), decided["decided_at"].type))
    new = pa.table({name: (matched if name in matched.column_names else decided)[name] for name in _COLUMNS})
    inserted = _insert(lake, new)
    names = pc.coalesce(*(rows[name] for name in (*IDS, REFERENCE, "account_id"))).take(pa.array(left_out))
    future = pc.sum(is_of_future).as_py() or 0
    return Loaded(inserted, len(new) - inserted, len(left_out), sorted({*names.to_pylist()}), future)


def left_out_file(file: Path) -> Path:
    """Return the file with the rows that were not loaded."""
    return file.with_name(f"{file.name}{LEFT_OUT}")


def require_column(lake: Lake, reference: str | None) -> None:
    """Check that the column with the payments' own references is declared.

    Raises:
        UsageError: it is not.
    """
    if reference is not None and reference not in lake.settings.columns:
        declared = ", ".join(lake.settings.columns) or "none"
        raise UsageError(f"--reference {reference} is not a declared column: the lake has {declared}")


def _is_by_reference(rows: pa.Table) -> pa.ChunkedArray:
    has_id = pc.is_valid(pc.coalesce(*(rows[name] for name in IDS)))
    return pc.and_not(pc.is_valid(rows[REFERENCE]), has_id)


def _write_left_out(
    file: Path,
    content: verdict_file.VerdictFile,
    left_out: NDArray[np.int64],
    is_ambiguous: NDArray[np.bool_],
    encoding: str | None,
) -> None:
    """Write the rows that were not loaded, in the encoding of the file; delete those of an earlier load."""
    place = left_out_file(file)
    try:
        if not len(left_out):
            place.unlink(missing_ok=True)
            return
        by_reference = _is_by_reference(content.rows).to_pylist()
        problems = [_AMBIGUOUS[by_reference[at]] if is_ambiguous[at] else _UNKNOWN for at in left_out]
        rows = content.texts.take(pa.array(left_out)).append_column(PROBLEM, pa.array(problems, pa.string()))
        texts = pa.table([column.cast(pa.string()) for column in rows.columns], rows.column_names)
        written = pa.BufferOutputStream()
        pa.csv.write_csv(texts, written)
        place.write_bytes(written.getvalue().to_pybytes().decode().encode(encoding or "utf-8"))
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UsageError(f"{place}: {reason}: it is for the rows that are not loaded") from None


def _insert(lake: Lake, new: pa.Table) -> int:
    """Insert verdicts that the table lacks; return their number.

    In a workspace no lock excludes other processes, which may insert the same verdict; it still counts once.
    """
    if not len(new):
        return 0
    with lake.exclusive("verdicts"):
        lacking = _lacking(new, disputed.verdicts_on(lake, new.select(["transaction_id"])))
        if len(lacking):
            lake.writer(tables.SILVER_VERDICTS).write(lacking, "append")
    return len(lacking)


def _lacking(new: pa.Table, existing: pa.Table) -> pa.Table:
    """Return the verdicts that are not known, and date those of one instant a microsecond apart, in the order of rows.

    Among verdicts of one instant, fraud would win (:func:`fraudlake.silver.verdicts.latest`), whatever their order. So
    a verdict that differs from the previous one is dated a microsecond later.

    Args:
        new: ``transaction_id``, ``decided_at``, ``verdict``, ``analyst`` and other columns.
        existing: the same four of all verdicts on these transactions.
    """
    keys = _in_microseconds(new)
    existing = _in_microseconds(existing)
    instants = keys.group_by(_INSTANT).aggregate([([], "count_all")])
    repeated = instants.filter(pc.greater(instants["count_all"], 1)).select(_INSTANT)
    shared = pa.concat_tables([repeated, existing.select(_INSTANT)]).group_by(_INSTANT).aggregate([])
    numbered = keys.append_column("nth", pa.array(np.arange(len(keys))))
    tied = numbered.join(shared, list(_INSTANT), join_type="left semi").sort_by("nth")
    of_tied = existing.join(tied.select(["transaction_id"]), "transaction_id", join_type="left semi")
    times = keys["decided_at"].to_numpy().copy()
    is_new = np.ones(len(new), bool)
    times[tied["nth"]], is_new[tied["nth"]] = _untied(tied, of_tied)
    at = new.column_names.index("decided_at")
    dated = pa.array(times).cast(new.schema.field(at).type)
    return new.set_column(at, new.schema.field(at), dated).filter(pa.array(is_new))


def _untied(tied: pa.Table, existing: pa.Table) -> tuple[list[int], list[bool]]:
    """Return the time (microseconds) of each verdict, and whether it is new.

    Verdicts that follow each other by a microsecond belong to one instant. A row of a file is known if it equals one of
    them, and that one is not before the match of an earlier row.
    """
    there: defaultdict[tuple[str, int], set[tuple[bool, str | None]]] = defaultdict(set)
    for transaction, decided_at, *verdict in _tuples(existing):
        there[transaction, decided_at].add(tuple(verdict))
    last: dict[tuple[str, int], int] = {}
    times = []
    is_new = []
    for transaction, decided_at, *verdict in _tuples(tied):
        time = last.get((transaction, decided_at), decided_at)
        while tuple(verdict) not in there[transaction, time] and (transaction, time + 1) in there:
            time += 1
        present = there[transaction, time]
        is_new.append(tuple(verdict) not in present)
        if is_new[-1] and present and any(is_fraud for is_fraud, _ in present) != verdict[0]:
            time += 1
        there[transaction, time].add(tuple(verdict))
        last[transaction, decided_at] = time
        times.append(time)
    return times, is_new


def _in_microseconds(rows: pa.Table) -> pa.Table:
    columns = {name: rows[name] for name in _KEYS}
    return pa.table({**columns, "decided_at": rows["decided_at"].cast(pa.int64())})


def _tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Return ``transaction_id, decided_at, verdict, analyst`` of rows."""
    return zip(*(rows[name].to_pylist() for name in _KEYS), strict=True)
