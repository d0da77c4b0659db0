"""The kind ``threshold``: an aggregate over an entity's last transactions that crosses a limit raises an alert."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from fraudlake.durations import Duration, microseconds
from fraudlake.entity import NO_ENTITIES, Entities
from fraudlake.errors import UsageError
from fraudlake.rules.any_rule import AnyRule
from fraudlake.rules.compiled_rule import Alert, Evaluation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from fraudlake.match_recognize.expressions import Column
    from fraudlake.match_recognize.values import Expression

EVIDENCE = 20
"""Rows, the latest ones, that an alert names of a window."""


class ThresholdRule(AnyRule):
    """An aggregate of a column over an entity's last duration, or its last transactions, at each transaction.

    As in an OVER window of Flink SQL, a window holds its last transaction, and a duration's holds those exactly that
    far back and all of the same time.
    """

    kind: Literal["threshold"] = "threshold"
    aggregate: Literal["count", "sum", "average", "minimum", "maximum", "distinct"]
    column: str = "amount"
    last: Duration | None = Field(default=None, gt=timedelta(0))
    """The duration of the window."""
    transactions: int | None = Field(default=None, ge=1)
    """The number of transactions in the window, this one included; the first windows have fewer."""
    where: str | None = None
    """A condition, in SQL; transactions for which it does not hold neither count nor alert."""
    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _has_one_window_and_limit(self) -> ThresholdRule:
        if (self.last is None) == (self.transactions is None):
            raise ValueError("a threshold needs either last (a duration) or transactions (a number)")
        if (self.above is None) == (self.below is None):
            raise ValueError("a threshold needs either above or below")
        return self

    @property
    def limit(self) -> float:
        """The limit of the aggregate, above or below."""
        return (self.below or 0.0) if self.above is None else self.above

    @property
    def duration(self) -> int | None:
        """The duration of the window in microseconds; None if it is a number of transactions."""
        return None if self.last is None else microseconds(self.last)

    def is_raised(self, total: Any) -> Any:
        """Return whether totals raise an alert: numbers, an array or a column of Spark.

        NaN, the total of no values in an array, raises none.
        """
        return total > self.limit if self.above is not None else total < self.limit

    def compile(self, columns: Mapping[str, Column], entities: Entities = NO_ENTITIES) -> CompiledThreshold:
        """Compile the rule for the columns, which are given by the names that a rule may use, and for the entities.

        Raises:
            UsageError: there is no such column or entity, its type does not suit, or the condition is not valid.
        """
        from fraudlake.match_recognize import expressions, sql
        from fraudlake.rules.columns import TIME

        column = columns.get(self.column)
        if column is None:
            raise UsageError(f"{self.name}: there is no column '{self.column}'; there are {', '.join(columns)}")
        if self.aggregate not in ("count", "distinct") and not column.type.is_numeric:
            raise UsageError(f"{self.name}: {self.aggregate} takes a number, and {self.column} is {column.type}")
        condition = None
        if self.where is not None:
            text = sql.Text(self.where, f"{self.name}: where")
            context = expressions.Context(text, columns, TIME, is_outer=True)
            condition = expressions.condition(text.parse(0, len(self.where)), context)
        return CompiledThreshold(self, self.key(columns, entities), column, condition)


@dataclass(frozen=True)
class CompiledThreshold:
    """A threshold that can evaluate rows."""

    rule: ThresholdRule
    key: tuple[Column, ...]
    column: Column
    condition: Expression | None

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns of the entity's key."""
        return tuple(column.name for column in self.key)

    @property
    def columns(self) -> tuple[str, ...]:
        """The key, the time, and the columns of the aggregate and the condition."""
        named = frozenset() if self.condition is None else self.condition.columns
        return tuple(sorted({*self.partition_by, "timestamp", self.column.name} | named))

    @property
    def look_back(self) -> timedelta | None:
        """The duration of the window; so many transactions may take any time."""
        return self.rule.last

    def evaluate(self, rows: pa.Table, seen: int = 0, state: Any = (), now: int | None = None) -> Evaluation:
        """Return an alert for each row at which the aggregate is beyond the limit; there is no state but the rows."""
        import numpy as np

        from fraudlake.match_recognize.rows import sort
        from fraudlake.match_recognize.values import Scope
        from fraudlake.rules import windows
        from fraudlake.rules.columns import TIME, arrival

        rule = self.rule
        ordered = sort(rows, TIME, self.key, [], self.columns, arrival(rows), seen)
        if self.condition is not None and len(ordered):
            holds = self.condition.vector(Scope(ordered.columns, len(ordered), (0, 0), 0))
            ordered = ordered.where(holds.values if holds.null is None else holds.values & ~holds.null)
        times = ordered.columns[TIME].values
        if rule.duration is not None:
            spans = windows.of_duration(times, ordered.starts, rule.duration)
            still_counts = times >= (now or 0) - rule.duration
        else:
            spans = windows.of_rows(ordered.starts, rule.transactions or 1)
            still_counts = ordered.ends - np.arange(len(ordered)) < (rule.transactions or 1)
        totals = windows.aggregate(rule.aggregate, ordered.columns[self.column.name], spans)
        alerts = []
        for row in np.flatnonzero(rule.is_raised(totals) & ordered.is_new).tolist():
            low, high = int(spans.low[row]), int(spans.high[row])
            earlier = [number for number in range(max(low, high - EVIDENCE), high) if number != row]
            numbers = ordered.order[[*earlier, row]].tolist()
            total = float(totals[row])
            measures = {rule.aggregate: int(total) if total.is_integer() else total, "transactions": high - low}
            alerts.append(Alert(numbers, ["counted"] * len(numbers), measures))
        return Evaluation(alerts, ordered.order[still_counts if now is not None else []])

    def forget(self, state: Any, needed: pa.Table, accounts: Collection[str]) -> tuple[pa.Table, Any]:
        """Return the rows of the others, and the state, in which no account is."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_gone = pc.is_in(needed["account_id"], pa.array(list(accounts), pa.string()))
        return needed.filter(pc.invert(is_gone)), state
