"""The kind ``model``: a transaction whose fraud probability reaches a threshold raises an alert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from fraudlake.entity import ACCOUNT, NO_ENTITIES, Entities
from fraudlake.errors import UsageError
from fraudlake.rules.any_rule import AnyRule, Source
from fraudlake.values import Threshold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fraudlake_patterns.expressions import Column


class ModelRule(AnyRule):
    """A rule that alerts on transactions with a high score from the model's champion."""

    looks_at: ClassVar[Source] = "predictions"

    kind: Literal["model"] = "model"
    threshold: Threshold
    """The lowest probability that raises an alert, or a budget, which each version of the model converts to one."""

    @property
    def limits(self) -> dict[str, float]:
        """The threshold; none if it is a budget."""
        return {} if isinstance(self.threshold, str) else {"threshold": self.threshold}

    def compared(self, measures: Mapping[str, Any], amounts: Sequence[float]) -> dict[str, float]:
        """Return the probability."""
        return dict.fromkeys(self.limits, float(measures["probability"]))

    def check(self, columns: Mapping[str, Column], entities: Entities = NO_ENTITIES) -> None:
        """Check that the rule and its lists are by account, since a prediction is about a single transaction.

        Raises:
            UsageError: it names another entity, or a list of one.
        """
        if self.entity != ACCOUNT:
            raise UsageError(f"{self.name}: rules of the kind model are by account: leave out entity = '{self.entity}'")
        for name, of in {**self.allowed, **self.watched}.items():
            if of != ACCOUNT:
                raise UsageError(f"{self.name}: {name}: rules of the kind model look up accounts only, and not {of}")

    def compile(self, columns: Mapping[str, Column], entities: Entities = NO_ENTITIES) -> NoReturn:
        """Refuse to compile: the rule needs predictions, which transactions do not have.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{self.name}: a rule of the kind model looks at predictions, which 'fraudlake score' makes")
