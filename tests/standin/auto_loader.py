"""Auto Loader over Spark's own file source: its documented options (others are refused) and its table of files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fraudlake.sources.local_folder import ANY_AGE
from fraudlake.values import size_in_bytes

# Databricks' reference, "Auto Loader options", read 2026-11: what applies to files of any kind.
DOCUMENTED = {
    "cloudFiles.allowOverwrites",
    "cloudFiles.backfillInterval",
    "cloudFiles.cleanSource",
    "cloudFiles.cleanSource.moveDestination",
    "cloudFiles.cleanSource.retentionDuration",
    "cloudFiles.format",
    "cloudFiles.includeExistingFiles",
    "cloudFiles.inferColumnTypes",
    "cloudFiles.maxBytesPerTrigger",
    "cloudFiles.maxFileAge",
    "cloudFiles.maxFilesPerTrigger",
    "cloudFiles.partitionColumns",
    "cloudFiles.schemaEvolutionMode",
    "cloudFiles.schemaHints",
    "cloudFiles.schemaLocation",
    "cloudFiles.useManagedFileEvents",
    "cloudFiles.useNotifications",
    "cloudFiles.useStrictGlobber",
    "cloudFiles.validateOptions",
    "ignoreCorruptFiles",
    "ignoreMissingFiles",
    "modifiedAfter",
    "modifiedBefore",
    "pathGlobFilter",
    "recursiveFileLookup",
}
_GENERIC = ("pathGlobFilter", "recursiveFileLookup", "ignoreMissingFiles")
_STATE = re.compile(r"SELECT path FROM cloud_files_state\('([^']+)'\)")


class Reader:
    """What ``spark.readStream.format("cloudFiles")`` gives, for files of any kind."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._options = stream, {}  # type: ignore[var-annotated]

    def option(self, name: str, value: object) -> Reader:
        if name not in DOCUMENTED:
            raise ValueError(f"[CF_UNKNOWN_OPTION_KEYS_ERROR] Found unknown option keys: {name}")
        self._options[name] = str(value)
        return self

    def options(self, **options: object) -> Reader:
        for name, value in options.items():
            self.option(name, value)
        return self

    def load(self, path: str) -> Any:
        given = self._options
        if given.get("cloudFiles.format") != "binaryFile":
            raise NotImplementedError("only files of any kind: cloudFiles.format = binaryFile")
        source = _format(self._stream, "binaryFile").schema(
            "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
        )
        for name in _GENERIC:
            if name in given:
                source = source.option(name, given[name])
        size = given.get("cloudFiles.maxBytesPerTrigger")
        # Spark's own source takes a bare number of bytes, and one of the two bounds only.
        bound = (
            ("maxBytesPerTrigger", str(size_in_bytes(size)))
            if size
            else ("maxFilesPerTrigger", given["cloudFiles.maxFilesPerTrigger"])
        )
        return source.option("maxFileAge", ANY_AGE).option(*bound).load(path)


def _format(stream: Any, source: str) -> Any:
    return type(stream).format.__wrapped__(stream, source)


def install(stream_reader: type, session: type) -> None:
    """Give a kind of session Auto Loader and ``cloud_files_state``."""
    plain_format, plain_sql = stream_reader.format, session.sql  # type: ignore[attr-defined]

    def format(self: Any, source: str) -> Any:
        return Reader(self) if source == "cloudFiles" else plain_format(self, source)

    def sql(self: Any, query: str, *arguments: Any, **options: Any) -> Any:
        asked = _STATE.fullmatch(query.strip())
        if asked:
            return self.createDataFrame([(path,) for path in listed(Path(asked[1]))], "path STRING")
        return plain_sql(self, query, *arguments, **options)

    format.__wrapped__ = plain_format  # type: ignore[attr-defined]
    sql.__wrapped__ = plain_sql  # type: ignore[attr-defined]
    stream_reader.format, session.sql = format, sql  # type: ignore[attr-defined]


def listed(checkpoint: Path) -> Iterator[str]:
    """Read the paths that Spark's file source noted in a checkpoint: a version, then one JSON object a line."""
    paths = {
        json.loads(line)["path"]
        for log in (checkpoint / "sources" / "0").glob("[0-9]*")
        for line in log.read_text().splitlines()[1:]
    }
    return (unquote(path) for path in sorted(paths))
