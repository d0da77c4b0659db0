"""Any rule: the base class of rules of all kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from fraudlake.entity import ACCOUNT, NO_ENTITIES, Entities
from fraudlake.errors import UsageError

if TYPE_CHECKING:
    from fraudlake.rules.compiled_rule import CompiledRule
    from fraudlake_patterns.expressions import Column

Source = Literal["transactions", "predictions"]
"""The input of a rule: ``silver_transactions`` or ``gold_fraud_predictions``."""


class AnyRule(BaseModel, ABC):
    """A rule: its kind, its name, its input, and the parameters that each kind adds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    looks_at: ClassVar[Source] = "transactions"
    """``detect`` evaluates rules on transactions, and ``score`` evaluates rules on predictions."""
    omitted_defaults: ClassVar[tuple[str, ...]] = ("entity",)
    """Fields that a rule's JSON omits if they have their default, since it has to stay the same when fields are added.

    States and tables identify a rule by its JSON.
    """

    kind: str
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    entity: str = ACCOUNT
    """The entity by which the rule groups transactions."""

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
            known = ", ".join((ACCOUNT, *entities))
            raise UsageError(
                f"{self.name}: entity = '{self.entity}' is not declared; there are {known}: "
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
