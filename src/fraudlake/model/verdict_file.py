"""Verdict file: reads decisions from CSV or parquet files, as people and programs write them.

Paths have no wildcards. CSV follows RFC 4180, with the delimiter that the header uses. A value that cannot be parsed is
an error that names its row, and then the whole file is refused.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fraudlake.bronze import parquet
from fraudlake.bronze.sizes import LARGEST_VALUE, TooLargeError
from fraudlake.errors import UsageError, file_reason
from fraudlake.settings.disputes import IDS, NAMES, PAYMENT, REFERENCE, Format
from fraudlake.sources import landing
from fraudlake.text import text_file

_FRAUD = ("true", "1", "yes", "fraud")
_GENUINE = ("false", "0", "no", "ok", "genuine")
_QUOTED = re.compile(r'"[^"]*"')
_HEAD = 100_000
"""The number of characters within which the header must end."""
PROBLEM = "problem"
"""The additional field of a file of left-out rows; it is ignored when such a file is read."""
_WHOLE = r"^-?\d+\.0$"
"""A whole number as pandas writes it in a column with missing values."""
_ROUNDED = r"^-?\d(\.\d+)?[eE]\+\d+$"
"""A large number as pandas and spreadsheets write it."""
_MOST_EXACT = 2**53
"""Whole numbers up to this one are exact as doubles."""
_MOST_BYTES = 2 << 30
"""The largest size of a parquet file's rows in memory, in bytes; even a file of kilobytes can expand to it."""
_AMOUNT = r"^[+-]?(\d+(\.\d+)?|\d+,\d{1,2})$"
_ONE_NAME = f"{', '.join(IDS)} or {REFERENCE}, or {', '.join(PAYMENT[:-1])} and {PAYMENT[-1]}"


@dataclass(frozen=True)
class VerdictFile:
    """``texts``: the rows of the file as texts, and ``rows``: :data:`NAMES`, null if blank, in the same order.

    ``verdict`` is a boolean, ``decided_at`` and ``timestamp`` are timestamps (UTC), ``amount`` is a double, and all
    others are texts. The columns :data:`PAYMENT` are null in rows that have an id or a reference.
    """

    texts: pa.Table
    rows: pa.Table


@dataclass(frozen=True)
class _Raw:
    """A file's unparsed rows, with the number of each in the file."""

    file: Path
    table: pa.Table
    numbers: Sequence[int]

    def column(self, name: str, of: Format) -> pa.ChunkedArray:
        source = of.map.get(name, name)
        has_it = source in self.table.column_names
        return self.table[source] if has_it else pa.chunked_array([pa.nulls(len(self.table), pa.string())])

    def row(self, at: int) -> str:
        """Return the name of a row in messages."""
        return f"{self.file}: row {self.numbers[at]}"


def read(file: Path, of: Format, largest_value: int = LARGEST_VALUE) -> VerdictFile:
    """Read a file.

    Args:
        file: the file.
        of: its format.
        largest_value: the largest size of a parquet value, in bytes.

    Raises:
        UsageError: it cannot be read, lacks a field, has a value that cannot be parsed or is too large, or changed
            while it was read.
    """
    before = _state(file)
    try:
        is_parquet = file.suffix.lower() == ".parquet" or file.is_dir()
        raw = _parquet(file, largest_value) if is_parquet else _csv(file, of.encoding)
        if _state(file) != before:
            raise UsageError(f"{file}: changed while it was read: load it again when it is finished")
        written = max(nanoseconds for _, nanoseconds, _ in before) // 10**9
        rows = _rows(raw, of, datetime.fromtimestamp(written, UTC))
    except OSError as error:
        raise UsageError(f"{file}: {file_reason(error)}") from None
    except TooLargeError as error:
        raise UsageError(f"{file}: {error}") from None
    except pa.ArrowException as error:
        raise UsageError(f"{file}: cannot be read: {str(error).splitlines()[0]}") from None
    texts = raw.table.drop_columns([PROBLEM]) if PROBLEM in raw.table.column_names else raw.table
    return VerdictFile(texts, rows)


def version(file: Path) -> str:
    """Return a text that changes if a file, or any file of a folder, changes.

    Raises:
        UsageError: it does not exist, or access is denied.
    """
    state = [(str(path.relative_to(file)), modified, size) for path, modified, size in _state(file)]
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _state(file: Path) -> list[tuple[Path, int, int]]:
    """Return the path, time (nanoseconds) and size of a file, or of each file of a folder."""
    try:
        return [(path, status.st_mtime_ns, status.st_size) for path in _files(file) for status in (path.stat(),)]
    except OSError as error:
        raise UsageError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None


def _files(file: Path) -> list[Path]:
    """Return a file, or the finished files of a folder; links to a parent folder are not followed."""
    if not file.is_dir():
        return [file]
    return sorted(Path(one.path) for one in landing.files(str(file)) if one.size is not None)


