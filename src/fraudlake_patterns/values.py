"""Values: defines Flink SQL's types, and expressions over them that run on single rows or whole columns.

A value is a Python bool, int, float, Decimal or str, a timestamp or an interval as whole microseconds, or None for
NULL. A column of values is a :class:`Vector`. An expression supports both: `bind` makes a function for a single row,
and `vector` computes all rows at once. Tests check that their results are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fraudlake.arrays import Vector


class Type(NamedTuple):
    """A type of Flink SQL; precision and scale belong to DECIMAL."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"{self.name}({self.precision}, {self.scale})" if self.name == "DECIMAL" else self.name

    @property
    def is_numeric(self) -> bool:
        """Whether it is a number type."""
        return self.name in ("INT", "BIGINT", "DECIMAL", "DOUBLE")

    @property
    def is_integer(self) -> bool:
        """Whether it is one of Java's integer types."""
        return self.name in ("INT", "BIGINT")


BOOLEAN = Type("BOOLEAN")
STRING = Type("STRING")
DOUBLE = Type("DOUBLE")
INT = Type("INT", 10)
BIGINT = Type("BIGINT", 19)
TIMESTAMP = Type("TIMESTAMP")
INTERVAL = Type("INTERVAL")
NULL = Type("NULL")
_MAX_PRECISION = 38


def decimal(precision: int, scale: int) -> Type:
    """Return a DECIMAL type; beyond 38 digits the scale is reduced first, as in Flink."""
    if precision > _MAX_PRECISION:
        whole = precision - scale
        scale = max(_MAX_PRECISION - whole, min(scale, 6))
        precision = _MAX_PRECISION
    return Type("DECIMAL", precision, scale)


Bounds = tuple[int, ...]
"""The rows of each variable in a match: those of variable v are ``bounds[v]`` up to ``bounds[v + 1]``. The rows of a
match are always consecutive."""
Scalar = Callable[[int, Bounds], Any]
"""Computes a value from the number of the current row, or of the last row of a match, and the bounds so far."""


@dataclass
class Binding:
    """The columns that an expression is bound to, as lists, and the state of its aggregates."""

    columns: Mapping[str, list[Any]]
    sums: list[dict[int, list[Any]]] = field(default_factory=list)
    """For each aggregate, by the first row of a range: its state after each further row."""
    emitted: int = 0
    """The event time at which the match was emitted, for MATCH_ROWTIME."""

    def forget(self) -> None:
        """Drop the state of aggregates, which no open match needs."""
        for sums in self.sums:
            sums.clear()


@dataclass(frozen=True)
class Scope:
    """Many matches of one shape at once: ``size`` of them, each beginning one row after the one before it.

    ``bounds`` and ``current`` count from a match's first row.
    """

    columns: Mapping[str, Vector]
    size: int
    bounds: Bounds
    current: int

    def column(self, name: str, position: int) -> Vector:
        """Return a column of each match's row at ``position``."""
        return self.columns[name].slice(position, position + self.size)

    def constant(self, value: Any, type_: Type) -> Vector:
        """Return a column of one value."""
        filled = np.full(self.size, _zero(type_) if value is None else value, dtype=_dtype(type_))
        return Vector(filled, np.ones(self.size, bool) if value is None else None)


def _dtype(type_: Type) -> Any:
    names = {"BOOLEAN": np.bool_, "DOUBLE": np.float64, "INT": np.int64, "BIGINT": np.int64}
    return (names | {"TIMESTAMP": np.int64, "INTERVAL": np.int64}).get(type_.name, object)


def _zero(type_: Type) -> Any:
    return {"STRING": "", "BOOLEAN": False, "DECIMAL": Decimal(0), "DOUBLE": 0.0}.get(type_.name, 0)


def vector(values: Sequence[Any], type_: Type) -> Vector:
    """Make a column of Python values, None for NULL."""
    null = np.fromiter((value is None for value in values), bool, len(values))
    if not null.any():
        return Vector(np.array(values, dtype=_dtype(type_)))
    zero = _zero(type_)
    return Vector(np.array([zero if value is None else value for value in values], dtype=_dtype(type_)), null)


