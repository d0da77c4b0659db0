"""Any rule: the base class of rules of all kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fraudlake.entity import ACCOUNT, NO_ENTITIES, Entities
from fraudlake.errors import UsageError
from fraudlake.rules import rule_lists
from fraudlake.rules.rule_lists import SUPPRESSED, RuleList

if TYPE_CHECKING:
    from fraudlake.rules.compiled_rule import CompiledRule
    from fraudlake_patterns.expressions import Column

ListName = Annotated[str, Field(pattern=rule_lists.NAME)]
Source = Literal["transactions", "predictions"]
"""The input of a rule: ``silver_transactions`` or ``gold_fraud_predictions``."""


class AnyRule(BaseModel, ABC):
    """A rule: its kind, its name, its input, and the parameters that each kind adds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    looks_at: ClassVar[Source] = "transactions"
    """``detect`` evaluates rules on transactions, and ``score`` evaluates rules on predictions."""
    omitted_defaults: ClassVar[tuple[str, ...]] = ("entity", "allowed", "watched")
    """Fields that a rule's JSON omits if they have their default, since it has to stay the same when fields are added.

    States and tables identify a rule by its JSON.
    """

    kind: str
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    entity: str = ACCOUNT
    """The entity by which the rule groups transactions."""
    allowed: dict[ListName, str] = Field(default={})
    """Lists by name, each with what it is of: an entity or a column. What is on one of them raises no alert."""
    watched: dict[ListName, str] = Field(default={})
    """Lists by name, each with what it is of. Only what is on one of them raises an alert."""

    @model_validator(mode="after")
    def _names_each_list_once(self) -> AnyRule:
        if twice := self.allowed.keys() & self.watched.keys():
            raise ValueError(f"the list {min(twice)} is both allowed and watched: choose one")
        if SUPPRESSED in {*self.allowed, *self.watched}:
            raise ValueError(f"no list may be called {SUPPRESSED}: 'fraudlake rules suppress' concerns a single rule")
        return self

    @abstractmethod
    def compile(self, columns: Mapping[str, Column], entities: Entities = NO_ENTITIES) -> CompiledRule:
        """Compile the rule for the entities and the columns, which are mapped by their names in rules.

        Raises:
            UsageError: the rule does not fit the columns, or its entity is not declared.
        """

    def check(self, columns: Mapping[str, Column], entities: Entities = NO_ENTITIES) -> None:
        """Check that the rule can be evaluated.

        Raises:
            UsageError: the rule does not fit the columns, or its entity is not declared.
        """
        self.compile(columns, entities)

    def resolve_lists(
        self, columns: Mapping[str, Column], entities: Entities, partition_by: Sequence[str]
    ) -> tuple[RuleList, ...]:
        """Resolve the lists that the rule names, as it groups transactions by some columns.

        Raises:
            UsageError: a list is of no entity or column, or of an entity whose key an alert of the rule does not have.
        """
        named = [(name, of, False) for name, of in self.allowed.items()]
        named += [(name, of, True) for name, of in self.watched.items()]
        resolved = []
        for name, of, is_watched in named:
            try:
                resolved.append(rule_lists.resolve(name, of, is_watched, columns, entities, partition_by))
            except UsageError as error:
                raise UsageError(f"{self.name}: {name}: {error}") from None
        return tuple(resolved)

    @property
    def limits(self) -> dict[str, float]:
        """The limits that may be moved, by name; a rule may have none."""
        return {}

    def compared(self, measures: Mapping[str, Any], amounts: Sequence[float]) -> dict[str, float]:
        """Return the value of an alert that is compared with each limit, by the limit's name.

        Args:
            measures: the alert's measures.
            amounts: the amounts of its transactions.
        """
        return {}

    def key(self, columns: Mapping[str, Column], entities: Entities) -> tuple[Column, ...]:
        """Return the columns by which the rule's entity is keyed.

        Raises:
            UsageError: there is no such entity, or no such column.
        """
        names = ("account_id",) if self.entity == ACCOUNT else entities.get(self.entity)
        if names is None:
            choices = ", ".join((ACCOUNT, *entities))
            raise UsageError(
                f"{self.name}: entity = '{self.entity}' is not declared; there are {choices}: "
                f'declare it in [entities], such as {self.entity} = "COLUMN"'
            )
        missing = [name for name in names if name not in columns]
        if missing:
            raise UsageError(
                f"{self.name}: the entity {self.entity} is keyed by {missing[0]}, which is no column: "
                "declare it in [columns]"
            )
        return tuple(columns[name] for name in names)

    @model_serializer(mode="wrap")
    def _without_default(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit :attr:`omitted_defaults`."""
        written: dict[str, Any] = fields(self)
        for name in self.omitted_defaults:
            if getattr(self, name) == type(self).model_fields[name].default:
                written.pop(name, None)
        return written
