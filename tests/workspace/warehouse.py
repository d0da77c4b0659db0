"""A SQL warehouse over a lake on this machine: the Statement Execution API as its documents and known answers show it.

Statements are carried out by DataFusion. Arrow comes through links to a storage that takes no credentials; rows of text
are as Spark writes them as JSON, so they have neither microseconds nor more than 25 MiB.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.lake import contents
from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import Settings
from tests import workspace_http
from tests.workspace_http import UNAUTHENTICATED, Reply, Request

ZONE = ZoneInfo("America/Los_Angeles")
"""The time zone of the warehouse's sessions."""
LIMIT = 25 << 20
"""Bytes of the largest answer that is not behind links."""
_TABLES = {table.name: table for table in contents.TABLES}
_MISSING = re.compile(r"WITH (?:\w+ AS \(SELECT [^()]*(?:CAST\([^()]*\)[^()]*)* WHERE false\),? )+")
_MERGE = re.compile(r"MERGE INTO (\w+) t USING \((.*)\) s ON (.*) WHEN NOT MATCHED THEN INSERT \*", re.DOTALL)
_REPLACE = re.compile(r"INSERT INTO (\w+) REPLACE WHERE (.*?) (SELECT \* FROM \(VALUES.*)", re.DOTALL)
_INSERT = re.compile(r"INSERT INTO (\w+) (SELECT \* FROM \(VALUES.*)", re.DOTALL)


@dataclass
class Warehouse:
    """What the warehouse does; a test changes it."""

    root: Path
    has_links: bool = True
    """Whether it gives answers behind links."""
    chunk: int = 1000
    """Rows of a part of an answer."""
    host: str = ""
    failure: str | None = None
    """Why every statement fails."""
    storage: int = 200
    """The status with which the storage answers."""
    groups: tuple[str, ...] = ("analysts",)
    statements: list[str] = field(default_factory=list)
    answers: dict[str, pa.Table] = field(default_factory=dict)
    """Answers by statement, instead of the lake's."""
    _parts: dict[str, tuple[str, list[pa.Table]]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def reply_to(self, request: Request) -> Reply:
        try:
            return self._reply_to(request)
        except Exception as error:
            return Reply(400, {"error_code": "INVALID_PARAMETER_VALUE", "message": f"{error!r} of {request}"})

    def _reply_to(self, request: Request) -> Reply:
        if match := re.fullmatch(r"/storage/(\w+)/(\d+)", request.path):
            assert not request.is_authorized and request.query == {"signature": "secret"}
            arrow = _arrow(self._parts[match[1]][1][int(match[2])])
            return Reply(self.storage, arrow if self.storage == 200 else "<Error>secret</Error>")
        if request.path.startswith(("/.well-known/", "/oidc/")):
            return Reply(404)
        if not request.is_authorized:
            return UNAUTHENTICATED
        if request.path == "/api/2.0/preview/scim/v2/Me":
            return Reply(200, {"groups": [{"display": name} for name in self.groups]})
        if request.path == "/api/2.0/sql/warehouses":
            return Reply(200, {"warehouses": [{"id": "w1", "name": "sql", "state": "RUNNING"}]})
        if match := re.fullmatch(r"/api/2\.0/fs/files/Volumes/main/fraud/(attachments/\w+)", request.path):
            return self._file(self.root / match[1], request)
        if request.path == "/api/2.0/sql/statements" and request.method == "POST":
            return self._execute(request.body)
        match = re.fullmatch(r"/api/2\.0/sql/statements/(\w+)/result/chunks/(\d+)", request.path)
        assert match and request.method == "GET", request
        return Reply(200, self._part(match[1], int(match[2])))

    def _file(self, file: Path, request: Request) -> Reply:
        """Write or read a file of a volume, which is a folder of the lake."""
        if request.method == "PUT":
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(request.data)
            return Reply(204)
        if not file.exists():
            return Reply(404, {"error_code": "NOT_FOUND", "message": f"{request.path} is not there"})
        return Reply(200, file.read_bytes(), (("Last-Modified", "Sat, 07 Mar 2026 12:00:00 GMT"),))

    def _execute(self, body: dict[str, Any]) -> Reply:
        assert (body["warehouse_id"], body["catalog"], body["schema"]) == ("w1", "main", "fraud")
        is_linked = body["disposition"] == "EXTERNAL_LINKS"
        assert body["format"] == ("ARROW_STREAM" if is_linked else "JSON_ARRAY")
        self.statements.append(body["statement"])
        if is_linked and not self.has_links:
            message = "ExternalLinks disposition is not yet implemented."
            return Reply(400, {"error_code": "INVALID_PARAMETER_VALUE", "message": message})
        if self.failure is not None:
            return _failed(self.failure)
        rows = self._carried_out(body["statement"])
        if not is_linked and rows.nbytes > LIMIT:
            return _failed(
                f"Inline byte limit exceeded. A result size of at most {LIMIT} bytes with disposition=INLINE"
            )
        id_ = f"s{next(self._numbers)}"
        parts = [rows.slice(start, self.chunk) for start in range(0, len(rows), self.chunk)]
        self._parts[id_] = ("links" if is_linked else "texts"), parts
        columns = [{"name": one.name, "type_text": type_text(one.type)} for one in rows.schema]
        return Reply(200, {
            "statement_id": id_,
            "status": {"state": "SUCCEEDED"},
            "manifest": {"schema": {"columns": columns}, "total_chunk_count": len(parts)},
            "result": self._part(id_, 0) if parts else {},
        })  # fmt: skip

    def _part(self, id_: str, number: int) -> dict[str, Any]:
        kind, parts = self._parts[id_]
        following = {"next_chunk_index": number + 1} if number + 1 < len(parts) else {}
        if kind == "texts":
            return {
                "data_array": [[text(one) for one in row.values()] for row in parts[number].to_pylist()],
                **following,
            }
        link = f"{self.host}/storage/{id_}/{number}?signature=secret"
        return {"external_links": [{"external_link": link, "chunk_index": number, **following}]}

    @cached_property
    def _store(self) -> LocalStore:
        return LocalStore(Settings(lake=self.root))

    def _carried_out(self, statement: str) -> pa.Table:
        if statement in self.answers:
            return self.answers[statement]
        if statement == "SHOW TABLES":
            named = [("fraud", path.name, "false") for path in sorted((self.root / "tables").iterdir())]
            return pa.table([*zip(*named, strict=True)], ["database", "tableName", "isTemporary"])
        store = self._store
        if match := _MERGE.fullmatch(statement):
            source = _source(store, match[2])
            if whole := re.fullmatch(r"t\.(\w+) IN \(.*\)", match[3]):
                store.insert_all(_TABLES[match[1]], source, whole[1])
            else:
                store.insert(_TABLES[match[1]], source, re.findall(r"t\.(\w+) = s\.\1", match[3]))
        elif match := _REPLACE.fullmatch(statement):
            store.replace(_TABLES[match[1]], _source(store, match[3]), match[2])
        elif match := _INSERT.fullmatch(statement):
            store.append(_TABLES[match[1]], _source(store, match[2]))
        else:
            asked = _MISSING.sub("", statement)
            if " panel LIMIT " in asked or not any(re.search(rf"\b{name}\b", asked) for name in _TABLES):
                return store.ask(asked, re.findall(r"\w+", asked))
            return store.query(asked, *(table for name, table in _TABLES.items() if re.search(rf"\b{name}\b", asked)))
        return pa.table({"num_affected_rows": [1]})


def _source(store: LocalStore, query: str) -> pa.Table:
    """Evaluate rows, whose lists DataFusion writes in another way."""
    return store.query(re.sub(r"\barray\(", "make_array(", query.replace("AS ARRAY<STRING>)", "AS VARCHAR[])")))


def _failed(message: str) -> Reply:
    error = {"error_code": "BAD_REQUEST", "message": message}
    return Reply(200, {"statement_id": "failed", "status": {"state": "FAILED", "error": error}})


def type_text(kind: pa.DataType) -> str:
    """A type as the manifest writes it."""
    if pa.types.is_list(kind):
        return f"ARRAY<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{one.name}: {type_text(one.type)}' for one in kind)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    names = {
        pa.string(): "STRING", pa.large_string(): "STRING", pa.binary(): "BINARY", pa.bool_(): "BOOLEAN",
        pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT", pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE", pa.date32(): "DATE", pa.null(): "VOID",
    }  # fmt: skip
    return names[kind]