@dataclass(frozen=True)
class Expression:
    """A typed expression."""

    type: Type
    bind: Callable[[Binding], Scalar]
    vector: Callable[[Scope], Vector]
    current_only: bool = True
    """Whether it depends on nothing but the current row."""
    constant: bool = True
    """Whether it depends on no row at all."""
    columns: frozenset[str] = frozenset()
    """The columns that it reads."""


def constant(value: Any, type_: Type) -> Expression:
    """Return a constant."""
    return Expression(type_, lambda _: lambda row, bounds: value, lambda scope: scope.constant(value, type_))


def value_of(expression: Expression) -> Any:
    """Return the value of an expression that is constant."""
    return expression.bind(Binding({}))(0, ())


def strict(
    type_: Type, function: Callable[..., Any], *operands: Expression, columns: Callable[..., Any] | None = None
) -> Expression:
    """Return a call that is NULL if an operand is.

    Args:
        type_: the result's type.
        function: computes the result of single values.
        operands: its arguments.
        columns: computes the results of arrays; by default ``function``, value by value.
    """
    of_columns = columns or _each(function, len(operands), type_)

    def bind(binding: Binding) -> Scalar:
        bound = [operand.bind(binding) for operand in operands]
        if len(bound) == 1:
            (only,) = bound

            def unary(row: int, bounds: Bounds) -> Any:
                value = only(row, bounds)
                return None if value is None else function(value)

            return unary
        if len(bound) == 2:
            first, second = bound

            def binary(row: int, bounds: Bounds) -> Any:
                left = first(row, bounds)
                if left is None:
                    return None
                right = second(row, bounds)
                return None if right is None else function(left, right)

            return binary

        def call(row: int, bounds: Bounds) -> Any:
            values = [operand(row, bounds) for operand in bound]
            return None if None in values else function(*values)

        return call

    def vector_of(scope: Scope) -> Vector:
        vectors = [operand.vector(scope) for operand in operands]
        with np.errstate(all="ignore"):
            values = of_columns(*(each.values for each in vectors))
        return Vector(values, _any_null(vectors))

    return _combined(type_, bind, vector_of, operands)


def _combined(
    type_: Type,
    bind: Callable[[Binding], Scalar],
    vector_of: Callable[[Scope], Vector],
    operands: Sequence[Expression],
) -> Expression:
    current_only = all(operand.current_only for operand in operands)
    is_constant = all(operand.constant for operand in operands)
    columns = frozenset[str]().union(*(operand.columns for operand in operands))
    return Expression(type_, bind, vector_of, current_only, is_constant, columns)


def _any_null(vectors: Sequence[Vector]) -> NDArray[np.bool_] | None:
    nulls = [each.null for each in vectors if each.null is not None]
    return np.logical_or.reduce(nulls) if nulls else None


def _each(function: Callable[..., Any], count: int, type_: Type) -> Callable[..., Any]:
    def each(*arrays: NDArray[Any]) -> NDArray[Any]:
        of_objects = np.frompyfunc(function, count, 1)  # made here, since it cannot be pickled, as an expression is
        values: NDArray[Any] = of_objects(*(array.astype(object) for array in arrays)).astype(_dtype(type_))
        return values

    return each


def general(type_: Type, function: Callable[..., Any], *operands: Expression) -> Expression:
    """Return a call whose function handles NULL (None) itself; its arguments are computed values."""

    def bind(binding: Binding) -> Scalar:
        bound = [operand.bind(binding) for operand in operands]
        return lambda row, bounds: function(*[operand(row, bounds) for operand in bound])

    def vector_of(scope: Scope) -> Vector:
        lists = [operand.vector(scope).to_list() for operand in operands]
        return vector([function(*values) for values in zip(*lists, strict=True)], type_)

    return _combined(type_, bind, vector_of, operands)


def logical_and(left: Expression, right: Expression) -> Expression:
    """Return AND, in SQL's three-valued logic."""
    return _logical(left, right, decisive=False)


