"""Table files that a user names: reads the rows of CSV or parquet files as programs and spreadsheets write them."""

from __future__ import annotations

import codecs
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from fraudlake.errors import UsageError, file_reason


def read(file: Path) -> pa.Table:
    """Return the rows of a file.

    CSV has a header, which says the delimiter (comma, semicolon or tab), and its values are texts; parquet has types.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return pq.read_table(file) if file.suffix.lower() == ".parquet" else _csv(file)
    except OSError as error:
        raise UsageError(f"{file}: {file_reason(error)}") from None
    except pa.ArrowException as error:
        raise UsageError(f"{file}: cannot be read: {str(error).splitlines()[0]}") from None


def texts(file: Path, rows: pa.Table, name: str) -> pa.Array:
    """Return a column of a file as texts without spaces around them; null becomes an empty text.

    Raises:
        UsageError: the column is there twice, or its values are no texts and cannot be written as such.
    """
    if rows.column_names.count(name) != 1:
        raise UsageError(f"{file}: has the column {name} {rows.column_names.count(name)} times: leave one")
    column = rows[name].combine_chunks()
    try:
        return pc.utf8_trim_whitespace(column.cast(pa.string()).fill_null(""))
    except pa.ArrowException:
        raise UsageError(f"{file}: the column {name} is of {column.type}: its values must be texts") from None


def _csv(file: Path) -> pa.Table:
    with file.open("rb") as opened:
        is_utf16 = opened.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if is_utf16:
        raise UsageError(f"{file}: is UTF-16: save it as CSV in UTF-8")
    with file.open(encoding="utf-8-sig", errors="replace") as opened:
        header = opened.readline()
    parse = pa_csv.ParseOptions(delimiter=max(",;\t", key=header.count))
    texts = dict.fromkeys(pa_csv.open_csv(file, parse_options=parse).schema.names, pa.string())
    convert = pa_csv.ConvertOptions(column_types=texts, strings_can_be_null=False)
    return pa_csv.read_csv(file, parse_options=parse, convert_options=convert)
