"""Expressions: compiles SQL conditions and measures to typed expressions, with Flink's types and results.

Only the functions and operators in the tables of this module are allowed; all others are refused by name and position.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, NamedTuple, NoReturn

import numpy as np
from sqlglot import exp

from fraudlake_patterns import sql, values
from fraudlake_patterns.values import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    STRING,
    TIMESTAMP,
    Expression,
    Rows,
    Type,
    decimal,
    strict,
)

SECOND = 1_000_000
UNITS = {"SECOND": SECOND, "MINUTE": 60 * SECOND, "HOUR": 3600 * SECOND, "DAY": 86400 * SECOND}


class Column(NamedTuple):
    """A column of the rows: its name there, and its type."""

    name: str
    type: Type


@dataclass(frozen=True)
class Context:
    """The place of an expression in the query, which decides what its names mean."""

    text: sql.Text
    columns: Mapping[str, Column]
    """The columns by their names in a query."""
    time: str
    """The name of the time column."""
    variables: tuple[str, ...] = ()
    defined: str | None = None
    """The variable whose condition this is; None in a measure."""
    table: str | None = None
    """The name before a column of the outer query."""
    is_outer: bool = False
    position: tuple[bool, int] | None = None
    """Within FIRST or LAST: whether it is FIRST, and the offset."""
    in_aggregate: bool = False

    def refuse(self, node: exp.Expr, reason: str) -> NoReturn:
        """Raise an error about a part of the expression."""
        self.text.refuse(sql.position(node), reason)


def build(node: exp.Expr, context: Context) -> Expression:
    """Turn a parsed expression into a typed one.

    Raises:
        UsageError: a name is unknown, a type does not fit, or something is not supported; with its position.
    """
    builder = _BUILDERS.get(type(node))
    unknown = sorted(name for name, part in node.args.items() if part and name not in _KNOWN_PARTS)
    if builder is None or unknown:
        context.refuse(node, f"{' '.join([_called(node), *unknown])} is not supported")
    built = builder(node, context)
    return values.logical_not(built) if node.args.get("negate") else built


_KNOWN_PARTS = {"this", "expression", "expressions", "table", "low", "high", "symmetric", "unit", "ifs", "default"}
_KNOWN_PARTS |= {"true", "false", "to", "start", "length", "position", "is_string", "negate", "safe", "typed", "_type"}
"""The parts of an expression that the builders below use; any other part from sqlglot is refused."""


def condition(node: exp.Expr, context: Context) -> Expression:
    """Turn a parsed condition into an expression of type BOOLEAN."""
    return _boolean(node, context, "a condition must be BOOLEAN")


def _called(node: exp.Expr) -> str:
    return node.key.upper()


# ---- literals


def _literal(node: exp.Literal, context: Context) -> Expression:
    text = str(node.this)
    if node.is_string:
        return values.constant(text, STRING)
    if "e" in text.lower():
        try:
            return values.constant(float(text), DOUBLE)
        except ValueError:  # the tokenizer accepts 9E as a number
            context.refuse(node, f"{text} is not a number")
    if "." in text:
        number = Decimal(text)
        digits = len(number.as_tuple().digits)
        scale = -int(number.as_tuple().exponent)
        return values.constant(number, decimal(max(digits, scale), scale))
    whole = int(text)
    if whole < 1 << 31:
        return values.constant(whole, INT)
    if whole >= 1 << 63:
        context.refuse(node, f"{text} is too large")
    return values.constant(whole, BIGINT)


def _interval(node: exp.Interval, context: Context) -> Expression:
    return values.constant(interval(node, context), INTERVAL)


_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")


def interval(node: exp.Expr, context: Context) -> int:
    """Return an interval of days to seconds, such as ``INTERVAL '1:30' MINUTE TO SECOND``, in microseconds."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        context.refuse(node, "an interval is expected, such as INTERVAL '60' SECOND")
    unit = node.args.get("unit")
    first = (
        (unit.this.name if isinstance(unit, exp.IntervalSpan) else unit.name if unit else "").upper().removesuffix("S")
    )
    last = (unit.expression.name if isinstance(unit, exp.IntervalSpan) else first).upper().removesuffix("S")
    if first not in _FIELDS or last not in _FIELDS or _FIELDS.index(last) < _FIELDS.index(first):
        context.refuse(node, f"an interval is of {', '.join(_FIELDS)}, not of {first or 'no unit'}")
    fields = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    separators = {"HOUR": " ", "MINUTE": ":", "SECOND": ":"}
    pattern = "".join(
        (re.escape(separators[name]) if number else "") + (r"(\d+(?:\.\d{1,9})?)" if name == "SECOND" else r"(\d+)")
        for number, name in enumerate(fields)
    )
    match = re.fullmatch(rf"\s*([+-]?){pattern}\s*", str(node.this.this))
    if match is None:
        context.refuse(
            node, f"'{node.this.this}' is not an interval of {first}" + (f" TO {last}" if last != first else "")
        )
    total = sum(Decimal(text) * UNITS[name] for text, name in zip(match.groups()[1:], fields, strict=True))
    milliseconds = int(total) // 1000
    return (-1 if match[1] == "-" else 1) * milliseconds * 1000


# ---- columns


