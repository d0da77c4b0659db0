"""The kind ``pattern``: rows that match a MATCH_RECOGNIZE of Flink SQL raise an alert."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from fraudlake.entity import ACCOUNT, NO_ENTITIES, Entities
from fraudlake.errors import UsageError
from fraudlake.rules import rule_lists
from fraudlake.rules.any_rule import AnyRule
from fraudlake.rules.compiled_rule import EVIDENCE_ROWS, Alert, Evaluation, shown
from fraudlake.text import sql_text
from fraudlake.times.durations import Duration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from fraudlake_patterns.expressions import Column
    from fraudlake_patterns.matcher import Match
    from fraudlake_patterns.query import Query
    from fraudlake_patterns.rows import SortedRows


class PatternRule(AnyRule):
    """A row pattern: a whole Flink query (``sql``), or its clauses as fields."""

    kind: Literal["pattern"] = "pattern"
    sql: str | None = None
    pattern: str | None = None
    """The text in the parentheses of PATTERN."""
    define: dict[str, str] = Field({})
    """The condition of each variable; a variable without one matches every row."""
    within: Duration | None = Field(default=None, gt=timedelta(0))
    skip: str | None = None
    """The text after AFTER MATCH SKIP."""
    measures: dict[str, str] = Field({})
    """Expressions by the names of their values; by default, the number of transactions."""

    @model_validator(mode="after")
    def _is_text_or_fields(self) -> PatternRule:
        fields = (self.pattern, self.define, self.within, self.skip, self.measures)
        if self.sql is not None and any(fields):
            raise ValueError("a pattern is given by sql alone, or by pattern, define, within, skip and measures")
        if self.sql is not None and self.entity != ACCOUNT:
            raise ValueError("entity is for a pattern given by fields: the PARTITION BY of sql names its key")
        if self.sql is None and (self.pattern is None or not self.define):
            raise ValueError("a pattern needs sql, or pattern and define")
        return self

    def text(self, partition_by: str) -> str:
        """Return the rule as a query; without ``sql``, it is partitioned by the given columns."""
        if self.sql is not None:
            return self.sql
        measures = self.measures or {"transactions": "COUNT(*)"}
        clauses = [
            f"PARTITION BY {partition_by} ORDER BY dt",
            "MEASURES " + ", ".join(f"{expression} AS {name}" for name, expression in measures.items()),
            f"AFTER MATCH SKIP {self.skip}" if self.skip else "",
            f"PATTERN ({self.pattern})",
            f"WITHIN INTERVAL '{self.within.total_seconds():.3f}' SECOND" if self.within else "",
            "DEFINE " + ", ".join(f"{name} AS {condition}" for name, condition in self.define.items()),
        ]
        lines = "\n  ".join(clause for clause in clauses if clause)
        return f"SELECT * FROM transactions MATCH_RECOGNIZE (\n  {lines}\n)"

    def compile(self, columns: Mapping[str, Column], entities: Entities = NO_ENTITIES) -> CompiledPattern:
        """Compile the rule for the entities and the columns, which are mapped by their names in queries.

        Raises:
            UsageError: the query is not valid, with its position; there is no such entity; or a measure is called
                ``evidence_rows``.
        """
        from fraudlake.rules.columns import TABLES, TIME
        from fraudlake_patterns import parse

        key = [column.name for column in self.key(columns, entities)]
        # The account has Flink's name in the result; backquotes allow names that are keywords of SQL.
        partition_by = "accountId" if self.entity == ACCOUNT else sql_text.names(key)
        parsed = parse(self.text(partition_by), columns, TIME, TABLES, self.name)
        if EVIDENCE_ROWS in {output.name for output in parsed.select}:
            raise UsageError(f"{self.name}: {EVIDENCE_ROWS} counts an alert's rows: give the measure another name")
        # Matching continues after a match, so the next match depends on the end of this one, and so on.
        is_bounded = parsed.within is not None and parsed.skip.mode == "next"
        look_back = timedelta(microseconds=parsed.within or 0) if is_bounded else None
        lists = self.resolve_lists(columns, entities, [column.name for column in parsed.partition_by])
        return CompiledPattern(parsed, look_back, rule_lists.further_columns(lists))


@dataclass(frozen=True)
class CompiledPattern:
    """A pattern that can evaluate rows."""

    query: Query
    look_back: timedelta | None
    of_lists: frozenset[str] = frozenset()
    """The columns that are looked up in lists."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns of PARTITION BY."""
        return tuple(column.name for column in self.query.partition_by)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the query names, the time, and the columns of lists."""
        return (*self.query.columns, *sorted(self.of_lists.difference(self.query.columns)))

    def evaluate(self, rows: pa.Table, old_rows: int = 0, state: Any = (), now: int | None = None) -> Evaluation:
        """Return an alert for each match that the query selects; the state is each partition's open matches."""
        from fraudlake.rules.columns import arrival
        from fraudlake_patterns import evaluation
        from fraudlake_patterns.rows import sort

        query = self.query
        ordered = sort(rows, query.time, query.partition_by, query.order_by, query.columns, arrival(rows), old_rows)
        matches, begin, still_open = evaluation.matches(query, ordered, state, now)
        return Evaluation(self._alerts(ordered, matches), ordered.from_each(begin), still_open)

    def _alerts(self, ordered: SortedRows, matches: Sequence[Match]) -> Iterator[Alert]:
        """Yield an alert for each match that the query selects."""
        import numpy as np

        from fraudlake_patterns import evaluation
        from fraudlake_patterns.expressions import json_value

        query = self.query
        types = {output.name: output.expression.type for output in query.select}
        for match, result in zip(matches, evaluation.results(query, ordered, matches), strict=True):
            if result is None:
                continue
            bounds = match.bounds
            first, last = shown(bounds[0], bounds[-1])
            roles = [query.variables[bisect_right(bounds, row) - 1].name for row in (*first, *last)]
            numbers = np.concatenate([ordered.order[part.start : part.stop] for part in (first, last)])
            measures = {name: json_value(value, types[name]) for name, value in result.items()}
            yield Alert(numbers.tolist(), roles, measures, last.start - first.stop)

    def forget(self, state: Any, needed: pa.Table, accounts: Collection[str]) -> tuple[pa.Table, Any]:
        """Return the rows and open matches of the other accounts.

        If a partition has rows of the forgotten accounts, its open matches are found again in its other rows. Open
        matches are in the order of their partitions' first rows.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        from fraudlake.arrays import codes_of

        keys = codes_of(needed, self.partition_by).tolist()
        is_gone = [account in accounts for account in needed["account_id"].to_pylist()]
        touched = {key for key, is_theirs in zip(keys, is_gone, strict=True) if is_theirs}
        others = zip(state, dict.fromkeys(keys), strict=bool(state))
        rows = needed.filter(pa.array([key not in touched for key in keys], pa.bool_()))
        matches = [of_one for of_one, key in others if key not in touched]
        left = [key in touched and not is_theirs for key, is_theirs in zip(keys, is_gone, strict=True)]
        again = needed.filter(pa.array(left, pa.bool_()))
        if not len(again):
            return rows, matches
        first = pc.min(again[self.query.time].cast(pa.int64())).as_py()
        evaluation = self.evaluate(again, now=first)
        return pa.concat_tables([rows, again.take(pa.array(evaluation.needed))]), [*matches, *evaluation.state]
