"""The matcher: runs an automaton over rows sorted by partition and time, with the semantics of Flink's CEP library.

Like Flink, it keeps open matches in a heap by their first row. If several matches have the same first row, the order of
Java's PriorityQueue decides which is emitted first, and so discards the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fraudlake.errors import FraudlakeError
from fraudlake_patterns.automaton import State
from fraudlake_patterns.values import Binding, Bounds, Scalar

_NEVER = 1 << 62
"""The first row of a match that has not begun; it sorts after all others."""


class Skip(NamedTuple):
    """Where matching continues after a match: ``past_last``, ``next``, ``first`` or ``last`` (of a variable)."""

    mode: str
    variable: int = 0
    name: str = ""


class Match(NamedTuple):
    """A match: the bounds of its variables' rows, and the row at which it was emitted; -1: after the last row."""

    bounds: Bounds
    emitted_at: int


class _Open(NamedTuple):
    """A match that is incomplete or not yet emitted; ``first`` is its first row."""

    first: int
    state: State
    bounds: Bounds


class _Heap(list[_Open]):
    """Java's PriorityQueue: a binary heap by first row, in whose order ties are visited."""

    def add(self, item: _Open) -> None:
        """Add an item below its equals on the path to the root."""
        number = len(self)
        self.append(item)
        while number:
            parent = (number - 1) >> 1
            if item.first >= self[parent].first:
                break
            self[number] = self[parent]
            number = parent
        self[number] = item

    def poll(self) -> _Open:
        """Remove and return the first item."""
        first = self[0]
        last = self.pop()
        if self:
            self._down(0, last)
        return first

    def remove_before(self, row: int) -> None:
        """Remove matches that began before a row."""
        rest = [item for item in self if item.first >= row]
        if len(rest) < len(self):
            self[:] = rest
            for number in reversed(range(len(self) >> 1)):
                self._down(number, self[number])

    def _down(self, number: int, item: _Open) -> None:
        half = len(self) >> 1
        while number < half:
            child = 2 * number + 1
            if child + 1 < len(self) and self[child].first > self[child + 1].first:
                child += 1
            if item.first <= self[child].first:
                break
            self[number] = self[child]
            number = child
        self[number] = item


@dataclass(frozen=True)
class Matcher:
    """A pattern ready to run over rows.

    ``conditions`` has one for each variable. ``within`` is in microseconds: a match must be shorter than that; None
    means no limit. ``may_begin`` are the rows at which a match may begin, in order, if they are known: while no match
    is open, the rows between them are skipped.
    """

    states: Sequence[State]
    conditions: Sequence[Scalar]
    skip: Skip
    within: int | None
    times: Sequence[int]
    binding: Binding
    may_begin: Sequence[int] | None = None

    def run(self, open_matches: OpenMatches | None = None, start: int = 0) -> Run:
        """Return the run over a partition: a new one, or one that continues.

        Args:
            open_matches: the result of :meth:`Run.open_matches` of the previous run.
            start: the present number of the first row of those matches.
        """
        if open_matches is None:
            return Run(self, _Heap([_Open(_NEVER, self.states[-1], ())]), _Heap())
        heaps = (
            _Heap(
                _Open(_NEVER if first < 0 else start + first, self.states[state], tuple(start + row for row in bounds))
                for first, state, bounds in heap
            )
            for heap in open_matches
        )
        return Run(self, *heaps)


OpenMatches = list[list[tuple[int, int, list[int]]]]
"""The incomplete matches, and the complete ones that are not yet emitted, as JSON-compatible values.

For each match: its first row (-1: it has not begun), its state, and the bounds of its variables' rows. Rows are counted
from the first row of any match.
"""


