"""Table files that a user names: reads the rows of CSV or parquet files as programs and spreadsheets write them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from fraudlake.errors import UsageError


def read(file: Path) -> pa.Table:
    """Return the rows of a file.

    CSV has a header, which says the delimiter (comma, semicolon or tab), and its values are texts; parquet has types.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return pq.read_table(file) if file.suffix.lower() == ".parquet" else _csv(file)
    except OSError as error:
        raise UsageError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except pa.ArrowException as error:
        raise UsageError(f"{file}: cannot be read: {str(error).splitlines()[0]}") from None


def _csv(file: Path) -> pa.Table:
    with file.open(encoding="utf-8-sig", errors="replace") as opened:
        header = opened.readline()
    parse = pa_csv.ParseOptions(delimiter=max(",;\t", key=header.count))
    texts = dict.fromkeys(pa_csv.open_csv(file, parse_options=parse).schema.names, pa.string())
    convert = pa_csv.ConvertOptions(column_types=texts, strings_can_be_null=False)
    return pa_csv.read_csv(file, parse_options=parse, convert_options=convert)
