"""Entities: keys for rows in addition to the account, such as a terminal, a device or a pair of columns."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_settings import NoDecode

from fraudlake.entity import ACCOUNT, number
from fraudlake.values import from_json


def _entities(value: object) -> object:
    """Read entities by name, as a table or as JSON; ``terminal = "terminal_id"`` is short for a list of one column."""
    value = from_json(value)
    if not isinstance(value, dict):
        raise ValueError('must be a table of entities, such as terminal = "terminal_id"')
    entities: dict[str, object] = {}
    for name, columns in value.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise ValueError(f"'{name}' must be of lower-case letters, digits and underscores, and begin with a letter")
        if name == ACCOUNT:
            raise ValueError(f"'{name}' is always declared: leave it out")
        listed = [columns] if isinstance(columns, str) else columns
        if not isinstance(listed, list | tuple) or not listed or not all(isinstance(one, str) for one in listed):
            raise ValueError(f"'{name}' must be a column, or a list of columns")
        if len(set(listed)) < len(listed):
            raise ValueError(f"'{name}' names a column twice")
        entities[name] = tuple(listed)
    return entities


def _are_distinct(entities: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    keys: dict[tuple[str, ...], str] = {("account_id",): ACCOUNT}
    numbers: dict[int, str] = {}
    for name, columns in entities.items():
        key = tuple(sorted(columns))
        if key in keys:
            raise ValueError(f"'{name}' has the same key as '{keys[key]}': use that one")
        other = numbers.setdefault(number(name), name)
        if other != name:
            raise ValueError(f"'{name}' and '{other}' have the same checksum: rename one")
        keys[key] = name
    return entities


DeclaredEntities = Annotated[
    dict[str, tuple[str, ...]], NoDecode, BeforeValidator(_entities), AfterValidator(_are_distinct)
]


class Entities(BaseModel):
    """What rows may be keyed by."""

    entities: DeclaredEntities = Field(
        {}, description='Columns that rows are keyed by, by entity, as JSON: {"terminal": "terminal_id", …}.'
    )

    def entity_columns(self, name: str) -> tuple[str, ...]:
        """Return the columns of silver that are an entity's key.

        Raises:
            KeyError: the entity is not declared.
        """
        return ("account_id",) if name == ACCOUNT else self.entities[name]