def _column(node: exp.Column, context: Context) -> Expression:
    if node.args.get("db") is not None:
        context.refuse(node, f"'{node.sql()}' is not a column")
    if isinstance(node.this, exp.Star):
        context.refuse(node, f"'{node.sql()}' is not supported here")
    name = node.name
    table = node.table
    if context.is_outer:
        if table and table != context.table:
            context.refuse(node, f"there is no table '{table}'")
        return _reference(node, name, Rows(None, True), context)
    return _reference(node, name, _rows_of(node, table, context), context)


def _rows_of(node: exp.Expr, variable: str, context: Context) -> Rows:
    """Return the rows of a variable, or all rows of the match if no variable is named."""
    if not variable:
        return Rows(None, context.defined is not None)
    if variable not in context.variables:
        context.refuse(node, f"there is no variable '{variable}' in PATTERN")
    return Rows(context.variables.index(variable), variable == context.defined)


def _reference(node: exp.Column, name: str, rows: Rows, context: Context) -> Expression:
    column = context.columns.get(name)
    if column is None:
        context.refuse(node.this, f"there is no column '{name}'; there are {', '.join(context.columns)}")
    if context.in_aggregate:
        return values.reference(column.type, column.name, Rows(None, True))
    first, offset = context.position or (False, 0)
    return values.reference(column.type, column.name, rows, first, offset)


def _one_variable(node: exp.Expr, parts: Sequence[exp.Expr], context: Context, what: str) -> Rows | None:
    """Return the rows of the columns in an expression; all columns must belong to one variable."""
    columns = [column for part in parts for column in part.find_all(exp.Column)]
    tables = {column.table for column in columns}
    if len(tables) > 1:
        names = ", ".join(sorted(table or "all rows" for table in tables))
        context.refuse(node, f"{what} takes the rows of one variable, not of several ({names})")
    return _rows_of(node, tables.pop(), context) if tables else None


# ---- logic and comparison


def _boolean(node: exp.Expr, context: Context, reason: str = "BOOLEAN is expected") -> Expression:
    built = build(node, context)
    if built.type == NULL:
        return values.constant(None, BOOLEAN)
    if built.type != BOOLEAN:
        context.refuse(node, f"{reason}, not {built.type}")
    return built


def _and(node: exp.And, context: Context) -> Expression:
    return values.logical_and(_boolean(node.left, context), _boolean(node.right, context))


def _or(node: exp.Or, context: Context) -> Expression:
    return values.logical_or(_boolean(node.left, context), _boolean(node.right, context))


def _not(node: exp.Not, context: Context) -> Expression:
    return values.logical_not(_boolean(node.this, context))


_COMPARISONS: dict[type[exp.Binary], tuple[Callable[..., Any], Callable[..., Any]]] = {
    exp.EQ: (lambda a, b: a == b, np.equal),
    exp.NEQ: (lambda a, b: a != b, np.not_equal),
    exp.LT: (lambda a, b: a < b, np.less),
    exp.LTE: (lambda a, b: a <= b, np.less_equal),
    exp.GT: (lambda a, b: a > b, np.greater),
    exp.GTE: (lambda a, b: a >= b, np.greater_equal),
}


def _comparison(node: exp.Binary, context: Context) -> Expression:
    return _compare(type(node), node, build(node.left, context), build(node.right, context), context)


def _compare(
    operator: type[exp.Binary], node: exp.Expr, left: Expression, right: Expression, context: Context
) -> Expression:
    left, right = _comparable(node, left, right, context)
    function, columns = _COMPARISONS[operator]
    return strict(BOOLEAN, function, left, right, columns=lambda a, b: columns(a, b).astype(bool))


def _comparable(node: exp.Expr, left: Expression, right: Expression, context: Context) -> tuple[Expression, Expression]:
    common = _common_type([left, right])
    if common is None:
        # As in Flink, a text constant counts as a number or a time if one is needed.
        if left.type == STRING and left.constant:
            return _from_text(node, left, right.type, context), right
        if right.type == STRING and right.constant:
            return left, _from_text(node, right, left.type, context)
        context.refuse(node, f"{left.type} cannot be compared with {right.type}")
    return _as(left, common), _as(right, common)


def _from_text(node: exp.Expr, text: Expression, type_: Type, context: Context) -> Expression:
    value = values.value_of(text)
    try:
        if not type_.is_numeric and type_ != TIMESTAMP:
            raise ValueError
        read = float(value) if type_.is_numeric else microseconds(value)
    except (ValueError, TypeError):
        context.refuse(node, f"'{value}' cannot be compared with {type_}")
    return values.constant(read, DOUBLE if type_.is_numeric else TIMESTAMP)


def microseconds(text: str) -> int:
    """Read a time such as ``2026-01-01 00:10:00.5`` (UTC) as microseconds since 1970."""
    time = datetime.fromisoformat(text.strip()).replace(tzinfo=UTC)
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _common_type(parts: Sequence[Expression]) -> Type | None:
    """Return a type that all parts can be converted to; None if there is none."""
    types = {part.type for part in parts} - {NULL}
    if len(types) <= 1:
        return types.pop() if types else NULL
    if not all(type_.is_numeric for type_ in types):
        return None
    if DOUBLE in types:
        return DOUBLE
    if types == {INT, BIGINT}:
        return BIGINT
    scale = max(type_.scale for type_ in types)
    return decimal(max(type_.precision - type_.scale for type_ in types) + scale, scale)