def _parquet(file: Path, largest_value: int) -> _Raw:
    if not (files := _files(file)):
        raise UsageError(f"{file}: is a folder without files: name one file, or a folder of parquet files")
    parts = []
    size = 0
    number = 1
    for one in files:
        for batch in parquet.measured(str(one), largest_value, number):
            _require_once(file, batch.schema.names)
            part = pa.table([*map(_plain, batch.columns)], batch.schema.names)
            parts.append(part)
            number = number + len(part)
            size = size + part.nbytes
            if size > _MOST_BYTES:
                raise TooLargeError(f"its rows have more than {_MOST_BYTES >> 20:,} MiB: load it in smaller files")
    rows = pa.concat_tables(parts or [pq.read_schema(files[0]).empty_table()], promote_options="permissive")
    columns = rows.columns
    for nth, (name, column) in enumerate(zip(rows.column_names, columns, strict=True)):
        try:
            # Decode bytes at once, since they need not be UTF-8.
            columns[nth] = column.cast(pa.string()) if pa.types.is_binary(column.type) else column
            column.slice(0, 0).cast(pa.string())
        except pa.ArrowException:
            kind = column.type
            raise UsageError(f"{file}: the field {name} is {kind}: leave it out, or write it as a text") from None
    return _Raw(file, pa.table(columns, rows.column_names), range(1, len(rows) + 1))


def _require_once(file: Path, names: Sequence[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"{file}: has the field {twice[0]} twice")


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _csv(file: Path, encoding: str | None) -> _Raw:
    """Read CSV; rows are numbered as in a spreadsheet: the header is row 1, and blank rows count."""
    text = _decoded(file, file.read_bytes(), encoding)
    head = _QUOTED.sub("", text[:_HEAD].lstrip()).partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    numbered: list[tuple[int, list[str]]] = []
    number = 0
    try:
        for number, row in enumerate(reader, 1):
            if any(map(str.strip, row)):
                numbered.append((number, row))
    except csv.Error as error:
        if "field limit" not in str(error):
            raise UsageError(f"{file}: line {reader.line_num}: {error}") from None
        most = csv.field_size_limit()
        raise UsageError(
            f"{file}: row {number + 1} has a field of more than {most:,} characters: end its quotes, or shorten it"
        ) from None
    header = [name.strip() for name in numbered[0][1]] if numbered else []
    _require_once(file, header)
    for number, row in numbered[1:]:
        if len(row) != len(header):
            raise UsageError(f"{file}: row {number} has {len(row)} fields, and the header {len(header)}")
    columns = [pa.array(column, pa.string()) for column in zip(*(row for _, row in numbered[1:]), strict=True)]
    table = pa.table(columns or [pa.array([], pa.string())] * len(header), header)
    return _Raw(file, table, [number for number, _ in numbered[1:]])


def _decoded(file: Path, content: bytes, encoding: str | None) -> str:
    try:
        return text_file.decoded(content, encoding)
    except UnicodeDecodeError as error:
        advice = "name another with --encoding" if encoding else "name its encoding, such as --encoding cp1252"
        raise UsageError(f"{file}: is not {error.encoding} at byte {error.start}: {advice}") from None
    except LookupError:
        raise UsageError(f"--encoding {encoding} is not an encoding that Python knows") from None


def _rows(raw: _Raw, of: Format, written: datetime) -> pa.Table:
    _require_fields(raw, of)
    columns: dict[str, pa.Array] = {name: _ids(raw, name, raw.column(name, of)) for name in (*IDS, REFERENCE)}
    lacks_id = pc.is_null(pc.coalesce(*columns.values()))
    columns |= _payment(raw, of, lacks_id)
    lacks_any = pc.and_(lacks_id, pc.is_null(columns[PAYMENT[0]]))
    if (nameless := pc.index(lacks_any, True).as_py()) >= 0:
        raise UsageError(f"{raw.row(nameless)}: names no payment: give {_ONE_NAME}")
    columns |= {name: _text(raw.column(name, of)) for name in ("analyst", "reason")}
    decided_at = _times(raw, "decided_at", raw.column("decided_at", of), of.date_pattern)
    columns["decided_at"] = decided_at.fill_null(pa.scalar(written, decided_at.type))
    columns["verdict"] = _verdicts(raw, of)
    return pa.table({name: columns[name] for name in NAMES})


def _require_fields(raw: _Raw, of: Format) -> None:
    names = raw.table.column_names
    if missing := [source for source in of.map.values() if source not in names]:
        raise UsageError(f"{raw.file}: has no field {missing[0]}, which --map names: it has {', '.join(names)}")
    has = {name for name in NAMES if of.map.get(name, name) in names}
    if of.verdict is not None and "verdict" in has:
        raise UsageError(f"{raw.file}: has a verdict in each row: leave out --verdict {of.verdict}")
    if not (has & {*IDS, REFERENCE} or has >= {*PAYMENT}) or not ("verdict" in has or of.verdict):
        raise UsageError(f"{raw.file}: needs the columns verdict, and {_ONE_NAME}")


def _payment(raw: _Raw, of: Format, lacks_id: pa.Array) -> dict[str, pa.Array]:
    """Return :data:`PAYMENT` of the rows that identify their payment by nothing else."""
    parts = {name: raw.column(name, of) for name in PAYMENT}
    if not pc.any(lacks_id).as_py():
        parts = {name: pa.chunked_array([pa.nulls(len(lacks_id), pa.string())]) for name in PAYMENT}
    used = {name: pc.if_else(lacks_id, part, pa.scalar(None, part.type)) for name, part in parts.items()}
    pattern = of.timestamp_pattern or of.date_pattern
    columns = {
        "account_id": _ids(raw, "account_id", used["account_id"]),
        "amount": _amounts(raw, used["amount"]),
        "timestamp": _times(raw, "timestamp", used["timestamp"], pattern, "--timestamp-pattern"),
    }
    is_present = np.array([part.is_valid().to_numpy(zero_copy_only=False) for part in columns.values()])
    for at in np.flatnonzero(is_present.any(axis=0) & ~is_present.all(axis=0))[:1]:
        raise UsageError(f"{raw.row(at)}: has no {PAYMENT[is_present[:, at].argmin()]}")
    return columns


def _ids(raw: _Raw, name: str, column: pa.ChunkedArray) -> pa.Array:
    """Return ids as texts; ids that a program wrote as doubles are restored if no digit is lost."""
    if pa.types.is_floating(column.type):
        # Whole numbers up to this one are exact, in single and half precision, too.
        most_exact = 2 ** (np.finfo(column.type.to_pandas_dtype()).nmant + 1)
        column = column.cast(pa.float64())
        doubles = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column).combine_chunks()
        is_exact = pc.and_(pc.equal(pc.floor(doubles), doubles), pc.less(pc.abs(doubles), most_exact))
        _require_exact(raw, name, doubles, is_exact)
        return doubles.cast(pa.int64()).cast(pa.string())
    texts = _text(column)
    _require_exact(raw, name, texts, pc.invert(pc.match_substring_regex(texts, _ROUNDED)))
    if texts.null_count == len(texts) or not pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py():
        return texts
    whole = pc.utf8_slice_codeunits(texts, 0, -2)
    _require_exact(raw, name, texts, pc.less(pc.utf8_length(whole), len(str(_MOST_EXACT))))
    return whole


