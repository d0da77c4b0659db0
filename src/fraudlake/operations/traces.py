"""Traces: the files of a lake are decoded and searched for accounts."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_DISTINCTIVE = 4


class Search:
    """Searches values, texts and bytes for accounts.

    A cell of a table that equals an account is a trace. So is a text or file that holds the account as a word, where
    that has letters and four characters at least. A shorter one, or a number, may stand for something else; there it
    must be in quotes, or follow the word account.

    Args:
        accounts: the accounts.
    """

    def __init__(self, accounts: Sequence[str]) -> None:
        """Prepare the search."""
        self.accounts = pa.array(accounts, pa.string())
        # Without lookarounds: Arrow's expressions have none.
        self.pattern = "|".join(map(pattern, accounts))
        self._bytes = re.compile(self.pattern.encode(), re.DOTALL)

    def in_file(self, path: Path) -> list[str]:
        """Return what of a file holds an account: columns of a parquet file, members of a zip file, or its bytes."""
        try:
            with path.open("rb") as file:
                begin = file.read(4)
            if begin == b"PAR1":
                return self._columns(path)
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive:
                    return [name for name in archive.namelist() if self._bytes.search(archive.read(name))]
        except (OSError, pa.ArrowException, zipfile.BadZipFile):
            pass  # it is searched as bytes
        return ["bytes"] if self._bytes.search(path.read_bytes()) else []

    def is_in(self, values: pa.Array | pa.ChunkedArray) -> bool:
        """Tell whether an account is among values, nested ones included, or within a text of them."""
        return any(self._is_in(leaf) for leaf in _leaves(values))

    def _columns(self, path: Path) -> list[str]:
        with pq.ParquetFile(path) as file:
            names = {
                name
                for batch in file.iter_batches()
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
                if self.is_in(column)
            }
        return sorted(names)

    def _is_in(self, leaf: pa.Array) -> bool:
        if pa.types.is_binary(leaf.type) or pa.types.is_large_binary(leaf.type):
            return any(value is not None and self._bytes.search(value) for value in leaf.to_pylist())
        if not (pa.types.is_string(leaf.type) or pa.types.is_large_string(leaf.type)):
            return False
        texts = leaf.cast(pa.string())
        matches = pc.or_(pc.is_in(texts, self.accounts), pc.match_substring_regex(texts, f"(?s){self.pattern}"))
        return bool(pc.any(matches).as_py())


def pattern(account: str) -> str:
    """Return the regular expression of a text that names an account; for Python, Java and RE2."""
    escaped = re.escape(account)
    if len(account) >= _DISTINCTIVE and re.search("[A-Za-z]", account):
        return f"(^|[^0-9A-Za-z]){escaped}($|[^0-9A-Za-z])"
    return f"""["']{escaped}["']|[Aa]ccount(Id|_id|)[^0-9A-Za-z]{{1,4}}{escaped}($|[^0-9A-Za-z])"""


def files(folders: Iterable[Path]) -> Iterator[Path]:
    """List the files below folders, each once."""
    yield from sorted({path for folder in folders for path in folder.rglob("*") if path.is_file()})


def _leaves(values: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Return the values of a column that are not nested."""
    if isinstance(values, pa.ChunkedArray):
        for chunk in values.chunks:
            yield from _leaves(chunk)
    elif pa.types.is_dictionary(values.type):
        yield from _leaves(values.dictionary_decode())
    elif pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _leaves(field)
    elif pa.types.is_map(values.type):
        yield from _leaves(values.keys)
        yield from _leaves(values.items)
    elif pa.types.is_nested(values.type):
        yield from _leaves(values.flatten())
    else:
        yield values
