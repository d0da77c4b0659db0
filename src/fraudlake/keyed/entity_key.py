"""Entity key: the columns by which the rows of an entity are keyed, its text, and its place in buckets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fraudlake import entity
from fraudlake.entity import ACCOUNT
from fraudlake.text import json_text

if TYPE_CHECKING:
    from fraudlake.keyed import buckets


class Entity(NamedTuple):
    """An entity by which rows are keyed: its name, and the columns of silver that are its key."""

    name: str
    columns: tuple[str, ...]

    @property
    def number(self) -> int:
        """Its number among buckets."""
        return entity.number(self.name)

    @property
    def key(self) -> buckets.Key:
        """The key by which its rows are packed into buckets."""
        # The module loads pyspark, which the desk does not need.
        from fraudlake.keyed import buckets

        return buckets.ACCOUNT if self.name == ACCOUNT else buckets.Key(self.number, f"key_{self.number}")

    @property
    def is_account(self) -> bool:
        """Whether it is the account."""
        return self.name == ACCOUNT


THE_ACCOUNT = Entity(ACCOUNT, ("account_id",))


def key_text(values: Mapping[str, Any]) -> str:
    """Return a key as a text: its value, or if it has several columns a JSON object."""
    value = next(iter(values.values())) if len(values) == 1 else values
    return value if isinstance(value, str) else json_text.dumps(value, ensure_ascii=False)
