"""The kind ``threshold``: an aggregate over an entity's last transactions raises an alert if it crosses a limit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from fraudlake.entity import NO_ENTITIES, Entities
from fraudlake.errors import UsageError
from fraudlake.rules import rule_lists
from fraudlake.rules.any_rule import AnyRule
from fraudlake.rules.compiled_rule import Alert, Evaluation
from fraudlake.times.durations import Window, microseconds
from fraudlake.values import BASE_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from fraudlake.statistics.windows import Spans
    from fraudlake_patterns.expressions import Column
    from fraudlake_patterns.rows import SortedRows
    from fraudlake_patterns.values import Expression

ROLE = "counted"
"""The name of each of an alert's transactions in its evidence."""
EVIDENCE = 20
"""The largest number of a window's rows, the latest ones, in an alert."""
OF_EARLIER = ("last", "changed", "is_first", "seconds_since_first", "seconds_since_last", "ratio_to_mean", "z_score")
"""The aggregates of the rows before the last one of a window, with which that one is compared."""
_OF_NO_COLUMN = ("share", "is_first", "seconds_since_first", "seconds_since_last")
_OF_ANY_COLUMN = ("count", "distinct", "changed")
_OF_DEVIATION = ("stddev", "z_score")
_AMOUNT = "amount"


class ThresholdRule(AnyRule):
    """An aggregate of a column over an entity's transactions in a duration, or its last ones, up to each transaction.

    As in an OVER window of Flink SQL, a window includes its last transaction. A window of a duration also includes
    transactions that are exactly that far back, and all that have the same time as its last one. The aggregates
    :data:`OF_EARLIER` compare a transaction with those of its window that are before it, of the same time by arrival.
    """

    omitted_defaults: ClassVar[tuple[str, ...]] = (*AnyRule.omitted_defaults, "logarithm", "quantile")

    kind: Literal["threshold"] = "threshold"
    aggregate: Literal[
        "count",
        "sum",
        "mean",
        "min",
        "max",
        "distinct",
        "share",
        "stddev",
        "quantile",
        "last",
        "changed",
        "is_first",
        "seconds_since_first",
        "seconds_since_last",
        "ratio_to_mean",
        "z_score",
    ]
    column: str = _AMOUNT
    """The column; of ``base_amount``, transactions without a rate neither count nor raise alerts."""
    window: Window
    """The duration of the window, or its number of transactions, this one included; the first windows have fewer."""
    where: str | None = None
    """A condition, in SQL; transactions that do not meet it neither count nor raise alerts.

    A ``share`` counts those that meet it among all, and any of them may raise an alert.
    """
    logarithm: bool = False
    """Whether a deviation is that of the logarithm of the values."""
    quantile: float | None = Field(default=None, gt=0, lt=1)
    """The share of the values that are not above a ``quantile``."""
    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _has_one_limit(self) -> ThresholdRule:
        if (self.above is None) == (self.below is None):
            raise ValueError("a threshold needs either above or below")
        return self

    @model_validator(mode="after")
    def _suits_its_aggregate(self) -> ThresholdRule:
        if self.aggregate in _OF_NO_COLUMN and self.column != _AMOUNT:
            raise ValueError(f"{self.aggregate} takes no column: leave it out")
        if self.aggregate == "share" and self.where is None:
            raise ValueError("a share is that of a condition: give it as where")
        if (self.quantile is not None) != (self.aggregate == "quantile"):
            raise ValueError("give quantile, such as 0.9, with the aggregate quantile, and with no other")
        if self.logarithm and self.aggregate not in _OF_DEVIATION:
            raise ValueError(f"logarithm is for {' and '.join(_OF_DEVIATION)}: leave it out")
        if self.aggregate in OF_EARLIER and self.window == 1:
            raise ValueError(f"{self.aggregate} looks at earlier transactions: give a window of 2 transactions or more")
        return self

    @property
    def limit(self) -> float:
        """The limit of the aggregate: ``above`` or ``below``."""
        return (self.below or 0.0) if self.above is None else self.above

    @property
    def limits(self) -> dict[str, float]:
        """The limit, above or below."""
        return {"below" if self.above is None else "above": self.limit}

    def compared(self, measures: Mapping[str, Any], amounts: Sequence[float]) -> dict[str, float]:
        """Return the aggregate."""
        return dict.fromkeys(self.limits, float(measures[self.aggregate]))

    @property
    def duration(self) -> timedelta | None:
        """The duration of the window; None if the window is a number of transactions."""
        return self.window if isinstance(self.window, timedelta) else None

    @property
    def transactions(self) -> int | None:
        """The number of transactions in the window; None if the window is a duration."""
        return self.window if isinstance(self.window, int) else None

    def is_raised(self, total: Any) -> Any:
        """Return whether totals (a number, an array or a Spark column) raise an alert.

        NaN, the total of an empty window in an array, raises none.
        """
        return total > self.limit if self.above is not None else total < self.limit

    def compile(self, columns: Mapping[str, Column], entities: Entities = NO_ENTITIES) -> CompiledThreshold:
        """Compile the rule for the entities and the columns, which are mapped by their names in rules.

        Raises:
            UsageError: there is no such column or entity, the column has a wrong type, or the condition is not valid.
        """
        from fraudlake.rules.columns import TIME
        from fraudlake_patterns import expressions, sql

        column = columns.get(self.column)
        if column is None:
            raise UsageError(f"{self.name}: there is no column '{self.column}'; there are {', '.join(columns)}")
        if self.aggregate not in _OF_ANY_COLUMN and not column.type.is_numeric:
            raise UsageError(f"{self.name}: {self.aggregate} takes a number, and {self.column} is {column.type}")
        condition = None
        if self.where is not None:
            text = sql.Text(self.where, f"{self.name}: where")
            context = expressions.Context(text, columns, TIME, is_outer=True)
            condition = expressions.condition(text.parse(0, len(self.where)), context)
        key = self.key(columns, entities)
        lists = self.resolve_lists(columns, entities, [one.name for one in key])
        return CompiledThreshold(self, key, column, condition, rule_lists.further_columns(lists))