def _as(part: Expression, type_: Type) -> Expression:
    """Convert an expression implicitly to a compatible type."""
    if part.type == type_:
        return part
    if part.type == NULL:
        return values.constant(None, type_)
    if type_ == DOUBLE:
        columns = (lambda array: array.astype(np.float64)) if part.type.is_integer else None
        return strict(DOUBLE, float, part, columns=columns)
    if type_.name == "DECIMAL":
        return strict(type_, lambda value: values.quantized(Decimal(value), type_), part)
    return replace(part, type=type_)


def _between(node: exp.Between, context: Context) -> Expression:
    tested, low, high = (build(part, context) for part in (node.this, node.args["low"], node.args["high"]))
    upwards = _within(node, tested, low, high, context)
    if node.args.get("symmetric"):
        return values.logical_or(upwards, _within(node, tested, high, low, context))
    return upwards


def _within(node: exp.Expr, tested: Expression, low: Expression, high: Expression, context: Context) -> Expression:
    return values.logical_and(
        _compare(exp.GTE, node, tested, low, context), _compare(exp.LTE, node, tested, high, context)
    )


def _in(node: exp.In, context: Context) -> Expression:
    if not node.expressions:
        context.refuse(node, "IN takes a list of values")
    tested = build(node.this, context)
    equal = [_compare(exp.EQ, item, tested, build(item, context), context) for item in node.expressions]
    result = equal[0]
    for further in equal[1:]:
        result = values.logical_or(result, further)
    return result


def _is(node: exp.Is, context: Context) -> Expression:
    wanted = node.expression
    if isinstance(wanted, exp.Null) or (isinstance(wanted, exp.Column) and wanted.name.upper() == "UNKNOWN"):
        return values.is_null(build(node.this, context))
    if not isinstance(wanted, exp.Boolean):
        context.refuse(node, "IS takes NULL, TRUE, FALSE or DISTINCT FROM")
    tested = _boolean(node.this, context)
    holds = tested if wanted.this else values.logical_not(tested)
    return values.logical_and(holds, values.logical_not(values.is_null(tested)))


def _is_not_distinct(node: exp.Expr, context: Context) -> Expression:
    left, right = _comparable(node, build(node.this, context), build(node.expression, context), context)
    return values.general(BOOLEAN, lambda a, b: a == b, left, right)


def _is_distinct(node: exp.Expr, context: Context) -> Expression:
    return values.logical_not(_is_not_distinct(node, context))


def _like(node: exp.Like, context: Context, escape: str | None = None) -> Expression:
    tested = build(node.this, context)
    pattern = build(node.expression, context)
    if tested.type not in (STRING, NULL) or pattern.type != STRING or not pattern.constant:
        context.refuse(node, "LIKE takes a STRING and a constant pattern")
    match = _like_pattern(str(values.value_of(pattern)), escape)
    if match is None:
        context.refuse(node.expression, "a pattern of LIKE may escape only %, _ and the escape character")
    matches = match.fullmatch
    return strict(BOOLEAN, lambda text: matches(text) is not None, _as(tested, STRING))


def _like_pattern(pattern: str, escape: str | None) -> re.Pattern[str] | None:
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            escaped = next(letters, "")
            if escaped not in ("%", "_", escape):
                return None
            parts.append(re.escape(escaped))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter, re.escape(letter)))
    return re.compile("".join(parts), re.DOTALL)


def _escape(node: exp.Escape, context: Context) -> Expression:
    mark = node.expression
    if not isinstance(node.this, exp.Like) or not isinstance(mark, exp.Literal) or len(mark.name) != 1:
        context.refuse(node, "ESCAPE takes one character, after LIKE")
    return _like(node.this, context, mark.name)


# ---- arithmetic


def _arithmetic(node: exp.Binary, context: Context) -> Expression:
    left = build(node.left, context)
    right = build(node.right, context)
    return _calculate(type(node), node, left, right, context)


