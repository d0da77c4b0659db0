"""Panels: tables and queries from which the desk shows data about a customer, a merchant or another key."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import NoDecode

from fraudlake.entity import ACCOUNT
from fraudlake.values import from_json

_COLUMN = r"^[A-Za-z_]\w*$"
_TABLE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}$"
_PART = re.compile(r"""'(?:[^'\\]|'')*'|"[^"\\]*"|`[^`\\]*`|(?<![:\w]):key\b|--|/\*|[;\\'"`()]""")
"""The relevant parts of a query: quoted texts and names, the key, and anything that could end the query.

In Spark a backslash in a text escapes the next character; in DataFusion it does not.
"""
_FORBIDDEN = {
    ";": "semicolon",
    "--": "comment",
    "/*": "comment",
    "\\": "backslash",
    **dict.fromkeys("'\"`", "open quote"),
}


class Panel(BaseModel):
    """Data about an account, or about another entity's key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(min_length=1, max_length=60)
    entity: str = ACCOUNT
    """The entity of the panel, whose key must have one column."""
    table: str | None = Field(None, pattern=_TABLE)
    """A table, instead of a query."""
    key: str | None = Field(None, pattern=_COLUMN)
    """The column of the table with the key."""
    columns: tuple[Annotated[str, Field(pattern=_COLUMN)], ...] = ()
    """The columns of the table that are shown; all by default."""
    query: str | None = None
    """A SELECT, in which ``:key`` is the key."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.table is None) == (self.query is None):
            raise ValueError(f"panel '{self.title}' must have either a table or a query")
        if self.table and not self.key:
            raise ValueError(f"panel '{self.title}' lacks the key: the column of {self.table} that has it")
        if self.query:
            if self.key or self.columns:
                raise ValueError(f"panel '{self.title}': a query takes neither key nor columns")
            _check(self.title, self.query)
        return self

    def statement(self, key: str, most: int) -> str:
        """Return the query for a key.

        Args:
            key: the key's value, as an SQL literal.
            most: the largest number of rows.
        """
        if self.query is None:
            columns = ", ".join(self.columns) or "*"
            return f"SELECT {columns} FROM {self.table} WHERE {self.key} = {key} LIMIT {most}"
        bound = _PART.sub(lambda match: key if match[0] == ":key" else match[0], self.query)
        # Only a query is valid in parentheses.
        return f"SELECT * FROM ({bound}) panel LIMIT {most}"

    @property
    def words(self) -> frozenset[str]:
        """The words that may be names of tables."""
        return frozenset([self.table] if self.table else re.findall(r"\w+", self.query or ""))


def _check(title: str, query: str) -> None:
    """Refuse a text that is not a single SELECT with the key in it; no value of the key may change that."""
    parts = [match[0] for match in _PART.finditer(query)]
    if not re.match(r"\s*SELECT\b", query, re.IGNORECASE):
        raise ValueError(f"panel '{title}': a query must begin with SELECT")
    for part in parts:
        if part in _FORBIDDEN:
            raise ValueError(f"panel '{title}': a query has no {_FORBIDDEN[part]}")
    if ":key" not in parts:
        raise ValueError(f"panel '{title}': a query must have :key, the account or key that it is about")
    depth = 0
    for part in parts:
        depth += {"(": 1, ")": -1}.get(part, 0)
        if depth < 0:
            break
    if depth:
        raise ValueError(f"panel '{title}': the query's brackets do not match")


class Panels(BaseModel):
    """What else the desk shows."""

    panels: Annotated[tuple[Panel, ...], NoDecode, BeforeValidator(from_json)] = Field(
        (),
        description="What cases and accounts show of other tables, as JSON: "
        '[{"title": "Customer", "table": "customers", "key": "account_id"}, …].',
    )
