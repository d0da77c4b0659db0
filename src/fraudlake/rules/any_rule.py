"""Any rule: what rules of all kinds have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fraudlake.match_recognize.expressions import Column
    from fraudlake.rules.compiled_rule import CompiledRule


class AnyRule(BaseModel, ABC):
    """A rule: its kind, its name, and its parameters, which the kind adds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")

    @abstractmethod
    def compile(self, columns: Mapping[str, Column]) -> CompiledRule:
        """Compile the rule for the columns, which are given by the names that a rule may use.

        Raises:
            UsageError: the rule does not suit the columns.
        """
