"""Columns: declares further fields of the payload that get columns in bronze and silver."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from fraudlake import tables
from fraudlake.values import from_json

_OWN_FIELDS = (*tables.PAYLOAD, "ts")
"""The fields that already have columns in bronze; ``ts`` is another name of ``dt``."""

_FIELDS_OF = {
    "account_id": "accountId",
    "accountid": "accountId",
    "amount": "amount",
    "timestamp": "dt",
    "dt": "dt",
    "label": "alert",
    "alert": "alert",
    "transaction_id": "transaction_id",
}
"""The fields of the payload that fill the built-in columns, by column."""


class DeclaredColumn(BaseModel):
    """A further field of the payload, which gets a column in bronze and silver."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str = Field(alias="from", min_length=1)
    """The field's name in the payload."""
    type: Annotated[
        Literal["string", "bigint", "double", "boolean", "timestamp"],
        BeforeValidator(lambda name: "bigint" if name == "long" else name),
    ]
    nullable: bool = True
    """Whether a row without a value is valid."""


def _columns(value: object) -> object:
    """Read columns by name, as a table or as JSON; ``kind = "string"`` is short for its type."""
    value = from_json(value)
    if not isinstance(value, dict):
        raise ValueError('must be a table of columns, such as kind = "string"')
    reserved = {name.lower() for name in tables.RESERVED_NAMES}
    columns: dict[str, object] = {}
    for name, column in value.items():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            raise ValueError(f"'{name}' must be of letters, digits and underscores, and begin with a letter")
        if name.lower() in _FIELDS_OF:
            raise ValueError(
                f"'{name}' is a column of the lake's own, which the field '{_FIELDS_OF[name.lower()]}' of the payload "
                "fills: name its field in [payload] (docs/how-to/schema-evolution.md, 'Other names and units')"
            )
        if name.lower() in reserved:
            raise ValueError(f"'{name}' is a column of the lake's own: give it another name, and its field in 'from'")
        if name.lower() in (other.lower() for other in columns):
            raise ValueError(f"'{name}' is declared twice, as names in other case are the same: rename one")
        if not isinstance(column, str | dict | DeclaredColumn):
            raise ValueError(f"'{name}' must be a type, such as 'string', or a table of 'from', 'type' and 'nullable'")
        fields = {"type": column} if isinstance(column, str) else column
        columns[name] = {"from": name, **fields} if isinstance(fields, dict) else fields
    return columns


def _fields_are_distinct(columns: dict[str, DeclaredColumn]) -> dict[str, DeclaredColumn]:
    use = {field.lower(): f"a field of Flink's own ({', '.join(_OWN_FIELDS)})" for field in _OWN_FIELDS}
    for name, column in columns.items():
        if column.field.lower() in use:
            raise ValueError(
                f"'{name}' is taken from '{column.field}', which is {use[column.field.lower()]}: take another field"
            )
        use[column.field.lower()] = f"taken for '{name}' already"
    return columns


DeclaredColumns = Annotated[
    dict[str, DeclaredColumn], NoDecode, BeforeValidator(_columns), AfterValidator(_fields_are_distinct)
]


class Columns(BaseModel):
    """Which further fields the payload has."""

    columns: DeclaredColumns = Field(
        {}, description='Further fields of the payload, by column, as JSON: {"kind": "string", …}.'
    )
