"""Traces: decodes the files of a lake and searches them for accounts."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_DISTINCTIVE = 4
_NUMBERED = {"model", "model_version", "measures", "metaData"}
"""Columns, and an action of a table's log, whose texts may be numbers other than accounts."""
_MODEL = "classifier.json"
"""A model's file, full of numbers in quotes."""
_NUMBERS = re.compile(
    rb'\\*"(operationMetrics|configuration|conf|measures)\\*":\{[^}]*\}|\\*"model_version\\*":\\*"[^"\\]*\\*"'
)
"""Places of quoted numbers that are not accounts: figures of a commit, properties, Spark's settings, and others."""
_PARTITIONS = re.compile(rb'"\d+":')
"""Numbers of a topic's partitions in the offsets of a stream."""


class Search:
    """A search for accounts in values, texts and bytes.

    A cell of a table that equals an account is a trace. So is a text or file that contains the account as a word, if
    it has letters and at least four characters. A shorter account, or a number, may mean something else: in a text it
    must be in quotes or follow the word account, and texts with the lake's own numbers are not searched for it.

    Args:
        accounts: the accounts.
    """

    def __init__(self, accounts: Sequence[str]) -> None:
        """Prepare the search."""
        # Arrow's expressions support no lookarounds.
        self.pattern = "|".join(map(pattern, accounts))
        self._kinds = [
            _Kind(pa.array(some, pa.string()), "|".join(map(pattern, some)), is_distinctive)
            for is_distinctive in (True, False)
            if (some := [account for account in accounts if _is_distinctive(account) == is_distinctive])
        ]

    def in_file(self, path: Path) -> list[str]:
        """Return the parts of a file with an account: columns of a parquet file, members of a zip, or bytes."""
        try:
            with path.open("rb") as file:
                begin = file.read(4)
            if begin == b"PAR1":
                return self._columns(path)
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive:
                    return [name for name in archive.namelist() if self._is_in_bytes(archive.read(name))]
        except (OSError, pa.ArrowException, zipfile.BadZipFile):
            pass  # it is searched as bytes
        content = path.read_bytes()
        if path.parent.name == "offsets":
            content = _PARTITIONS.sub(b"", content)
        return ["bytes"] if self._is_in_bytes(content, is_numbered=path.name == _MODEL) else []

    def is_in(self, values: pa.Array | pa.ChunkedArray, name: str = "") -> bool:
        """Return whether an account is a value of a column, nested values included, or is named in a text of it."""
        return any(self._is_in(leaf, names) for leaf, names in _leaves(values, (name,)))

    def _columns(self, path: Path) -> list[str]:
        with pq.ParquetFile(path) as file:
            names = {
                name
                for batch in file.iter_batches()
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
                if self.is_in(column, name)
            }
        return sorted(names)

    def _is_in(self, leaf: pa.Array, names: tuple[str, ...]) -> bool:
        is_numbered = not _NUMBERED.isdisjoint(names)
        if pa.types.is_binary(leaf.type) or pa.types.is_large_binary(leaf.type):
            return any(value is not None and self._is_in_bytes(value, is_numbered) for value in leaf.to_pylist())
        if not (pa.types.is_string(leaf.type) or pa.types.is_large_string(leaf.type)):
            return False
        if "stats" in names:  # of a file, in a table's log
            return any(value is not None and self._is_in_bytes(value.encode()) for value in leaf.to_pylist())
        texts = leaf.cast(pa.string())
        return any(kind.is_in(texts) for kind in self._kinds if kind.is_distinctive or not is_numbered)

    def _is_in_bytes(self, content: bytes, is_numbered: bool = False) -> bool:
        for kind in self._kinds:
            if is_numbered and not kind.is_distinctive:
                continue
            searched = content if kind.is_distinctive else _NUMBERS.sub(b"", content)
            if re.search(kind.pattern.encode(), searched, re.DOTALL):
                return True
        return False


@dataclass(frozen=True)
class _Kind:
    """The accounts of a search whose names are distinctive, or those whose names are not."""

    accounts: pa.Array
    pattern: str
    is_distinctive: bool

    def is_in(self, texts: pa.Array) -> bool:
        matches = pc.or_(pc.is_in(texts, self.accounts), pc.match_substring_regex(texts, f"(?s){self.pattern}"))
        return bool(pc.any(matches).as_py())


def _is_distinctive(account: str) -> bool:
    return len(account) >= _DISTINCTIVE and re.search("[A-Za-z]", account) is not None


def pattern(account: str) -> str:
    """Return the regular expression, for Python, Java and RE2, of a text that names an account."""
    escaped = re.escape(account)
    if _is_distinctive(account):
        return f"(^|[^0-9A-Za-z]){escaped}($|[^0-9A-Za-z])"
    # A quote within a text of JSON has a backslash.
    return f"""["']{escaped}\\\\?["']|[Aa]ccount(Id|_id|)[^0-9A-Za-z]{{1,4}}{escaped}($|[^0-9A-Za-z])"""


def files(folders: Iterable[Path]) -> Iterator[Path]:
    """List the files below folders, each once."""
    yield from sorted({path for folder in folders for path in folder.rglob("*") if path.is_file()})


def _leaves(values: pa.Array | pa.ChunkedArray, names: tuple[str, ...]) -> Iterator[tuple[pa.Array, tuple[str, ...]]]:
    """Return the unnested values of a column, each with the names of its column and fields."""
    if isinstance(values, pa.ChunkedArray):
        for chunk in values.chunks:
            yield from _leaves(chunk, names)
    elif pa.types.is_dictionary(values.type):
        yield from _leaves(values.dictionary_decode(), names)
    elif pa.types.is_struct(values.type):
        for field, inner in zip(values.type, values.flatten(), strict=True):
            yield from _leaves(inner, (*names, field.name))
    elif pa.types.is_map(values.type):
        yield from _leaves(values.keys, names)
        yield from _leaves(values.items, names)
    elif pa.types.is_nested(values.type):
        yield from _leaves(values.flatten(), names)
    else:
        yield values, names
