"""Verdict file: a CSV or parquet file of decisions, as people and programs write them, becomes an Arrow table.

The path is literal. CSV is that of RFC 4180, with the delimiter of its header. A value that cannot be understood is an
error with its row, and nothing of the file is used.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fraudlake.errors import UsageError
from fraudlake.silver.verdicts import IDS

REFERENCE = "reference"
"""The field with the payment's own reference, which a declared column has, too."""
NAMES = (*IDS, REFERENCE, "verdict", "analyst", "reason", "decided_at")
"""The fields that a file may have."""
_FRAUD, _GENUINE = ("true", "1", "yes", "fraud"), ("false", "0", "no", "ok", "genuine")
_QUOTED = re.compile(r'"[^"]*"')
_HEAD = 100_000
"""The number of characters among which the header ends."""
PROBLEM = "problem"
"""The field that a file of rows that were not loaded has in addition; it is none of the rows' own."""
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_FIRST_ROW = 2
"""The number of the first row, as a spreadsheet counts: the header is row 1."""


@dataclass(frozen=True)
class Format:
    """How a file is to be read, where it does not say so itself."""

    fields: Mapping[str, str] = field(default_factory=dict)
    """The file's fields by :data:`NAMES`; others have these names themselves."""
    verdict: str | None = None
    """The verdict of all rows."""
    encoding: str | None = None
    """That of a CSV file; by default UTF-8, or UTF-16 if the file begins with its mark."""
    date_pattern: str | None = None
    """The pattern of ``decided_at``, as ``strptime`` has it; by default ISO 8601. Times without a zone are UTC."""


@dataclass(frozen=True)
class VerdictFile:
    """``given``: the rows of the file as texts, and ``rows``: :data:`NAMES`, null if blank, in the same order.

    ``verdict`` is a boolean, ``decided_at`` a timestamp (UTC), and all others are texts.
    """

    given: pa.Table
    rows: pa.Table