_SYMBOLS: dict[type[exp.Binary], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_DOUBLES: dict[type[exp.Binary], tuple[Callable[..., Any], Callable[..., Any]]] = {
    exp.Add: (lambda a, b: a + b, np.add),
    exp.Sub: (lambda a, b: a - b, np.subtract),
    exp.Mul: (lambda a, b: a * b, np.multiply),
    exp.Div: (values.divided, np.divide),
}


def _calculate(
    operator: type[exp.Binary], node: exp.Expr, left: Expression, right: Expression, context: Context
) -> Expression:
    types = {left.type, right.type}
    if types == {TIMESTAMP, INTERVAL} and (operator is exp.Add or (operator is exp.Sub and right.type == INTERVAL)):
        return strict(TIMESTAMP, *_DOUBLES[operator][:1], left, right, columns=_DOUBLES[operator][1])
    if types == {INTERVAL} and operator in (exp.Add, exp.Sub):
        return strict(INTERVAL, *_DOUBLES[operator][:1], left, right, columns=_DOUBLES[operator][1])
    if not (left.type.is_numeric or left.type == NULL) or not (right.type.is_numeric or right.type == NULL):
        hint = "; TIMESTAMPDIFF does" if types == {TIMESTAMP} and operator is exp.Sub else ""
        context.refuse(node, f"'{_SYMBOLS[operator]}' does not take {left.type} and {right.type}{hint}")
    if types == {NULL}:
        return values.constant(None, INT)
    if NULL in types:
        return values.constant(None, left.type if right.type == NULL else right.type)
    if DOUBLE in types:
        if operator is exp.Mod:
            context.refuse(node, f"'%' takes whole numbers or DECIMAL, not {left.type} and {right.type}")
        function, columns = _DOUBLES[operator]
        return strict(DOUBLE, function, _as(left, DOUBLE), _as(right, DOUBLE), columns=columns)
    if all(type_.is_integer for type_ in types):
        return _whole(operator, node, left, right, context)
    return _exact(operator, node, left, right, context)


def _whole(
    operator: type[exp.Binary], node: exp.Expr, left: Expression, right: Expression, context: Context
) -> Expression:
    type_ = BIGINT if BIGINT in (left.type, right.type) else INT
    if operator in (exp.Div, exp.Mod):
        if right.constant and values.value_of(right) == 0:
            context.refuse(node, "a whole number is divided by zero")

        def divide(a: int | None, b: int | None) -> int | None:
            if a is None or not b:
                return None
            whole = values.truncated_quotient(a, b)
            return whole if operator is exp.Div else a - b * whole

        return values.general(right.type if operator is exp.Mod else type_, divide, left, right)
    function = _DOUBLES[operator][0]
    return strict(type_, lambda a, b: values.wrapped(function(a, b), type_), left, right)


def _exact(
    operator: type[exp.Binary], node: exp.Expr, left: Expression, right: Expression, context: Context
) -> Expression:
    (_, p1, s1), (_, p2, s2) = left.type, right.type
    if operator in (exp.Add, exp.Sub):
        scale = max(s1, s2)
        type_ = decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)
    elif operator is exp.Mul:
        type_ = decimal(p1 + p2, s1 + s2)
    elif operator is exp.Div:
        scale = max(6, s1 + p2 + 1)
        type_ = decimal(p1 - s1 + s2 + scale, scale)
    else:
        scale = max(s1, s2)
        type_ = decimal(min(p1 - s1, p2 - s2) + scale, scale)
    functions: dict[type[exp.Binary], Callable[..., Any]] = {exp.Div: lambda a, b: a / b, exp.Mod: lambda a, b: a % b}
    function = functions.get(operator) or _DOUBLES[operator][0]
    if operator in (exp.Div, exp.Mod) and right.constant and values.value_of(right) == 0:
        context.refuse(node, "a DECIMAL is divided by zero")

    def calculate(a: Any, b: Any) -> Decimal | None:
        with localcontext() as digits:
            digits.prec = 100
            return values.quantized(function(Decimal(a), Decimal(b)), type_)

    by_zero = operator in (exp.Div, exp.Mod)

    def checked(a: Any, b: Any) -> Decimal | None:
        return None if a is None or b is None or (by_zero and b == 0) else calculate(a, b)

    return values.general(type_, checked, left, right)


def _negative(node: exp.Neg, context: Context) -> Expression:
    operand = build(node.this, context)
    if not operand.type.is_numeric and operand.type != INTERVAL:
        context.refuse(node, f"'-' does not take {operand.type}")
    return strict(operand.type, lambda value: -value, operand, columns=np.negative)


def _concatenation(node: exp.DPipe, context: Context) -> Expression:
    return strict(STRING, lambda a, b: a + b, _text(node.left, context, "||"), _text(node.right, context, "||"))


def _text(node: exp.Expr, context: Context, what: str) -> Expression:
    built = build(node, context)
    if built.type not in (STRING, NULL):
        context.refuse(node, f"{what} takes STRING, not {built.type}")
    return _as(built, STRING)


def _number(node: exp.Expr, context: Context, what: str) -> Expression:
    built = build(node, context)
    if not built.type.is_numeric:
        context.refuse(node, f"{what} takes a number, not {built.type}")
    return built


# ---- choices


def _case(node: exp.Case, context: Context) -> Expression:
    conditions: list[Expression] = []
    subject = build(node.this, context) if node.this is not None else None
    for branch in node.args["ifs"]:
        if subject is None:
            conditions.append(_boolean(branch.this, context))
        else:
            conditions.append(_compare(exp.EQ, branch.this, subject, build(branch.this, context), context))
    default = node.args.get("default")
    results = [build(branch.args["true"], context) for branch in node.args["ifs"]]
    otherwise = values.constant(None, NULL) if default is None else build(default, context)
    return _choose(node, conditions, [*results, otherwise], context)


def _choose(node: exp.Expr, conditions: list[Expression], results: list[Expression], context: Context) -> Expression:
    common = _common_type(results)
    if common is None:
        context.refuse(node, f"the results are of different types: {', '.join(str(part.type) for part in results)}")
    *chosen, otherwise = (_as(part, common) for part in results)
    return values.case(common, list(zip(conditions, chosen, strict=True)), otherwise)


def _if(node: exp.If, context: Context) -> Expression:
    default = node.args.get("false")
    otherwise = values.constant(None, NULL) if default is None else build(default, context)
    return _choose(node, [_boolean(node.this, context)], [build(node.args["true"], context), otherwise], context)


def _cast(node: exp.Cast, context: Context) -> Expression:
    operand = build(node.this, context)
    wanted = node.args["to"]
    name = wanted.this.value
    if operand.type == STRING and operand.constant and name == "TIMESTAMP":
        return _from_text(node, operand, TIMESTAMP, context)
    type_ = {"INT": INT, "BIGINT": BIGINT, "DOUBLE": DOUBLE, "BOOLEAN": BOOLEAN, "TEXT": STRING}.get(name)
    if name == "VARCHAR" and not wanted.expressions:
        type_ = STRING
    if name == "DECIMAL":
        type_ = _decimal_type([size.name for size in wanted.expressions])
    if type_ is None:
        context.refuse(node, f"CAST to {wanted.sql()} is not supported")
    if operand.type in (type_, NULL):
        return _as(operand, type_)
    if type_ == STRING:
        return strict(STRING, lambda value: text_of(value, operand.type), operand)
    if operand.type.is_numeric and type_.is_numeric:
        return _to_number(operand, type_)
    if operand.type == STRING and type_.is_numeric and type_.name != "DECIMAL":
        return _parsed(operand, type_)
    if operand.type != BOOLEAN or not type_.is_integer:
        context.refuse(node, f"CAST of {operand.type} to {type_} is not supported")
    return strict(type_, int, operand)