class Run:
    """The open and the complete matches of one partition; :meth:`Matcher.run` makes one."""

    def __init__(self, matcher: Matcher, partial: _Heap, complete: _Heap) -> None:
        """Begin with the incomplete matches, and the complete ones that are not yet emitted."""
        self._matcher = matcher
        self._partial = partial
        self._complete = complete

    @property
    def is_idle(self) -> bool:
        """Whether no match is open."""
        return len(self._partial) == 1 and not self._complete

    @property
    def first_row(self) -> int | None:
        """The first row of any open match; None if no match is open."""
        first = min((item.first for heap in (self._partial, self._complete) for item in heap), default=_NEVER)
        return None if first == _NEVER else first

    def open_matches(self) -> OpenMatches:
        """Return the open matches for another run to continue with."""
        start = self.first_row or 0
        return [
            [
                (
                    -1 if item.first == _NEVER else item.first - start,
                    item.state.number,
                    [bound - start for bound in item.bounds],
                )
                for item in heap
            ]
            for heap in (self._partial, self._complete)
        ]

    def matches(self, start: int, stop: int, now: int | None) -> Iterator[Match]:
        """Find matches.

        Args:
            start: the first row that was not processed before.
            stop: the row after the partition's last.
            now: no row that follows has an earlier time; None: no row follows.

        Raises:
            FraudlakeError: AFTER MATCH SKIP names a variable that has no row in a match, or its first row.
        """
        matcher = self._matcher
        row = start
        time = None
        while row < stop:
            if self.is_idle:
                matcher.binding.forget()
                if matcher.may_begin is not None:
                    following = bisect_left(matcher.may_begin, row)
                    row = matcher.may_begin[following] if following < len(matcher.may_begin) else stop
                    if row >= stop:
                        break
            if matcher.times[row] != time:
                time = matcher.times[row]
                yield from self.advance(time, row)
            yield from self.process(row)
            row += 1
        yield from self.advance(now, -1)
        matcher.binding.forget()

    def advance(self, time: int | None, row: int) -> Iterator[Match]:
        """Drop the matches whose time is up, and emit complete ones; ``time`` None: no more rows."""
        times = self._matcher.times
        within = self._matcher.within
        earliest = self._partial[0].first
        # Rows are in the order of time: while the earliest match is in time, all are.
        if within is not None and earliest != _NEVER and (time is None or time - times[earliest] >= within):
            in_time = _Heap()
            for item in self._partial:
                if item.first == _NEVER or (time is not None and time - times[item.first] < within):
                    in_time.add(item)
            self._partial = in_time
        if self._complete:
            yield from self._emit(self._partial, row)

    def process(self, row: int) -> Iterator[Match]:
        """Offer a row to every open match, and to a new one."""
        following = _Heap()
        complete = _Heap()
        for item in self._partial:
            for continuation in self._continuations(item, row):
                (complete if continuation.state.variable is None else following).add(continuation)
        for item in complete:
            self._complete.add(item)
        if self._complete:
            yield from self._emit(following, row)
        self._partial = following

    def _continuations(self, item: _Open, row: int) -> Iterable[_Open]:
        """Return the continuations of a match with the row, one for each variable that takes it."""
        conditions = self._matcher.conditions
        variables = len(self._matcher.conditions)
        first, state, bounds = item
        begins = first == _NEVER
        if begins:
            first = row
            bounds = (row,) * (variables + 1)
        continuations: list[_Open] = []
        while state.variable is not None and not (state.not_for and self._is_held_back(state, row, bounds)):
            variable = state.variable
            following = state.next
            if following is not None and conditions[variable](row, bounds):
                extended = bounds[: variable + 1] + (row + 1,) * (variables - variable)
                continuations.append(_Open(first, following, extended))
                final = self._final_after(following, row, bounds)
                if final is not None:
                    continuations.append(_Open(first, final, extended))
            if state.proceed is None:
                break
            state = state.proceed
        if begins:
            continuations.append(item)
        return continuations

    def _is_held_back(self, state: State, row: int, bounds: Bounds) -> bool:
        """Whether a greedy loop before the state could take the row itself."""
        return any(self._matcher.conditions[variable](row, bounds) for variable in state.not_for)

    def _final_after(self, state: State, row: int, bounds: Bounds) -> State | None:
        """Return the final state if the state leads there without a further row."""
        while state.proceed is not None and not (state.not_for and self._is_held_back(state, row, bounds)):
            state = state.proceed
            if state.variable is None:
                return state
        return None

    def _emit(self, partial: _Heap, row: int) -> Iterator[Match]:
        """Emit complete matches, the earliest first, until an earlier one is still open."""
        while self._complete and (not partial or self._complete[0].first <= partial[0].first):
            match = self._complete.poll()
            limit = first_after(self._matcher.skip, match.bounds)
            for heap in (partial, self._complete):
                heap.remove_before(limit)
            yield Match(match.bounds, row)


def first_after(skip: Skip, bounds: Bounds) -> int:
    """Return the first row at which another match may begin.

    Raises:
        FraudlakeError: AFTER MATCH SKIP names a variable that has no row in the match, or its first row.
    """
    if skip.mode == "past_last":
        return bounds[-1]
    if skip.mode == "next":
        return bounds[0] + 1
    low = bounds[skip.variable]
    high = bounds[skip.variable + 1]
    target = low if skip.mode == "first" else high - 1
    clause = f"AFTER MATCH SKIP TO {skip.mode.upper()} {skip.name}"
    if low == high:
        raise FraudlakeError(f"{clause}: a match has no row of {skip.name}; Flink stops there, too")
    if target == bounds[0]:
        raise FraudlakeError(f"{clause}: it is the first row of a match, which would be found forever")
    return target