def logical_or(left: Expression, right: Expression) -> Expression:
    """Return OR, in SQL's three-valued logic."""
    return _logical(left, right, decisive=True)


def _logical(left: Expression, right: Expression, decisive: bool) -> Expression:
    """A side equal to ``decisive`` decides; otherwise the result is NULL if a side is, else ``not decisive``."""

    def bind(binding: Binding) -> Scalar:
        first = left.bind(binding)
        second = right.bind(binding)

        def either(row: int, bounds: Bounds) -> Any:
            one = first(row, bounds)
            if one is decisive:
                return decisive
            other = second(row, bounds)
            if other is decisive:
                return decisive
            return None if one is None or other is None else not decisive

        return either

    def vector_of(scope: Scope) -> Vector:
        sides = [left.vector(scope), right.vector(scope)]
        decided = np.zeros(scope.size, bool)
        for side in sides:
            is_decisive = side.values if decisive else ~side.values
            decided |= is_decisive if side.null is None else is_decisive & ~side.null
        null = _any_null(sides)
        return Vector(decided if decisive else ~decided, None if null is None else null & ~decided)

    return _combined(BOOLEAN, bind, vector_of, (left, right))


def is_null(operand: Expression) -> Expression:
    """Return IS NULL."""

    def bind(binding: Binding) -> Scalar:
        bound = operand.bind(binding)
        return lambda row, bounds: bound(row, bounds) is None

    def vector_of(scope: Scope) -> Vector:
        null = operand.vector(scope).null
        return Vector(np.zeros(scope.size, bool) if null is None else null)

    return _combined(BOOLEAN, bind, vector_of, (operand,))


def logical_not(operand: Expression) -> Expression:
    """Return NOT."""
    return strict(BOOLEAN, lambda value: not value, operand, columns=np.logical_not)


def case(type_: Type, branches: Sequence[tuple[Expression, Expression]], otherwise: Expression) -> Expression:
    """Return the result of the first branch whose condition is true."""

    def bind(binding: Binding) -> Scalar:
        bound = [(condition.bind(binding), result.bind(binding)) for condition, result in branches]
        default = otherwise.bind(binding)

        def choose(row: int, bounds: Bounds) -> Any:
            for condition, result in bound:
                if condition(row, bounds):
                    return result(row, bounds)
            return default(row, bounds)

        return choose

    def vector_of(scope: Scope) -> Vector:
        values, null = otherwise.vector(scope)
        null = np.zeros(scope.size, bool) if null is None else null
        for condition, result in reversed(branches):
            holds = condition.vector(scope)
            chosen = holds.values if holds.null is None else holds.values & ~holds.null
            branch = result.vector(scope)
            values = np.where(chosen, branch.values, values)
            null = np.where(chosen, False if branch.null is None else branch.null, null)
        return Vector(values, null)

    parts = [part for branch in branches for part in branch]
    return _combined(type_, bind, vector_of, [*parts, otherwise])


@dataclass(frozen=True)
class Rows:
    """The rows of one variable, or of the whole match (``variable`` None), at the moment of evaluation.

    ``with_current`` adds the current row, which is not among the bounds yet.
    """

    variable: int | None
    with_current: bool

    def range(self, current: int, bounds: Bounds) -> tuple[int, int]:
        """Return the first row and the one after the last."""
        if self.variable is None:
            return bounds[0], current + 1
        return bounds[self.variable], current + 1 if self.with_current else bounds[self.variable + 1]