def _parsed(operand: Expression, type_: Type) -> Expression:
    """Read numbers; any other text is NULL (Flink's job would fail)."""

    def parse(text: str | None) -> Any:
        try:
            return None if text is None else float(text) if type_ == DOUBLE else int(text)
        except ValueError:
            return None

    return values.general(type_, parse, operand)


def _to_number(operand: Expression, type_: Type) -> Expression:
    if type_ == DOUBLE:
        return _as(operand, DOUBLE)
    if type_.name == "DECIMAL":
        exact = (lambda value: Decimal(repr(value))) if operand.type == DOUBLE else Decimal
        return values.general(
            type_, lambda value: None if value is None else values.quantized(exact(value), type_), operand
        )
    if operand.type == DOUBLE:
        return strict(type_, lambda value: values.truncated(value, type_), operand)
    return strict(type_, lambda value: values.wrapped(int(value), type_), operand)


def text_of(value: Any, type_: Type) -> str:
    """Write a value as Flink's CAST to STRING does."""
    if type_ == DOUBLE:
        return values.double_text(value)
    if type_ == BOOLEAN:
        return "TRUE" if value else "FALSE"
    if type_ == TIMESTAMP:
        return time_text(value, " ", "milliseconds")
    return str(value)


def time_text(value: int, separator: str, precision: str = "auto") -> str:
    """Write microseconds since 1970 as a time in UTC."""
    return (datetime(1970, 1, 1) + timedelta(microseconds=value)).isoformat(separator, precision)


def json_value(value: Any, type_: Type) -> Any:
    """Return a value for JSON: times as Flink prints them (``2026-01-01T00:10``, ``2026-01-01T00:10:05.500``)."""
    if value is None or type_ in (BOOLEAN, STRING) or type_.is_integer:
        return value
    if type_ == TIMESTAMP:
        whole, _, fraction = time_text(value, "T", "microseconds").partition(".")
        fraction = fraction.removesuffix("000")
        return f"{whole}.{fraction}" if int(fraction) else whole.removesuffix(":00")
    if type_ == INTERVAL:
        return value / SECOND
    return float(value) if math.isfinite(value) else values.double_text(float(value))


# ---- functions by name


def _function(node: exp.Anonymous, context: Context) -> Expression:
    name = str(node.this).upper()
    builder = _FUNCTIONS.get(name)
    if builder is None:
        context.refuse(node, f"the function {node.this} is not allowed")
    return builder(node, context)


def _arguments(node: exp.Anonymous, least: int, most: int, context: Context) -> list[exp.Expr]:
    arguments: list[exp.Expr] = node.expressions
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        context.refuse(node, f"{str(node.this).upper()} takes {wanted} arguments, not {len(arguments)}")
    return arguments


def _navigation(first: bool) -> Callable[[exp.Anonymous, Context], Expression]:
    def build_navigation(node: exp.Anonymous, context: Context) -> Expression:
        name = str(node.this).upper()
        if context.is_outer or context.in_aggregate or context.position is not None:
            context.refuse(node, f"{name} is not allowed here")
        operand, *offsets = _arguments(node, 1, 2, context)
        offset = 0
        if offsets:
            if not isinstance(offsets[0], exp.Literal) or not str(offsets[0].this).isdigit():
                context.refuse(offsets[0], f"the offset of {name} must be a whole number")
            offset = int(str(offsets[0].this))
        _one_variable(node, [operand], context, name)
        return build(operand, replace(context, position=(first, offset)))

    return build_navigation


def _physical(node: exp.Anonymous, context: Context) -> Expression:
    operand, *offsets = _arguments(node, 1, 2, context)
    if len(offsets) != 1 or not isinstance(offsets[0], exp.Literal) or str(offsets[0].this) != "0":
        context.refuse(
            node, f"{str(node.this).upper()} is not supported, nor is it by Flink: use LAST(variable.column, 1)"
        )
    return build(operand, context)


def _aggregate(
    make: Callable[[Type], values.Aggregate | None],
) -> Callable[[exp.Anonymous, Context], Expression]:
    def build_aggregate(node: exp.Anonymous, context: Context) -> Expression:
        name = str(node.this).upper()
        if context.is_outer or context.in_aggregate or context.position is not None:
            context.refuse(node, f"{name} is not allowed here")
        (argument,) = _arguments(node, 1, 1, context)
        if isinstance(argument, exp.Distinct):
            context.refuse(node, f"{name}(DISTINCT …) is not supported, nor is it by Flink")
        if isinstance(argument, exp.Star) and name == "COUNT":
            rows = _rows_of(node, "", context)
            operand = values.constant(1, INT)
        else:
            of_variable = _one_variable(node, [argument], context, name)
            if of_variable is None:
                context.refuse(node, f"{name} needs a column of a variable")
            rows = of_variable
            operand = build(argument, replace(context, in_aggregate=True))
        function = make(operand.type)
        if function is None:
            context.refuse(argument, f"{name} does not take {operand.type}")
        return values.aggregate(function, operand, rows)

    return build_aggregate


