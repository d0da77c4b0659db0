"""Rule entity: resolves the entity that a rule groups by, the columns of its key and the number of its buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fraudlake.entity import ACCOUNT
from fraudlake.errors import UsageError
from fraudlake.keyed.entity_key import THE_ACCOUNT, Entity
from fraudlake.rules.columns import query_columns
from fraudlake.text import json_text

if TYPE_CHECKING:
    from fraudlake.rules.any_rule import AnyRule
    from fraudlake.settings import Settings


def named(rule: AnyRule, settings: Settings) -> Entity:
    """Return the entity that a rule names.

    Raises:
        UsageError: the entity is not declared.
    """
    if rule.entity == ACCOUNT:
        return THE_ACCOUNT
    key = rule.key(query_columns(settings.silver_columns), settings.entities)
    return Entity(rule.entity, tuple(column.name for column in key))


def find_entity(rule: AnyRule, partition_by: Sequence[str], settings: Settings) -> Entity:
    """Resolve the entity that a rule groups by in a stream: the one that it names, or the one of its PARTITION BY.

    A pattern may partition rows by more columns than an entity has. If it has the columns of several entities, the
    account comes first, then the entity with the most columns.

    Raises:
        UsageError: there is no such entity.
    """
    by = named(rule, settings)
    if set(by.columns) <= set(partition_by):
        return by
    if not by.is_account:
        raise UsageError(
            f"{rule.name}: rules of the kind {rule.kind} are by account: leave out entity = '{rule.entity}'"
        )
    others = (Entity(name, tuple(columns)) for name, columns in sorted(settings.entities.items()))
    within = [other for other in others if set(other.columns) <= set(partition_by)]
    if not within:
        raise UsageError(_advice(rule, partition_by))
    return max(within, key=lambda other: len(other.columns))


def find_entity_or_account(rule: AnyRule, partition_by: Sequence[str], settings: Settings) -> Entity:
    """Resolve the entity that a rule groups by; for a query that no stream can evaluate, return the account."""
    try:
        return find_entity(rule, partition_by, settings)
    except UsageError:
        return THE_ACCOUNT


def _advice(rule: AnyRule, columns: Sequence[str]) -> str:
    backtest = "'fraudlake rules backtest' evaluates it as it is"
    if not columns:
        return (
            f"{rule.name}: a rule of a stream needs PARTITION BY accountId, or the columns of another entity, since "
            f"the stream divides rows by entity; {backtest}"
        )
    key = f'"{columns[0]}"' if len(columns) == 1 else json_text.dumps(list(columns))
    return (
        f"{rule.name}: PARTITION BY {', '.join(columns)} has the columns of no entity: declare one in [entities], such "
        f"as {columns[0].removesuffix('_id')} = {key}; {backtest}"
    )