def reference(type_: Type, column: str, rows: Rows, first: bool = False, offset: int = 0) -> Expression:
    """Return a column of one of the rows, ``offset`` rows from the first or the last; NULL if there is none."""
    current_only = rows.with_current and not first and offset == 0

    def bind(binding: Binding) -> Scalar:
        values = binding.columns[column]
        span = rows.range
        if current_only:
            return lambda row, bounds: values[row]

        def look_up(row: int, bounds: Bounds) -> Any:
            low, high = span(row, bounds)
            number = low + offset if first else high - 1 - offset
            return values[number] if low <= number < high else None

        return look_up

    def vector_of(scope: Scope) -> Vector:
        low, high = rows.range(scope.current, scope.bounds)
        number = low + offset if first else high - 1 - offset
        return scope.column(column, number) if low <= number < high else scope.constant(None, type_)

    return Expression(type_, bind, vector_of, current_only, False, frozenset({column}))


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function: it adds values to its state one at a time, from left to right, as in Flink."""

    type: Type
    grow: Callable[[Any, Any], Any]
    """Takes the state and a value that is not NULL; returns the new state."""
    begin: Any = None
    result: Callable[[Any], Any] | None = None
    """Turns the last state into the result; None: the state is the result."""


def aggregate(function: Aggregate, operand: Expression, rows: Rows) -> Expression:
    """Return an aggregate over rows; ``operand`` is evaluated with each as the current row."""

    def bind(binding: Binding) -> Scalar:
        value_of_row = operand.bind(binding)
        span = rows.range
        sums: dict[int, list[Any]] = {}
        binding.sums.append(sums)
        grow = function.grow
        result = function.result or (lambda state: state)

        def sum_up(row: int, bounds: Bounds) -> Any:
            low, high = span(row, bounds)
            states = sums.get(low)
            if states is None:
                states = sums[low] = [function.begin]
            for number in range(low + len(states) - 1, high):
                value = value_of_row(number, bounds)
                states.append(states[-1] if value is None else grow(states[-1], value))
            return result(states[high - low])

        return sum_up

    def vector_of(scope: Scope) -> Vector:
        low, high = rows.range(scope.current, scope.bounds)
        lists = [
            operand.vector(Scope(scope.columns, scope.size, scope.bounds, number)).to_list()
            for number in range(low, high)
        ]
        totals = []
        for values in zip(*lists, strict=True) if lists else [()] * scope.size:
            state = function.begin
            for value in values:
                state = state if value is None else function.grow(state, value)
            totals.append(function.result(state) if function.result else state)
        return vector(totals, function.type)

    return Expression(function.type, bind, vector_of, False, False, operand.columns)


def match_time(column: str, in_measures: bool) -> Expression:
    """Return MATCH_ROWTIME: the event time at which a match is emitted, or in a condition that of the current row."""

    def bind(binding: Binding) -> Scalar:
        times = binding.columns[column]
        return (lambda row, bounds: binding.emitted) if in_measures else (lambda row, bounds: times[row])

    def vector_of(scope: Scope) -> Vector:
        return scope.column(column, scope.current)

    return Expression(TIMESTAMP, bind, vector_of, not in_measures, False, frozenset({column}))


def quantized(value: Decimal, type_: Type) -> Decimal | None:
    """Round to a DECIMAL's scale, half away from zero; None if it has too many digits."""
    with localcontext() as context:
        context.prec = 100
        rounded = value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP)
    return rounded if abs(rounded) < Decimal(10) ** (type_.precision - type_.scale) else None


def wrapped(value: int, type_: Type) -> int:
    """Wrap an integer on overflow, as Java does."""
    bits = 32 if type_ == INT else 64
    half = 1 << (bits - 1)
    return value if -half <= value < half else (value + half) % (1 << bits) - half


def truncated_quotient(left: int, right: int) -> int:
    """Divide whole numbers towards zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def divided(left: float, right: float) -> float:
    """Divide as IEEE 754 says, without an error at zero."""
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def truncated(value: float, type_: Type) -> int:
    """Turn a DOUBLE into a whole number as Java does: towards zero, within the type's bounds."""
    half = 1 << (31 if type_ == INT else 63)
    return 0 if math.isnan(value) else max(-half, min(half - 1, int(max(min(value, 1e19), -1e19))))


def double_text(value: float) -> str:
    """Write a DOUBLE as Java does: 1.0E7 from ten million on, 1.0E-4 below a thousandth."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{Decimal(repr(value)):f}" if "e" in repr(value) else repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + int(exponent)
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"
