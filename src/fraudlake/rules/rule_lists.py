"""Rule lists: resolves what a list that a rule names is of, and where an alert has the key that is looked up in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fraudlake.entity import ACCOUNT, Entities
from fraudlake.errors import UsageError

if TYPE_CHECKING:
    from fraudlake_patterns.expressions import Column

SUPPRESSED = "suppressed"
"""The list of keys for which a single rule raises no alerts; no other list may have this name."""
PROPOSED = "proposed"
"""The event of an entry that takes effect only when a second person agrees, by another row."""
NAME = r"^[a-z][a-z0-9_]*$"
"""The pattern of a list's name."""
_ACCOUNT_COLUMNS = ("account_id",)
_OF_SILVER = ("transaction_id", "timestamp", "amount", "label")
_KEY_TYPES = ("STRING", "BIGINT", "BOOLEAN")


class RuleList(NamedTuple):
    """A list that a rule names.

    ``of`` is what its keys are of: ``account``, an entity or a column. ``column`` is the column of an alert's last
    transaction that has the key; None: the key is that of the alert itself.
    """

    name: str
    of: str
    is_watched: bool
    column: str | None


def key_columns(of: str, columns: Mapping[str, Column], entities: Entities) -> tuple[str, ...]:
    """Return the columns of silver that are the key of a list of an entity or a column.

    Raises:
        UsageError: there is no such entity and no such column.
    """
    if of == ACCOUNT:
        return _ACCOUNT_COLUMNS
    if of in entities:
        return tuple(entities[of])
    column = columns.get(of)
    # A list is not named by a column's name in the payload: entries and rules must use the same name.
    if column is None or column.name != of or of in (*_OF_SILVER, *_ACCOUNT_COLUMNS):
        suitable = {one.name for one in columns.values() if one.type.name in _KEY_TYPES}
        declared = sorted(suitable - {*_OF_SILVER, *_ACCOUNT_COLUMNS})
        names = ", ".join(dict.fromkeys((ACCOUNT, *entities, *declared)))
        raise UsageError(f"a list cannot be of '{of}': it is of an entity or a declared column: {names}")
    if column.type.name not in _KEY_TYPES:
        raise UsageError(f"a list cannot be of {of}, which is {column.type}: its values are texts or whole numbers")
    return (column.name,)


def resolve(
    name: str,
    of: str,
    is_watched: bool,
    columns: Mapping[str, Column],
    entities: Entities,
    partition_by: Sequence[str],
) -> RuleList:
    """Resolve a list that a rule names.

    Args:
        name: the name of the list.
        of: what its keys are of.
        is_watched: whether the rule watches the list.
        columns: the columns by their names in rules.
        entities: the declared entities.
        partition_by: the columns by which the rule groups transactions.

    Raises:
        UsageError: it is of no entity or column, or of an entity whose key an alert of the rule does not have.
    """
    key = key_columns(of, columns, entities)
    is_own = key == tuple(partition_by) and key != _ACCOUNT_COLUMNS
    if len(key) > 1 and not is_own:
        raise UsageError(f"a list of {of}, whose key has {len(key)} columns, is for rules by {of}")
    return RuleList(name, of, is_watched, None if is_own else key[0])


def further_columns(lists: Sequence[RuleList]) -> frozenset[str]:
    """Return the columns that a rule reads only to look up keys in lists."""
    return frozenset(one.column for one in lists if one.column is not None) - {*_ACCOUNT_COLUMNS}