def _require_exact(raw: _Raw, name: str, values: pa.Array, is_exact: pa.Array) -> None:
    if (at := pc.index(is_exact, False).as_py()) >= 0:
        value = values[at].as_py()
        raise UsageError(f"{raw.row(at)}: {name} {value} is a number that may have lost digits: write ids as text")


def _text(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as texts; blank values become null."""
    texts = column.cast(pa.string())
    blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
    return pc.if_else(blank, pa.scalar(None, pa.string()), texts).combine_chunks()


def _amounts(raw: _Raw, column: pa.ChunkedArray) -> pa.Array:
    """Return amounts as doubles; a text may have a decimal comma, and no separator of thousands."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column.cast(pa.float64()).combine_chunks()
    texts = pc.utf8_trim_whitespace(_text(column))
    if (at := pc.index(pc.match_substring_regex(texts, _AMOUNT), False).as_py()) >= 0:
        raise UsageError(f"{raw.row(at)}: amount '{texts[at].as_py()}' is not an amount such as 1234.50")
    return pc.replace_substring(texts, ",", ".").cast(pa.float64())


def _verdicts(raw: _Raw, of: Format) -> pa.Array:
    if of.verdict is not None:
        return pa.array(np.full(len(raw.table), of.verdict == "fraud"))
    texts = _text(raw.column("verdict", of))
    words = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    is_fraud, is_genuine = (pc.is_in(words, pa.array(meaning)) for meaning in (_FRAUD, _GENUINE))
    unclear = pc.index(pc.or_(is_fraud, is_genuine), False).as_py()
    if unclear >= 0:
        raise UsageError(f"{raw.row(unclear)}: verdict '{texts[unclear].as_py() or ''}' must be true or false")
    return is_fraud


def _times(
    raw: _Raw, name: str, column: pa.ChunkedArray, pattern: str | None, flag: str = "--date-pattern"
) -> pa.Array:
    """Return times in UTC; blank values become null."""
    kind = pa.timestamp("us", "UTC")
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(kind).combine_chunks()
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("us")).cast(kind).combine_chunks()
    texts = _text(column)
    distinct = texts.unique().drop_null().to_pylist()
    parsed = {text: _time(text, pattern) for text in distinct}
    if wrong := next((text for text, time in parsed.items() if time is None), None):
        wanted = pattern or f"YYYY-MM-DD or YYYY-MM-DD HH:MM:SS; {flag} names another"
        row = raw.row(pc.index(texts, wrong).as_py())
        raise UsageError(f"{row}: {name} '{wrong}' does not match the date pattern {wanted}")
    times = pa.array([parsed[text] for text in distinct], kind)
    return times.take(pc.index_in(texts, pa.array(distinct, pa.string())))


def _time(text: str, pattern: str | None) -> datetime | None:
    parse: Callable[[str], datetime] = datetime.fromisoformat
    try:
        time = datetime.strptime(text.strip(), pattern) if pattern else parse(text.strip())
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
