"""Evaluation: a query over sorted rows gives its matches, and of each match a row of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fraudlake.rules import automaton
from fraudlake.rules.matcher import Match, Matcher, first_after
from fraudlake.rules.query import Query
from fraudlake.rules.rows import SortedRows
from fraudlake.rules.values import Binding, Expression, Scalar, Scope, Vector


def matches(query: Query, rows: SortedRows) -> list[Match]:
    """Find all matches, a partition's in the order in which they come out.

    Raises:
        FraudlakeError: AFTER MATCH SKIP names a variable that has no row in a match, or its first row.
    """
    if not len(rows):
        return []
    if all(variable.least == variable.most for variable in query.variables):
        return list(of_fixed_length(query, rows))
    return list(of_any_length(query, rows))


def results(query: Query, rows: SortedRows, found: Sequence[Match]) -> list[dict[str, Any] | None]:
    """Return what the query selects of each match, by name; None for a match that its WHERE leaves out.

    Times are microseconds since 1970.
    """
    binding = rows.binding
    outputs = [output.expression.bind(binding) for output in query.row]
    times = rows.lists["timestamp"]
    measured: list[list[Any]] = []
    for match in found:
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
        for number in range(len(found))
    ]


# ---- patterns of any length


def of_any_length(query: Query, rows: SortedRows) -> Iterator[Match]:
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
        states, conditions, query.skip, query.within, rows.lists["timestamp"], binding, _beginnings(query, flags)
    )
    for start, stop in zip(rows.starts[:-1].tolist(), rows.starts[1:].tolist(), strict=True):
        yield from matcher.matches(start, stop)


def _flags(condition: Expression, whole: Scope) -> NDArray[np.bool_] | None:
    """Return for which rows a condition holds, if that depends on the row alone."""
    return _true(condition.vector(whole)) if condition.current_only else None


def _true(column: Vector) -> NDArray[np.bool_]:
    return column.values if column.null is None else column.values & ~column.null


def _look_up(flags: list[bool]) -> Scalar:
    return lambda row, bounds: flags[row]


def _beginnings(query: Query, flags: Sequence[NDArray[np.bool_] | None]) -> list[int] | None:
    """Return the rows with which a match may begin, if that depends on the row alone."""
    may_begin: NDArray[np.bool_] | None = None
    for variable, flag in zip(query.variables, flags, strict=True):
        if flag is None:
            return None
        may_begin = flag if may_begin is None else may_begin | flag
        if variable.least:
            break
    return None if may_begin is None else np.flatnonzero(may_begin).tolist()


# ---- patterns of a fixed length: every match has the same shape, so all are tried at once


def of_fixed_length(query: Query, rows: SortedRows) -> Iterator[Match]:
    """Find the matches of a pattern each of whose variables takes a fixed number of rows."""
    shape = np.concatenate([[0], np.cumsum([variable.least for variable in query.variables])]).tolist()
    length = shape[-1]
    size = len(rows) - length + 1
    if size <= 0:
        return
    holds = np.ones(size, bool)
    number_of_partition = np.repeat(np.arange(len(rows.starts) - 1), np.diff(rows.starts))
    holds &= number_of_partition[:size] == number_of_partition[length - 1 :]
    if query.within is not None:
        times = rows.columns["timestamp"].values
        holds &= times[length - 1 :] - times[:size] < query.within
    for number, condition in enumerate(query.conditions):
        for position in range(shape[number], shape[number + 1]):
            so_far = tuple(min(bound, position) for bound in shape)
            holds &= _true(condition.vector(Scope(rows.columns, size, so_far, position)))
    not_before = 0
    for start in np.flatnonzero(holds).tolist():
        if start >= not_before:
            bounds = tuple(start + bound for bound in shape)
            yield Match(bounds, bounds[-1] - 1)
            not_before = first_after(query.skip, bounds)
