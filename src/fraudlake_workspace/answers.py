"""Answers: converts the results of a SQL warehouse, Arrow or rows of text, to a table with typed columns.

The Statement Execution API describes a column by its SQL type (``type_text``). Arrow is lossless. Rows of text have
times to the millisecond, in the zone of the session, and nested values as JSON whose parts are texts again (seen in
answers of 2025).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from fraudlake.errors import FraudlakeError

if TYPE_CHECKING:
    from databricks.sdk.service.sql import ExternalLink, ResultManifest

_TYPES = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "VOID": pa.null(),
}
_TYPE = re.compile(r"^\s*(\w*)\s*[<(]?(.*?)[>)]?\s*$", re.DOTALL)
"""A name, and the text in its brackets."""
_SECONDS = 60
_AGAIN = Retry(3, backoff_factor=0.5, status_forcelist=(500, 502, 503, 504))


def schema(manifest: ResultManifest | None) -> pa.Schema:
    """Return the columns of an answer; times in UTC."""
    described = (manifest.schema.columns if manifest and manifest.schema else None) or ()
    return pa.schema([(str(column.name), type_of(str(column.type_text))) for column in described])


def type_of(text: str) -> pa.DataType:
    """Return the Arrow type of an SQL type, such as ``ARRAY<STRUCT<at: TIMESTAMP, amount: DECIMAL(10,2)>>``.

    Types that no table of a lake uses, such as intervals, are read as texts.
    """
    name, inner = _TYPE.findall(text)[0]
    match name.upper():
        case "ARRAY":
            return pa.list_(pa.field("element", type_of(inner)))
        case "MAP":
            return pa.map_(*map(type_of, _listed(inner)))
        case "STRUCT":
            return pa.struct([_field(part) for part in _listed(inner)])
        case "DECIMAL":
            return pa.decimal128(*map(int, inner.split(",")))
        case plain:
            return _TYPES.get(plain, pa.string())


def _listed(text: str) -> Iterator[str]:
    """Yield the parts of a text between commas outside of brackets."""
    depth = 0
    begin = 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    if text.strip():
        yield text[begin:]


def _field(text: str) -> tuple[str, pa.DataType]:
    name, _, type_ = text.partition(":")
    return name.strip().strip("`"), type_of(type_.removesuffix(" NOT NULL"))


def fetch_links(links: Iterable[ExternalLink], columns: pa.Schema) -> pa.Table:
    """Download the Arrow streams of links, and return their rows in the types of the columns.

    Raises:
        FraudlakeError: the storage of the workspace cannot be reached, or refuses.
    """
    with requests.Session() as session:
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(max_retries=_AGAIN))
        parts = [_fetched(session, link, columns) for link in links]
    return pa.concat_tables(parts) if parts else columns.empty_table()


def _fetched(session: requests.Session, link: ExternalLink, columns: pa.Schema) -> pa.Table:
    # The link is signed: it needs no credentials, and must not appear in a message.
    host = urlsplit(str(link.external_link)).netloc
    try:
        answer = session.get(str(link.external_link), headers=link.http_headers or {}, timeout=_SECONDS)
    except requests.RequestException:
        raise FraudlakeError(f"{host}, which has the answer, cannot be reached: {_ALLOW}") from None
    if not answer.ok:
        raise FraudlakeError(f"{host}, which has the answer, refuses it with {answer.status_code}: {_ALLOW}")
    rows = pa.ipc.open_stream(answer.content).read_all()
    return pa.table([_typed(rows[place], field.type) for place, field in enumerate(columns)], schema=columns)


_ALLOW = "let the network of the desk reach the workspace's storage"


def _typed(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | pa.Array:
    is_json = pa.types.is_nested(type_) and pa.types.is_string(column.type)
    return pa.array([_value(one, type_) for one in column.to_pylist()], type_) if is_json else column.cast(type_)


def parse_texts(rows: Sequence[Sequence[str | None]], columns: pa.Schema) -> pa.Table:
    """Return rows of text in the types of the columns."""
    made = [
        pa.array([_value(row[place], field.type) for row in rows], field.type) for place, field in enumerate(columns)
    ]
    return pa.table(made, schema=columns)


def _value(value: Any, type_: pa.DataType) -> Any:
    """Return a value, given as a text or as a part of JSON, in a type."""
    if value is None:
        return None
    if pa.types.is_nested(type_):
        return _nested(json.loads(value) if isinstance(value, str) else value, type_)
    read = next((read for is_of, read in _READERS if is_of(type_)), str)
    return read(value)


def _nested(value: Any, type_: pa.DataType) -> Any:
    if pa.types.is_list(type_):
        return [_value(part, type_.value_type) for part in value]
    if pa.types.is_map(type_):
        pairs = value.items() if isinstance(value, dict) else ((pair["key"], pair.get("value")) for pair in value)
        return [(_value(key, type_.key_type), _value(part, type_.item_type)) for key, part in pairs]
    return {field.name: _value(value.get(field.name), field.type) for field in type_}


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, lambda value: value in (True, "true")),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, lambda value: Decimal(str(value))),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_binary, base64.b64decode),
)