class Totals(NamedTuple):
    """The aggregate of a threshold at some rows."""

    rows: SortedRows
    """All rows that meet the condition; ``rows.order`` has their numbers in the table."""
    chosen: NDArray[np.int64]
    """The places, in ``rows``, of those with a total."""
    spans: Spans
    """Their windows, in ``rows``."""
    values: NDArray[np.float64]
    """Their totals; NaN if the aggregate is not defined."""


@dataclass(frozen=True)
class CompiledThreshold:
    """A threshold that can evaluate rows."""

    rule: ThresholdRule
    key: tuple[Column, ...]
    column: Column
    condition: Expression | None
    of_lists: frozenset[str] = frozenset()
    """The columns that are looked up in lists."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns of the entity's key."""
        return tuple(column.name for column in self.key)

    @property
    def columns(self) -> tuple[str, ...]:
        """The key, the time, and the columns of the aggregate, the condition and lists."""
        named = frozenset() if self.condition is None else self.condition.columns
        return tuple(sorted({*self.partition_by, "timestamp", self.column.name} | named | self.of_lists))

    @property
    def look_back(self) -> timedelta | None:
        """The duration of the window; None for a number of transactions, which may take any time."""
        return self.rule.duration

    def totals(self, rows: pa.Table, old_rows: int = 0) -> Totals:
        """Return the aggregate at each row after the first ``old_rows`` ones that meets the condition."""
        import numpy as np

        from fraudlake.arrays import Vector
        from fraudlake.rules import threshold_figures
        from fraudlake.rules.columns import TIME, arrival
        from fraudlake.statistics import windows
        from fraudlake_patterns.rows import sort

        rule = self.rule
        # Windows of a duration are searched by time, so in the order of arrival a late row goes to its place.
        sorted_rows = 0 if rule.duration else old_rows
        ordered = sort(rows, TIME, self.key, [], self.columns, arrival(rows), sorted_rows)
        if rule.aggregate == "share":
            column = Vector(self._fulfils(ordered))
        else:
            is_conditional = self.condition is not None or self.column.name == BASE_AMOUNT
            ordered = ordered.where(self._fulfils(ordered)) if is_conditional else ordered
            column = ordered.columns[self.column.name]
        times = ordered.columns[TIME].values
        if isinstance(rule.window, timedelta):
            spans = windows.duration_spans(times, ordered.starts, microseconds(rule.window))
        else:
            spans = windows.row_spans(ordered.starts, rule.window)
        new = np.flatnonzero(ordered.order >= old_rows)
        spans = windows.Spans(spans.low[new], spans.high[new])
        counted = windows.before(new, spans) if rule.aggregate in OF_EARLIER else spans
        aggregate = threshold_figures.Aggregate(rule.aggregate, rule.quantile, rule.logarithm)
        return Totals(ordered, new, spans, threshold_figures.totals(aggregate, times, column, new, counted))

    def evaluate(self, rows: pa.Table, old_rows: int = 0, state: Any = (), now: int | None = None) -> Evaluation:
        """Return an alert for each row at which the aggregate crosses the limit; the needed rows are the only state."""
        import numpy as np

        from fraudlake.rules.columns import TIME

        rule = self.rule
        totals = self.totals(rows, old_rows)
        ordered = totals.rows
        alerts = self._alerts(totals)
        if now is None:
            return Evaluation(alerts, ordered.order[[]])
        if isinstance(rule.window, timedelta):
            still_counts = ordered.columns[TIME].values >= now - microseconds(rule.window)
        else:
            still_counts = ordered.ends - np.arange(len(ordered)) < rule.window
        return Evaluation(alerts, ordered.order[still_counts])

    def _alerts(self, totals: Totals) -> Iterator[Alert]:
        """Yield an alert for each total that raises one."""
        import numpy as np

        for number in np.flatnonzero(self.rule.is_raised(totals.values)).tolist():
            row = int(totals.chosen[number])
            low = int(totals.spans.low[number])
            high = int(totals.spans.high[number])
            earlier = [other for other in range(max(low, high - EVIDENCE), high) if other != row]
            numbers = totals.rows.order[[*earlier, row]].tolist()
            total = float(totals.values[number])
            value = int(total) if total.is_integer() else total
            yield Alert(numbers, [ROLE] * len(numbers), {self.rule.aggregate: value, "transactions": high - low})

    def _fulfils(self, ordered: SortedRows) -> NDArray[np.bool_]:
        """Return which rows meet the condition, if any, and have a rate if the aggregate is of the base amount."""
        import numpy as np

        from fraudlake_patterns.values import Scope

        fulfils: NDArray[np.bool_] = np.ones(len(ordered), bool)
        if self.condition is not None and len(ordered):
            holds = self.condition.vector(Scope(ordered.columns, len(ordered), (0, 0), 0))
            fulfils = holds.values if holds.null is None else holds.values & ~holds.null
        # Without a rate there is no verdict: a sum that ignored the payment could still raise its alert.
        unknown = ordered.columns[self.column.name].null if self.column.name == BASE_AMOUNT else None
        return fulfils if unknown is None else fulfils & ~unknown

    def forget(self, state: Any, needed: pa.Table, accounts: Collection[str]) -> tuple[pa.Table, Any]:
        """Return the rows of the other accounts, and the unchanged state, which contains no accounts."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_gone = pc.is_in(needed["account_id"], pa.array(list(accounts), pa.string()))
        return needed.filter(pc.invert(is_gone)), state