def read(file: Path, of: Format) -> VerdictFile:
    """Read a file.

    Raises:
        UsageError: it cannot be read, lacks a field, has a value that cannot be understood, or changed meanwhile.
    """
    before = _state(file)
    try:
        is_parquet = file.suffix == ".parquet" or file.is_dir()
        given = _parquet(file) if is_parquet else _csv(file, of.encoding)
    except OSError as error:
        raise UsageError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except pa.ArrowException as error:
        raise UsageError(f"{file}: cannot be read as parquet: {str(error).splitlines()[0]}") from None
    if _state(file) != before:
        raise UsageError(f"{file}: changed while it was read: load it again when it is finished")
    given = given.drop_columns([PROBLEM]) if PROBLEM in given.column_names else given
    return VerdictFile(given, _rows(file, given, of, datetime.fromtimestamp(before[0] // 10**9, UTC)))


def _state(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError as error:
        raise UsageError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None
    return status.st_mtime_ns, status.st_size


def _parquet(file: Path) -> pa.Table:
    rows = pq.read_table(file, partitioning=None)
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in rows.columns
    ]
    for name, column in zip(rows.column_names, columns, strict=True):
        if pa.types.is_nested(column.type):
            raise UsageError(f"{file}: the field {name} is nested ({column.type}): leave it out, or write it as a text")
    return pa.table(columns, rows.column_names)


def _csv(file: Path, encoding: str | None) -> pa.Table:
    text = _decoded(file, file.read_bytes(), encoding)
    head = _QUOTED.sub("", text[:_HEAD]).partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise UsageError(f"{file}: line {reader.line_num}: {error}") from None
    header = [name.strip() for name in rows[0]] if rows else []
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise UsageError(f"{file}: has the field {twice[0]} twice")
    for number, row in enumerate(rows[1:], _FIRST_ROW):
        if len(row) != len(header):
            raise UsageError(f"{file}: row {number} has {len(row)} fields, and the header {len(header)}")
    columns = [pa.array(column, pa.string()) for column in zip(*rows[1:], strict=True)]
    return pa.table(columns or [pa.array([], pa.string())] * len(header), header)


def _decoded(file: Path, content: bytes, encoding: str | None) -> str:
    marked = next((name for mark, name in _BOMS.items() if content.startswith(mark)), "utf-8")
    try:
        return content.decode(encoding or marked)
    except UnicodeDecodeError as error:
        advice = "name another with --encoding" if encoding else "name its encoding, such as --encoding cp1252"
        raise UsageError(f"{file}: is not {error.encoding} at byte {error.start}: {advice}") from None
    except LookupError:
        raise UsageError(f"--encoding {encoding} is no encoding that Python knows") from None


def _rows(file: Path, given: pa.Table, of: Format, written: datetime) -> pa.Table:
    _require_fields(file, given.column_names, of)
    columns = {name: _field(given, of.fields.get(name, name)) for name in NAMES}
    texts = {name: _text(column) for name, column in columns.items()}
    ids = [texts[name] for name in (*IDS, REFERENCE)]
    if pc.any(pc.is_null(pc.coalesce(*ids))).as_py():
        raise UsageError(f"{file}: a verdict has no transaction_id, alert_id or case_id")
    if of.verdict is not None:
        texts["verdict"] = pa.array([of.verdict] * len(given), pa.string())
    verdict = _verdicts(file, texts["verdict"], pc.coalesce(*ids))
    decided_at = _times(file, columns["decided_at"], of).fill_null(pa.scalar(written, pa.timestamp("us", "UTC")))
    return pa.table({**texts, "verdict": verdict, "decided_at": decided_at})


def _require_fields(file: Path, names: Sequence[str], of: Format) -> None:
    if missing := [source for source in of.fields.values() if source not in names]:
        raise UsageError(f"{file}: has no field {missing[0]}, which --map names: it has {', '.join(names)}")
    has = {name for name in NAMES if of.fields.get(name, name) in names}
    if of.verdict is not None and "verdict" in has:
        raise UsageError(f"{file}: has a verdict in each row: leave out --verdict {of.verdict}")
    if not has & {*IDS, REFERENCE} or not ("verdict" in has or of.verdict):
        raise UsageError(f"{file}: needs the columns verdict, and transaction_id, alert_id or case_id")


def _field(given: pa.Table, name: str) -> pa.ChunkedArray:
    return given[name] if name in given.column_names else pa.chunked_array([pa.nulls(len(given), pa.string())])


def _text(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as texts; what is blank is null."""
    if pa.types.is_timestamp(column.type):
        return pa.nulls(len(column), pa.string())
    texts = column.cast(pa.string())
    blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
    return pc.if_else(blank, pa.scalar(None, pa.string()), texts).combine_chunks()


def _verdicts(file: Path, texts: pa.Array, ids: pa.Array) -> pa.Array:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    is_fraud, is_genuine = (pc.is_in(words, pa.array(known)) for known in (_FRAUD, _GENUINE))
    unclear = pc.index(pc.or_(is_fraud, is_genuine), False).as_py()
    if unclear >= 0:
        raise UsageError(f"{file}: the verdict on {ids[unclear].as_py()} must be true or false")
    return is_fraud


def _times(file: Path, column: pa.ChunkedArray, of: Format) -> pa.Array:
    """Return times in UTC; what is blank is null."""
    kind = pa.timestamp("us", "UTC")
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(kind).combine_chunks()
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("us")).cast(kind).combine_chunks()
    texts = _text(column)
    known = texts.unique().drop_null().to_pylist()
    parsed = {text: _time(text, of.date_pattern) for text in known}
    if wrong := next((text for text, time in parsed.items() if time is None), None):
        row = pc.index(texts, wrong).as_py() + _FIRST_ROW
        pattern = of.date_pattern or "YYYY-MM-DD or YYYY-MM-DD HH:MM:SS; --date-pattern names another"
        raise UsageError(f"{file}: row {row}: decided_at '{wrong}' is no date of the pattern {pattern}")
    times = pa.array([parsed[text] for text in known], kind)
    return times.take(pc.index_in(texts, pa.array(known, pa.string())))


def _time(text: str, pattern: str | None) -> datetime | None:
    parse: Callable[[str], datetime] = datetime.fromisoformat
    try:
        time = datetime.strptime(text.strip(), pattern) if pattern else parse(text.strip())
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