def _count(_: Type) -> values.Aggregate:
    return values.Aggregate(BIGINT, lambda count, _: count + 1, 0)


def _sum_type(type_: Type) -> Type:
    return decimal(38, type_.scale) if type_.name == "DECIMAL" else type_


def _sum(type_: Type) -> values.Aggregate | None:
    if not type_.is_numeric:
        return None
    wrap = (lambda total: values.wrapped(total, type_)) if type_.is_integer else (lambda total: total)
    return values.Aggregate(_sum_type(type_), lambda total, value: wrap(value if total is None else total + value))


def _average(type_: Type) -> values.Aggregate | None:
    if not type_.is_numeric:
        return None
    result_type = decimal(38, max(6, type_.scale)) if type_.name == "DECIMAL" else type_

    def result(state: tuple[Any, int]) -> Any:
        total, count = state
        if not count:
            return None
        if type_.is_integer:
            return values.truncated_quotient(total, count)
        if type_ == DOUBLE:
            return total / count
        with localcontext() as digits:
            digits.prec = 100
            return values.quantized(total / count, result_type)

    begin = (0.0 if type_ == DOUBLE else 0, 0)
    return values.Aggregate(result_type, lambda state, value: (state[0] + value, state[1] + 1), begin, result)


def _least(type_: Type) -> values.Aggregate:
    return values.Aggregate(type_, lambda least, value: value if least is None or value < least else least)


def _greatest(type_: Type) -> values.Aggregate:
    return values.Aggregate(type_, lambda greatest, value: value if greatest is None or value > greatest else greatest)


def _match_rowtime(node: exp.Anonymous, context: Context) -> Expression:
    arguments = _arguments(node, 0, 1, context)
    if context.is_outer or (arguments and build(arguments[0], context).type != TIMESTAMP):
        context.refuse(node, "MATCH_ROWTIME takes the time column, in MATCH_RECOGNIZE")
    return values.match_time(context.time, context.defined is None)


def _clock(node: exp.Anonymous, context: Context) -> Expression:
    context.refuse(node, f"{str(node.this).upper()} is not supported: it would depend on when the rule runs")


def _absolute(node: exp.Anonymous, context: Context) -> Expression:
    operand = _number(_arguments(node, 1, 1, context)[0], context, "ABS")
    return strict(operand.type, abs, operand, columns=np.abs)


def _text_function(type_: Type, function: Callable[[str], Any]) -> Callable[[exp.Anonymous, Context], Expression]:
    def build_call(node: exp.Anonymous, context: Context) -> Expression:
        name = str(node.this).upper()
        return strict(type_, function, _text(_arguments(node, 1, 1, context)[0], context, name))

    return build_call


def _double_function(function: Callable[[float], float]) -> Callable[[exp.Anonymous, Context], Expression]:
    def build_call(node: exp.Anonymous, context: Context) -> Expression:
        name = str(node.this).upper()
        return strict(DOUBLE, function, _as(_number(_arguments(node, 1, 1, context)[0], context, name), DOUBLE))

    return build_call


def _rounded(
    to_whole: Callable[[Any], int], columns: Callable[[Any], Any]
) -> Callable[[exp.Anonymous, Context], Expression]:
    """FLOOR and CEIL."""

    def build_call(node: exp.Anonymous, context: Context) -> Expression:
        operand = _number(_arguments(node, 1, 1, context)[0], context, str(node.this).upper())
        if operand.type.is_integer:
            return operand
        if operand.type == DOUBLE:
            return strict(
                DOUBLE,
                lambda value: float(to_whole(value)) if math.isfinite(value) else value,
                operand,
                columns=columns,
            )
        type_ = Type("DECIMAL", operand.type.precision, 0)
        return strict(type_, lambda value: Decimal(to_whole(value)), operand)

    return build_call


def _round(node: exp.Anonymous, context: Context) -> Expression:
    number, *digits = _arguments(node, 1, 2, context)
    operand = _number(number, context, "ROUND")
    if digits and not (isinstance(digits[0], exp.Literal) and str(digits[0].this).isdigit()):
        context.refuse(digits[0], "the digits of ROUND must be a whole number")
    scale = int(str(digits[0].this)) if digits else 0
    if operand.type.is_integer:
        return operand
    if operand.type == DOUBLE:

        def rounded(value: float) -> float:
            return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP))

        return strict(DOUBLE, lambda value: rounded(value) if abs(value) < 1e15 else value, operand)
    decimals = min(scale, operand.type.scale)
    type_ = decimal(operand.type.precision - operand.type.scale + decimals + 1, decimals)
    return values.general(type_, lambda value: None if value is None else values.quantized(value, type_), operand)


def _sign(node: exp.Anonymous, context: Context) -> Expression:
    operand = _number(_arguments(node, 1, 1, context)[0], context, "SIGN")
    if operand.type.name == "DECIMAL":
        context.refuse(node, "SIGN takes DOUBLE, INT or BIGINT")
    zero = 0.0 if operand.type == DOUBLE else 0
    return strict(operand.type, lambda value: (value > zero) - (value < zero) + zero, operand)


def _mod(node: exp.Anonymous, context: Context) -> Expression:
    left, right = (_number(part, context, "MOD") for part in _arguments(node, 2, 2, context))
    return _calculate(exp.Mod, node, left, right, context)


