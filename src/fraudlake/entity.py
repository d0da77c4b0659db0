"""Entities: what transactions are grouped by, such as the account or a terminal."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

ACCOUNT = "account"
"""The entity that every lake has; its key is ``account_id``."""
Entities = Mapping[str, Sequence[str]]
"""The columns of silver by which other entities are keyed, by the entity's name."""
NO_ENTITIES: Entities = MappingProxyType({})
_NUMBERS = 4095


def number(name: str) -> int:
    """Return the number of an entity in the state of streams: 0 for the account, otherwise 1 to 4095.

    It depends on the name alone, so entities may be added and removed.
    """
    return 0 if name == ACCOUNT else 1 + zlib.crc32(name.encode()) % _NUMBERS


def title(name: str) -> str:
    """Return an entity's name as the first word of a sentence."""
    return name.replace("_", " ").capitalize()
