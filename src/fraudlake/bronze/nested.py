"""Nested fields: ``card.number`` is the field ``number`` in the object ``card`` of a message, or a struct of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze.plain import plain

Path: TypeAlias = tuple[str, ...]
"""Names of fields, from the outermost."""


def name_of(wanted: str, occurrences: Mapping[str, int]) -> str | None:
    """Return the name of the column, or the key, that is the contract's ``wanted``.

    Args:
        wanted: the field's name in the contract.
        occurrences: the names of a file's columns or a message's keys, and how often each occurs.

    Returns:
        The name itself, or else the only name that equals it in another case; None if there is not exactly one.
    """
    if wanted in occurrences:
        return wanted if occurrences[wanted] == 1 else None
    alike = [name for name in occurrences if name.lower() == wanted.lower()]
    return alike[0] if len(alike) == 1 and occurrences[alike[0]] == 1 else None


class Place(NamedTuple):
    """A nested value: its ``path``, and whether it is not the field, but another value that blocks the path to it."""

    path: Path
    value: Any
    is_blocked: bool = False


def in_object(message: dict[str, Any], parts: Path) -> Place | None:
    """Find a field in nested objects; None if it is missing. A list or another value on the path to it blocks it.

    A null on the path counts as the field, null.
    """
    path: Path = ()
    value: Any = message
    for part in parts:
        if value is None:
            break
        if not isinstance(value, dict):
            return Place(path, value, is_blocked=True)
        name = name_of(part, dict.fromkeys(value, 1))
        if name is None:
            return None
        path = (*path, name)
        value = value[name]
    return Place(path, value)


def remove(message: dict[str, Any], path: Path) -> None:
    """Remove a field from nested objects, and objects that are then empty."""
    if not path[1:]:
        message.pop(path[0], None)
        return
    outer = message.get(path[0])
    if isinstance(outer, dict):
        remove(outer, path[1:])
        if not outer:
            del message[path[0]]


def in_struct(column: pa.Array, parts: Path, path: Path) -> Place | None:
    """Find the field ``parts`` in the nested structs of a column, whose own path is ``path``, as :func:`in_object`."""
    column = plain(column)
    if not parts or pa.types.is_null(column.type):
        return Place(path, column)
    if not pa.types.is_struct(column.type):
        return Place(path, column, is_blocked=True)
    names = [column.type.field(at).name for at in range(column.type.num_fields)]
    name = name_of(parts[0], Counter(names))
    return None if name is None else in_struct(column.flatten()[names.index(name)], parts[1:], (*path, name))


def without(column: pa.Array, misfits: Mapping[Path, pa.Array | None]) -> pa.Array | None:
    """Return a struct in which, of some fields, only the values that do not fit are left.

    Args:
        column: a struct that contains all of the paths.
        misfits: the remaining values of a field, by its path in the struct; None if all values fit.

    Returns:
        The struct, null in rows without remaining values; None if no field remains.
    """
    if () in misfits:
        return misfits[()]
    column = plain(column)
    fields = [column.type.field(at).name for at in range(column.type.num_fields)]
    left: list[tuple[str, pa.Array]] = []
    for name, child in zip(fields, column.flatten(), strict=True):
        of_child = {path[1:]: misfit for path, misfit in misfits.items() if path[0] == name}
        rest = without(child, of_child) if of_child else child
        left += [] if rest is None else [(name, rest)]
    if not left:
        return None
    is_empty = left[0][1].is_null()
    for _, child in left[1:]:
        is_empty = pc.and_(is_empty, child.is_null())
    types = [pa.field(name, child.type) for name, child in left]
    return pa.StructArray.from_arrays([child for _, child in left], fields=types, mask=is_empty)
