"""The automaton: compiles variables with quantifiers to the same states and transitions as Flink's CEP library.

In Flink SQL a match skips no rows, so its rows are consecutive, and so are those of each variable. A state takes the
current row for its variable, or proceeds to another state that may take the same row. A greedy loop does not proceed
with a row that it could take itself (Flink's `NFACompiler`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Variable(NamedTuple):
    """A pattern variable and how many rows it takes; ``most`` None: any number."""

    name: str
    least: int = 1
    most: int | None = 1
    greedy: bool = True

    @property
    def is_greedy_loop(self) -> bool:
        """Whether it takes a varying number of rows, and as many as it can (Flink does not treat `?` as a loop)."""
        return self.greedy and self.least != self.most and (self.least, self.most) != (0, 1)

    @property
    def is_optional(self) -> bool:
        """Whether it is `?` or `*` (Flink treats `{0,3}` as another kind of loop)."""
        return self.least == 0 and self.most in (1, None)


@dataclass
class State:
    """A state of the automaton; ``variable`` takes the row. The final state has no variable."""

    variable: int | None
    next: State | None = None
    """The state after the row was taken."""
    proceed: State | None = None
    """The state to which it may proceed without taking the row."""
    not_for: list[int] = field(default_factory=list)
    """Variables of greedy loops before it: a row that fits one of them is neither taken nor passed on."""
    number: int = 0


def compile_states(variables: tuple[Variable, ...]) -> list[State]:
    """Return all states; a match begins in the last and is complete in the first."""
    states = [State(None)]
    sink = states[0]
    for number in reversed(range(len(variables))):
        sink = _add(states, variables[number], number, sink)
    for number, state in enumerate(states):
        state.number = number
    return states


def _add(states: list[State], variable: Variable, number: int, sink: State) -> State:
    """Add the states of a variable that lead to ``sink``; return the first of them."""

    def state(following: State | None, proceed: State | None) -> State:
        added = State(number, following, proceed)
        states.append(added)
        return added

    last = sink
    least = max(variable.least, 1)
    if variable.most is None:
        last = state(None, sink)
        last.next = last
    if variable.is_greedy_loop:
        sink.not_for.append(number)
    for _ in range(least, variable.most or least):
        last = state(last, sink)
    for _ in range(least - 1):
        last = state(last, None)
    return state(last, sink if variable.least == 0 else None)


def can_be_empty(states: list[State]) -> bool:
    """Return whether a match may have no row at all."""
    state: State | None = states[-1]
    while state is not None:
        if state.variable is None:
            return True
        state = state.proceed
    return False
