"""Condition: what a condition in SQL says of each column, so that two conditions can be compared without any rows.

A condition becomes the cases in which it holds, each with a :class:`Domain` for every column. What is not a comparison
of a column with a constant is not looked into: it may be true, false or null, but is the same wherever it occurs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from fraudlake.errors import FraudlakeError
from fraudlake.rules.domain import Domain, Kind, Value
from fraudlake_patterns import sql

if TYPE_CHECKING:
    from fraudlake_patterns.expressions import Column

Wanted = Literal["true", "false", "not true", "not false"]
"""What a condition shall be; one that is null is neither true nor false."""
Case = dict[str, Domain]
"""A case: what each column may be, by its name, and what each condition may be that is not looked into, by its text."""

_MOST_CASES = 2_000
_EXACT = 2**53
"""Up to here every whole number is a double of its own."""
_OPAQUE: dict[Wanted, tuple[frozenset[Value], bool]] = {
    "true": (frozenset({True}), False),
    "false": (frozenset({False}), False),
    "not true": (frozenset({False}), True),
    "not false": (frozenset({True}), True),
}
_NOT: dict[Wanted, Wanted] = {"true": "false", "false": "true", "not true": "not false", "not false": "not true"}
_KINDS: dict[str, Kind] = {"BIGINT": "whole", "DOUBLE": "number", "STRING": "text", "BOOLEAN": "boolean"}
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}
_OPPOSITE: dict[type[exp.Expr], type[exp.Expr]] = {
    **{exp.GT: exp.LTE, exp.LTE: exp.GT, exp.LT: exp.GTE, exp.GTE: exp.LT},
    **{exp.EQ: exp.NEQ, exp.NEQ: exp.EQ},
}


class UndecidedError(FraudlakeError):
    """A condition has too many cases."""


@dataclass(frozen=True)
class Answer:
    """Whether some conditions can hold of one transaction; None: not decided. If they can, an example of it."""

    is_possible: bool | None
    example: Mapping[str, Value | None] | None = None


@dataclass(frozen=True)
class Condition:
    """A condition in SQL about a transaction, with the columns that it may name.

    ``variable`` is the pattern variable whose row it is about, which may stand before a column.
    """

    text: str
    columns: Mapping[str, Column]
    variable: str | None = None

    def cases(self, wanted: Wanted = "true") -> list[Case]:
        """Return the cases in which it is as wanted; none: never.

        Raises:
            UndecidedError: there are too many.
        """
        return _Reader(self.columns, self.variable).cases(sql.Text(self.text).parse(0, len(self.text)), wanted)


def both(some: Sequence[Case], others: Sequence[Case]) -> list[Case]:
    """Return the cases in which one of some and one of others holds.

    Raises:
        UndecidedError: there are too many.
    """
    joined = [case for one in some for other in others if (case := _joined(one, other)) is not None]
    if len(joined) > _MOST_CASES:
        raise UndecidedError("the condition has too many cases")
    return joined


def answer(cases: Iterable[Case]) -> Answer:
    """Say whether there is a transaction of one of some cases."""
    is_open = False
    for case in cases:
        if any(domain.kind == "opaque" for domain in case.values()):
            is_open = True
            continue
        return Answer(True, {name: _example(domain) for name, domain in sorted(case.items())})
    return Answer(None if is_open else False)


def _example(domain: Domain) -> Value | None:
    """Return a value of a domain: null or NaN only if it has nothing else."""
    value = domain.example()
    return math.nan if value is None and not domain.is_null else value


def _joined(one: Case, other: Case) -> Case | None:
    case = dict(one)
    for name, domain in other.items():
        case[name] = domain.both(case[name]) if name in case else domain
        if case[name].is_empty:
            return None
    return case


class _Reader:
    """Reads the cases of a parsed condition."""

    def __init__(self, columns: Mapping[str, Column], variable: str | None) -> None:
        self._columns = columns
        self._variable = variable

    def cases(self, node: exp.Expr, wanted: Wanted) -> list[Case]:
        match node:
            case exp.Paren():
                return self.cases(node.this, wanted)
            case exp.Not():
                return self.cases(node.this, _NOT[wanted])
            case exp.And() | exp.Or():
                parts = [self.cases(part, wanted) for part in (node.this, node.expression)]
                # Both parts have to be true for AND, and none of them false; for OR it is the other way round.
                is_both = (wanted in ("true", "not false")) == isinstance(node, exp.And)
                return both(*parts) if is_both else [*parts[0], *parts[1]]
            case exp.Boolean():
                return [{}] if bool(node.this) == (wanted in ("true", "not false")) else []
            case exp.Between() if not node.args.get("symmetric"):
                return self.cases(exp.and_(exp.GTE(this=node.this, expression=node.args["low"]),
                                           exp.LTE(this=node.this, expression=node.args["high"])), wanted)  # fmt: skip
        cases = self._compared(node, wanted)
        if cases is None:
            return [self._opaque(node, wanted)]
        return [case for case in cases if not any(domain.is_empty for domain in case.values())]

    def _compared(self, node: exp.Expr, wanted: Wanted) -> list[Case] | None:
        """Return the cases of a comparison of a column with constants; None: it is something else."""
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            named = self._column(node.this)
            if named is None:
                return None
            name, all_values = named
            is_null = wanted in ("true", "not false")
            nothing = replace(all_values, is_nan=False, included=frozenset())
            return [{name: nothing if is_null else replace(all_values, is_null=False)}]
        if isinstance(node, exp.Column):
            return self._in(node, [True], wanted) if self._kind(node) == "boolean" else None
        if isinstance(node, exp.In):
            values = [_constant(one) for one in node.expressions]
            return self._in(node.this, values, wanted) if node.expressions and None not in values else None
        if type(node) not in _OPPOSITE:
            return None
        left, right, operator = node.this, node.expression, type(node)
        if _constant(left) is not None:
            left, right, operator = right, left, _FLIPPED.get(operator, operator)
        value = _constant(right)
        if value is None:
            return None
        if operator in (exp.EQ, exp.NEQ):
            return self._in(left, [value], wanted if operator is exp.EQ else _NOT[wanted])
        return self._ordered(left, operator, value, wanted)

    def _in(self, column: exp.Expr, values: list[Any], wanted: Wanted) -> list[Case] | None:
        """Return the cases of a column that shall be among some values."""
        named = self._column(column)
        if named is None or any(not _fits(named[1].kind, value) for value in values):
            return None
        name, all_values = named
        is_among = wanted in ("true", "not false")
        is_null = wanted.startswith("not")
        of_values = (
            replace(all_values, is_nan=False, included=frozenset(values))
            if is_among
            else replace(all_values, excluded=frozenset(values))
        )
        return [{name: replace(of_values, is_null=is_null)}]

    def _ordered(self, column: exp.Expr, operator: type[exp.Expr], value: Any, wanted: Wanted) -> list[Case] | None:
        """Return the cases of a column that is compared with a number."""
        named = self._column(column)
        if named is None or named[1].kind not in ("number", "whole") or not _fits(named[1].kind, value):
            return None
        name, all_values = named
        is_true = wanted in ("true", "not false")
        operator = operator if is_true else _OPPOSITE[operator]
        is_open = operator in (exp.GT, exp.LT)
        limits: dict[str, Any] = (
            {"low": value, "is_low_open": is_open}
            if operator in (exp.GT, exp.GTE)
            else {"high": value, "is_high_open": is_open}
        )
        # NaN is neither above nor below anything.
        is_nan = all_values.is_nan and not is_true
        return [{name: replace(all_values, is_null=wanted.startswith("not"), is_nan=is_nan, **limits)}]

    def _opaque(self, node: exp.Expr, wanted: Wanted) -> Case:
        included, is_null = _OPAQUE[wanted]
        return {node.sql(): replace(Domain.whole("opaque"), included=included, is_null=is_null)}

    def _column(self, node: exp.Expr) -> tuple[str, Domain] | None:
        """Return a column of the transaction, with all of its values."""
        if isinstance(node, exp.Paren):
            return self._column(node.this)
        kind = self._kind(node)
        return None if kind is None else (self._columns[node.name].name, Domain.whole(kind))

    def _kind(self, node: exp.Expr) -> Kind | None:
        if not isinstance(node, exp.Column) or node.name not in self._columns:
            return None
        if node.table and node.table != self._variable:
            return None
        return _KINDS.get(self._columns[node.name].type.name)


def _constant(node: exp.Expr) -> Value | None:
    if isinstance(node, exp.Paren):
        return _constant(node.this)
    if isinstance(node, exp.Neg):
        value = _constant(node.this)
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return str(node.this)
    return _number(str(node.this))


def _number(text: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _fits(kind: Kind, value: Value) -> bool:
    """Return whether a constant can be compared with a column without a conversion that rounds."""
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, str):
        return kind == "text"
    if abs(value) <= _EXACT:
        return kind in ("number", "whole")
    # A whole number and a double are compared as doubles, of which several whole numbers are one.
    return kind == ("number" if isinstance(value, float) else "whole")