def _power(node: exp.Anonymous, context: Context) -> Expression:
    operands = [_as(_number(part, context, "POWER"), DOUBLE) for part in _arguments(node, 2, 2, context)]

    def power(base: float, exponent: float) -> float:
        try:
            return math.pow(base, exponent)
        except (OverflowError, ValueError):
            return math.inf if base > 1 or base < -1 else math.nan

    return strict(DOUBLE, power, *operands)


def _coalesce(node: exp.Anonymous, context: Context) -> Expression:
    parts = [build(part, context) for part in _arguments(node, 1, 100, context)]
    conditions = [values.logical_not(values.is_null(part)) for part in parts[:-1]]
    return _choose(node, conditions, parts, context)


def _nullif(node: exp.Anonymous, context: Context) -> Expression:
    left, right = (build(part, context) for part in _arguments(node, 2, 2, context))
    equal = _compare(exp.EQ, node, left, right, context)
    return values.case(left.type, [(equal, values.constant(None, left.type))], left)


def _extreme(choose: Callable[..., Any]) -> Callable[[exp.Anonymous, Context], Expression]:
    """GREATEST and LEAST, which are NULL if an argument is."""

    def build_call(node: exp.Anonymous, context: Context) -> Expression:
        parts = [build(part, context) for part in _arguments(node, 1, 100, context)]
        common = _common_type(parts)
        if common is None or common == BOOLEAN:
            context.refuse(node, f"{str(node.this).upper()} takes numbers, or texts, or times")
        return strict(common, lambda *arguments: choose(arguments), *(_as(part, common) for part in parts))

    return build_call


def _decimal_type(sizes: Sequence[str]) -> Type | None:
    """Return the DECIMAL type with a precision (default 10) and scale (default 0); None if Flink has no such type."""
    if len(sizes) > 2 or not all(re.fullmatch("[0-9]{1,2}", size) for size in sizes):
        return None
    precision, scale = [*map(int, sizes), *(10, 0)[len(sizes) :]]
    return Type("DECIMAL", precision, scale) if 1 <= precision <= 38 and scale <= precision else None


def _concat(node: exp.Anonymous, context: Context) -> Expression:
    parts = [_text(part, context, "CONCAT") for part in _arguments(node, 1, 100, context)]
    return strict(STRING, lambda *texts: "".join(texts), *parts)


def _substring(node: exp.Substring, context: Context) -> Expression:
    start = node.args.get("start")
    length = node.args.get("length")
    if start is None:
        context.refuse(node, "SUBSTRING needs where to start")
    parts = [_text(node.this, context, "SUBSTRING"), build(start, context)]
    parts += [build(length, context)] if length is not None else []
    if not all(part.type.is_integer for part in parts[1:]):
        context.refuse(node, "SUBSTRING takes whole numbers for start and length")

    def substring(text: str, start: int, count: int | None = None) -> str:
        # As in Flink, both 1 and 0 mean the first character, and a negative start counts from the end.
        begin = start - 1 if start > 0 else max(len(text) + start, 0) if start < 0 else 0
        if count is not None and count < 0:
            return ""
        return text[begin:] if count is None else text[begin : begin + count]

    return strict(STRING, substring, *parts)


def _trim(node: exp.Trim, context: Context) -> Expression:
    if node.args.get("position") or node.args.get("expression"):
        context.refuse(node, "TRIM takes a text alone")
    return strict(STRING, lambda text: text.strip(" "), _text(node.this, context, "TRIM"))


_STEPS = {"MILLISECOND": 1000, **UNITS, "WEEK": 7 * UNITS["DAY"]}


def _step(unit: exp.Expr, function: str, context: Context) -> int:
    """Return the microseconds of the time unit in a function call."""
    step = _STEPS.get(unit.name.upper())
    if step is None:
        context.refuse(unit, f"{function} takes {', '.join(_STEPS)}, not {unit.name}")
    return step


