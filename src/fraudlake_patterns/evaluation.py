"""Evaluation: finds the matches of a query in sorted rows, and computes a row of the result for each.

Rows may come in parts. Then each part begins with the rows that the previous part still needs, and returns the matches
that its new rows complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fraudlake.arrays import Vector
from fraudlake_patterns import automaton
from fraudlake_patterns.matcher import Match, Matcher, OpenMatches, first_after
from fraudlake_patterns.query import Query
from fraudlake_patterns.rows import SortedRows
from fraudlake_patterns.values import Binding, Expression, Scalar, Scope


class Matches(NamedTuple):
    """The matches of a part, and the state for the next part."""

    matches: list[Match]
    """The matches; those of a partition are in the order in which they are emitted."""
    begin: NDArray[np.int64]
    """For each partition, the first row that is still needed."""
    open_matches: list[OpenMatches]
    """For each partition with such rows, its open matches; empty for a pattern of fixed length."""


def matches(
    query: Query, rows: SortedRows, open_matches: Sequence[OpenMatches] = (), now: int | None = None
) -> Matches:
    """Find the matches that are emitted with the new rows.

    Args:
        query: the query.
        rows: a part of the rows.
        open_matches: those that the previous part returned.
        now: no row that follows has an earlier time, in microseconds; None: no row follows.

    Raises:
        FraudlakeError: AFTER MATCH SKIP names a variable that has no row in a match, or its first row.
    """
    if not len(rows):
        return Matches([], np.zeros(0, np.int64), [])
    if all(variable.least == variable.most for variable in query.variables):
        return match_fixed_length(query, rows, now)
    return match_any_length(query, rows, open_matches, now)


def results(query: Query, rows: SortedRows, query_matches: Sequence[Match]) -> list[dict[str, Any] | None]:
    """Return the selected columns of each match, by name; None for a match that WHERE excludes.

    Times are microseconds since 1970.
    """
    binding = rows.binding
    outputs = [output.expression.bind(binding) for output in query.row]
    times = rows.lists[query.time]
    measured: list[list[Any]] = []
    for match in query_matches:
        last = match.bounds[-1] - 1
        binding.emitted = times[match.emitted_at if match.emitted_at >= 0 else last]
        binding.forget()
        measured.append([output(last, match.bounds) for output in outputs])
    outer = Binding({output.name: [row[number] for row in measured] for number, output in enumerate(query.row)})
    wanted = None if query.where is None else query.where.bind(outer)
    selected = [(output.name, output.expression.bind(outer)) for output in query.select]
    return [
        {name: value(number, (number,)) for name, value in selected}
        if wanted is None or wanted(number, (number,))
        else None
        for number in range(len(query_matches))
    ]


# ---- patterns of any length


def match_any_length(
    query: Query, rows: SortedRows, open_matches: Sequence[OpenMatches] = (), now: int | None = None
) -> Matches:
    """Find the matches of any pattern, row by row."""
    binding = rows.binding
    states = automaton.compile_states(query.variables)
    whole = Scope(rows.columns, len(rows), (0,) * (len(query.variables) + 1), 0)
    flags = [_flags(condition, whole) for condition in query.conditions]
    conditions = [
        condition.bind(binding) if flag is None else _look_up(flag.tolist())
        for condition, flag in zip(query.conditions, flags, strict=True)
    ]
    matcher = Matcher(
        states, conditions, query.skip, query.within, rows.lists[query.time], binding, _beginnings(query, flags)
    )
    # The open matches are in the order of the part's first rows, which may differ from the order of the partitions.
    with_seen = np.flatnonzero(rows.new > rows.starts[:-1])
    with_seen = with_seen[np.argsort(rows.order[rows.starts[with_seen]])]
    earlier = dict(zip(with_seen.tolist(), open_matches, strict=True))
    complete: list[Match] = []
    begin = []
    still_open = []
    spans = zip(rows.starts[:-1].tolist(), rows.new.tolist(), rows.starts[1:].tolist(), strict=True)
    for partition, (start, new, stop) in enumerate(spans):
        run = matcher.run(earlier.get(partition), start)
        complete += run.matches(new, stop, now)
        first = stop if now is None or run.first_row is None else run.first_row
        begin.append(first)
        if first < stop:
            still_open.append(run.open_matches())
    return Matches(complete, np.array(begin, np.int64), still_open)


def _flags(condition: Expression, whole: Scope) -> NDArray[np.bool_] | None:
    """Return for which rows a condition holds, if that depends on the row alone."""
    return _true(condition.vector(whole)) if condition.current_only else None


def _true(column: Vector) -> NDArray[np.bool_]:
    return column.values if column.null is None else column.values & ~column.null


def _look_up(flags: list[bool]) -> Scalar:
    return lambda row, bounds: flags[row]


def _beginnings(query: Query, flags: Sequence[NDArray[np.bool_] | None]) -> list[int] | None:
    """Return the rows at which a match may begin, if that depends on the row alone."""
    may_begin: NDArray[np.bool_] | None = None
    for variable, flag in zip(query.variables, flags, strict=True):
        if flag is None:
            return None
        may_begin = flag if may_begin is None else may_begin | flag
        if variable.least:
            break
    return None if may_begin is None else np.flatnonzero(may_begin).tolist()


# ---- patterns of a fixed length: every match has the same shape, so all are tried at once


def match_fixed_length(query: Query, rows: SortedRows, now: int | None = None) -> Matches:
    """Find the matches of a pattern in which each variable takes a fixed number of rows."""
    shape = np.concatenate([[0], np.cumsum([variable.least for variable in query.variables])]).tolist()
    length = shape[-1]
    partition = np.repeat(np.arange(len(rows.starts) - 1), np.diff(rows.starts))
    begin = np.maximum(rows.starts[1:] - length + 1, rows.starts[:-1])
    complete = []
    not_before = 0
    for start in np.flatnonzero(_complete(query, rows, shape, partition)).tolist():
        if start >= not_before:
            bounds = tuple(start + bound for bound in shape)
            complete.append(Match(bounds, bounds[-1] - 1))
            not_before = first_after(query.skip, bounds)
            begin[partition[start]] = max(begin[partition[start]], not_before)
    if now is None:
        return Matches(complete, rows.starts[1:], [])
    may_begin = np.arange(len(rows)) >= np.repeat(begin, np.diff(rows.starts))
    if query.within is not None:
        may_begin &= now - rows.columns[query.time].values < query.within
    first_condition = query.conditions[next(number for number, bound in enumerate(shape[1:]) if bound)]
    if first_condition.current_only:
        may_begin &= _true(first_condition.vector(Scope(rows.columns, len(rows), (0,) * len(shape), 0)))
    following = np.append(np.flatnonzero(may_begin), len(rows))
    first = following[np.searchsorted(following, rows.starts[:-1])]
    return Matches(complete, np.minimum(first, rows.starts[1:]), [])


def _complete(query: Query, rows: SortedRows, shape: Sequence[int], partition: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return at which rows a match begins whose last row is new."""
    length = shape[-1]
    size = max(len(rows) - length + 1, 0)
    if not size:
        return np.zeros(0, bool)
    holds: NDArray[np.bool_] = (partition[:size] == partition[length - 1 :]) & rows.is_new[length - 1 :]
    if query.within is not None:
        times = rows.columns[query.time].values
        holds &= times[length - 1 :] - times[:size] < query.within
    for number, condition in enumerate(query.conditions):
        for position in range(shape[number], shape[number + 1]):
            so_far = tuple(min(bound, position) for bound in shape)
            holds &= _true(condition.vector(Scope(rows.columns, size, so_far, position)))
    return holds