def text(value: Any) -> str | None:
    """A value of a row of texts."""
    if value is None:
        return None
    plain = _json(value)
    return plain if isinstance(plain, str) else json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def _json(value: Any) -> Any:
    """A value in JSON, in which every part is a text; a list of pairs is a map."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case float() if value != value or abs(value) == float("inf"):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime(tzinfo=None):
            return value.isoformat(timespec="milliseconds")
        case datetime():
            return value.astimezone(ZONE).isoformat(timespec="milliseconds")
        case list() if value and all(isinstance(one, tuple) for one in value):
            return {_json(key): _json(part) for key, part in value}
        case list():
            return [_json(part) for part in value]
        case dict():
            return {name: _json(part) for name, part in value.items()}
        case str() | int() | float() | date() | Decimal():
            return str(value)
    raise TypeError(value)


def _arrow(rows: pa.Table) -> bytes:
    """Rows as a stream, with times in the zone of the session."""
    zoned = pa.timestamp("us", tz=str(ZONE))
    columns = [
        pc.cast(column, zoned) if pa.types.is_timestamp(column.type) and column.type.tz else column
        for column in rows.columns
    ]
    made = pa.table(columns, rows.column_names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as stream:
        stream.write_table(made)
    return bytes(sink.getvalue())


@contextmanager
def serving(warehouse: Warehouse) -> Iterator[Warehouse]:
    """Serve a warehouse to clients with the token."""
    with workspace_http.serving(warehouse.reply_to) as warehouse.host:
        yield warehouse