def _timestamp_difference(node: exp.Anonymous, context: Context) -> Expression:
    unit, begin, end = _arguments(node, 3, 3, context)
    step = _step(unit, "TIMESTAMPDIFF", context) // 1000
    times = [build(part, context) for part in (begin, end)]
    if any(time.type != TIMESTAMP for time in times):
        context.refuse(node, f"TIMESTAMPDIFF takes TIMESTAMP, not {times[0].type} and {times[1].type}")

    def difference(first: int, second: int) -> int:
        return values.truncated_quotient(second // 1000 - first // 1000, step)

    def differences(first: Any, second: Any) -> Any:
        milliseconds = second // 1000 - first // 1000
        return np.sign(milliseconds) * (np.abs(milliseconds) // step)

    return strict(INT, difference, *times, columns=differences)


def _timestamp_add(node: exp.Anonymous, context: Context) -> Expression:
    unit, count, time = _arguments(node, 3, 3, context)
    step = _step(unit, "TIMESTAMPADD", context)
    parts = [build(count, context), build(time, context)]
    if not parts[0].type.is_integer or parts[1].type != TIMESTAMP:
        context.refuse(node, f"TIMESTAMPADD takes INT and TIMESTAMP, not {parts[0].type} and {parts[1].type}")

    def add(number: Any, begin: Any) -> Any:
        return begin + number * step

    return strict(TIMESTAMP, add, *parts, columns=add)


_PARTS: dict[str, Callable[[datetime], int]] = {
    "MILLISECOND": lambda time: time.microsecond // 1000,
    "SECOND": lambda time: time.second,
    "MINUTE": lambda time: time.minute,
    "HOUR": lambda time: time.hour,
    "DAY": lambda time: time.day,
    "MONTH": lambda time: time.month,
    "YEAR": lambda time: time.year,
    "QUARTER": lambda time: (time.month + 2) // 3,
    "WEEK": lambda time: time.isocalendar()[1],
    "DOW": lambda time: time.isoweekday() % 7 + 1,
    "DOY": lambda time: time.timetuple().tm_yday,
}
_DAY = UNITS["DAY"]
_PARTS_OF_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "MILLISECOND": lambda times: times // 1000 % 1000,
    "SECOND": lambda times: times // SECOND % 60,
    "MINUTE": lambda times: times // UNITS["MINUTE"] % 60,
    "HOUR": lambda times: times // UNITS["HOUR"] % 24,
    "DOW": lambda times: (times // _DAY + 4) % 7 + 1,
}
"""The parts of whole columns of microseconds since 1970, which began on a Thursday."""


def _part(node: exp.Expr, name: str, operand: exp.Expr, context: Context) -> Expression:
    time = build(operand, context)
    part = _PARTS.get(name)
    if part is None:
        context.refuse(node, f"EXTRACT takes {', '.join(_PARTS)}, not {name}")
    if time.type != TIMESTAMP:
        context.refuse(operand, f"TIMESTAMP is expected, not {time.type}")
    origin = datetime(1970, 1, 1)
    return strict(
        BIGINT, lambda value: part(origin + timedelta(microseconds=value)), time, columns=_PARTS_OF_COLUMNS.get(name)
    )


def _extract(node: exp.Extract, context: Context) -> Expression:
    return _part(node, node.this.name.upper(), node.expression, context)


def _part_by_name(name: str) -> Callable[[exp.Anonymous, Context], Expression]:
    return lambda node, context: _part(node, name, _arguments(node, 1, 1, context)[0], context)


def _substring_by_name(node: exp.Anonymous, context: Context) -> Expression:
    text, start, *length = _arguments(node, 2, 3, context)
    return _substring(exp.Substring(this=text, start=start, length=length[0] if length else None), context)


_FUNCTIONS: dict[str, Callable[[exp.Anonymous, Context], Expression]] = {
    "FIRST": _navigation(first=True),
    "LAST": _navigation(first=False),
    "PREV": _physical,
    "NEXT": _physical,
    "COUNT": _aggregate(_count),
    "SUM": _aggregate(_sum),
    "AVG": _aggregate(_average),
    "MIN": _aggregate(_least),
    "MAX": _aggregate(_greatest),
    "MATCH_ROWTIME": _match_rowtime,
    "MATCH_PROCTIME": _clock,
    "ABS": _absolute,
    "MOD": _mod,
    "POWER": _power,
    "ROUND": _round,
    "SIGN": _sign,
    "EXP": _double_function(lambda value: math.exp(value) if value < 709.78 else math.inf),
    "SQRT": _double_function(lambda value: math.sqrt(value) if value >= 0 else math.nan),
    "FLOOR": _rounded(math.floor, np.floor),
    "CEIL": _rounded(math.ceil, np.ceil),
    "CEILING": _rounded(math.ceil, np.ceil),
    "COALESCE": _coalesce,
    "NULLIF": _nullif,
    "GREATEST": _extreme(max),
    "LEAST": _extreme(min),
    "CONCAT": _concat,
    "UPPER": _text_function(STRING, str.upper),
    "LOWER": _text_function(STRING, str.lower),
    "CHAR_LENGTH": _text_function(INT, len),
    "CHARACTER_LENGTH": _text_function(INT, len),
    "SUBSTR": _substring_by_name,
    "TIMESTAMPDIFF": _timestamp_difference,
    "TIMESTAMPADD": _timestamp_add,
    "YEAR": _part_by_name("YEAR"),
    "QUARTER": _part_by_name("QUARTER"),
    "MONTH": _part_by_name("MONTH"),
    "WEEK": _part_by_name("WEEK"),
    "DAYOFYEAR": _part_by_name("DOY"),
    "DAYOFMONTH": _part_by_name("DAY"),
    "DAYOFWEEK": _part_by_name("DOW"),
    "HOUR": _part_by_name("HOUR"),
    "MINUTE": _part_by_name("MINUTE"),
    "SECOND": _part_by_name("SECOND"),
}
_BUILDERS: dict[type, Callable[[Any, Context], Expression]] = {
    exp.Literal: _literal,
    exp.Boolean: lambda node, _: values.constant(bool(node.this), BOOLEAN),
    exp.Null: lambda node, _: values.constant(None, NULL),
    exp.Interval: _interval,
    exp.Column: _column,
    exp.Paren: lambda node, context: build(node.this, context),
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    **dict.fromkeys(_COMPARISONS, _comparison),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.NullSafeEQ: _is_not_distinct,
    exp.NullSafeNEQ: _is_distinct,
    exp.Like: _like,
    exp.Escape: _escape,
    **dict.fromkeys(_SYMBOLS, _arithmetic),
    exp.Neg: _negative,
    exp.DPipe: _concatenation,
    exp.Case: _case,
    exp.If: _if,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Extract: _extract,
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.Anonymous: _function,
}
FUNCTIONS = tuple(sorted([*_FUNCTIONS, "CAST", "EXTRACT", "IF", "SUBSTRING", "TRIM"]))
"""The names of all functions that a query may call."""
