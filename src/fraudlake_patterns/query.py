"""Queries: checks the clauses of a MATCH_RECOGNIZE, and compiles them to a pattern that can run over rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

from sqlglot import Token, TokenType, exp

from fraudlake_patterns import automaton, expressions, sql, values
from fraudlake_patterns.automaton import Variable
from fraudlake_patterns.expressions import Column, Context
from fraudlake_patterns.matcher import Skip
from fraudlake_patterns.values import BOOLEAN, Expression


@dataclass(frozen=True)
class Output:
    """A column of the result."""

    name: str
    expression: Expression


@dataclass(frozen=True)
class Query:
    """A checked query. Columns have the names of the rows; times are in microseconds."""

    partition_by: tuple[Column, ...]
    order_by: tuple[tuple[Column, bool], ...]
    """The columns of ORDER BY after the time, and whether each is descending."""
    variables: tuple[Variable, ...]
    conditions: tuple[Expression, ...]
    skip: Skip
    within: int | None
    row: tuple[Output, ...]
    """The output of a match: the columns of its partition, as None, and the measures."""
    select: tuple[Output, ...]
    """The columns of the result, computed from the output of a match."""
    where: Expression | None
    columns: tuple[str, ...]
    """The columns that the query reads."""
    time: str
    """The name of the time column."""


def parse(text: str, columns: Mapping[str, Column], time: str, tables: Sequence[str], name: str = "SQL") -> Query:
    """Read a query as Flink does.

    Args:
        text: one query over one MATCH_RECOGNIZE.
        columns: the columns by their names in the query.
        time: the time column, with which ORDER BY begins.
        tables: the names of the rows that the query may use.
        name: the name of the text in messages.

    Raises:
        UsageError: the query is not valid, or uses something that is not supported; with its position.
    """
    return _Reader(sql.clauses(sql.Text(text, name)), columns, time, tables).query()


class _Reader:
    def __init__(self, clauses: sql.Clauses, columns: Mapping[str, Column], time: str, tables: Sequence[str]) -> None:
        self._clauses = clauses
        self._text = clauses.text
        self._columns = columns
        self._time = time
        self._tables = tables
        self._context = Context(self._text, columns, time)

    def query(self) -> Query:
        clauses = self._clauses
        # Flink's result has the columns of the partition in the table's order.
        partition = sorted({self._name(part) for part in clauses.partition_by}, key=list(self._columns).index)
        order = self._order()
        variables = self._variables()
        names = tuple(variable.name for variable in variables)
        context = Context(self._text, self._columns, self._time, names)
        conditions = self._conditions(variables, context)
        within = self._within(variables)
        row = self._row(partition, context)
        select, where = self._outer(row)
        keys = tuple(self._columns[name] for name in partition)
        ordering = [column for column, _ in order]
        read = [expression.columns for expression in (*conditions, *(output.expression for output in row))]
        names_read = {self._time}.union(*read, (column.name for column in (*keys, *ordering)))
        return Query(
            partition_by=keys,
            order_by=order,
            variables=variables,
            conditions=conditions,
            skip=self._skip(variables),
            within=within,
            row=row,
            select=select,
            where=where,
            columns=tuple(sorted(names_read)),
            time=self._time,
        )

    def _name(self, part: sql.Part) -> str:
        node = self._text.parse(part.start, part.end)
        if not isinstance(node, exp.Column) or node.table or node.name not in self._columns:
            self._text.refuse(part.start, f"there is no column '{self._text.sql[part.start : part.end]}'")
        return node.name

    def _order(self) -> tuple[tuple[Column, bool], ...]:
        order = []
        for part in self._clauses.order_by:
            words = self._text.sql[part.start : part.end].split()
            direction = words[-1].upper() if len(words) > 1 and words[-1].upper() in ("ASC", "DESC") else ""
            end = part.end - len(direction)
            column = self._columns[self._name(sql.Part(part.start, end))]
            order.append((column, direction == "DESC"))
        (first, descending), *further = order
        if first.name != self._time or descending:
            names = " or ".join(name for name, column in self._columns.items() if column.name == self._time)
            self._text.refuse(self._clauses.order_by[0].start, f"ORDER BY must begin with the time, {names}, ascending")
        return tuple(further)

    def _variables(self) -> tuple[Variable, ...]:
        words = self._clauses.pattern
        variables = _Pattern(self._text, words).variables()
        states = automaton.compile_states(variables)
        if automaton.can_be_empty(states):
            self._text.refuse(words[0].start, "the pattern can match no row at all: a variable must take at least one")
        if variables[-1].is_greedy_loop:
            self._text.refuse(
                words[-1].start, f"{variables[-1].name} is a greedy loop at the end: make it reluctant with '?'"
            )
        return variables

    def _conditions(self, variables: tuple[Variable, ...], context: Context) -> tuple[Expression, ...]:
        names = [variable.name for variable in variables]
        defined: dict[str, Expression] = {}
        for part in self._clauses.define:
            if part.name not in names:
                self._text.refuse(part.name_start, f"the variable {part.name} is not in PATTERN")
            if part.name in defined:
                self._text.refuse(part.name_start, f"the variable {part.name} is defined twice")
            inside = Context(self._text, self._columns, self._time, context.variables, part.name)
            defined[part.name] = expressions.condition(self._text.parse(part.start, part.end), inside)
        always = values.constant(True, BOOLEAN)
        return tuple(defined.get(name, always) for name in names)

    def _within(self, variables: tuple[Variable, ...]) -> int | None:
        part = self._clauses.within
        if part is not None:
            within = expressions.interval(self._text.parse(part.start, part.end), self._context)
            if within < 0:
                self._text.refuse(part.start, "WITHIN must not be negative")
            if within:
                return within
        endless = next((variable for variable in variables if variable.most is None), None)
        if endless is not None:
            words = self._clauses.pattern
            at = next(word.start for word in words if word.text == endless.name)
            self._text.refuse(at, f"{endless.name} may take any number of rows: WITHIN INTERVAL must limit the time")
        return None

    def _skip(self, variables: tuple[Variable, ...]) -> Skip:
        words = self._clauses.after
        phrase = [word.text.upper() for word in words]
        if phrase == ["PAST", "LAST", "ROW"]:
            return Skip("past_last")
        if not words or phrase == ["TO", "NEXT", "ROW"]:  # without the clause, too, as in Flink (seen in 2.3)
            return Skip("next")
        target = words[-1]
        names = [variable.name for variable in variables]
        if phrase[:-1] not in (["TO"], ["TO", "FIRST"], ["TO", "LAST"]):
            self._text.refuse(
                words[0].start, "AFTER MATCH SKIP takes PAST LAST ROW, TO NEXT ROW, TO FIRST x or TO LAST x"
            )
        if target.text not in names:
            self._text.refuse(target.start, f"there is no variable '{target.text}' in PATTERN")
        mode = "first" if "FIRST" in phrase[:-1] else "last"
        number = names.index(target.text)
        if number == 0 and variables[0].least and (mode == "first" or variables[0].most == 1):
            self._text.refuse(target.start, f"{target.text} is the first row of a match, which would be found forever")
        return Skip(mode, number, target.text)

    def _row(self, partition: Sequence[str], context: Context) -> tuple[Output, ...]:
        outputs = [
            Output(name, values.reference(self._columns[name].type, self._columns[name].name, values.Rows(None, True)))
            for name in partition
        ]
        for part in self._clauses.measures:
            if part.name in [output.name for output in outputs]:
                self._text.refuse(part.name_start, f"the name '{part.name}' occurs twice")
            outputs.append(Output(part.name, expressions.build(self._text.parse(part.start, part.end), context)))
        return tuple(outputs)

    def _outer(self, row: tuple[Output, ...]) -> tuple[tuple[Output, ...], Expression | None]:
        select = self._clauses.outer
        table = select.find(exp.Table)
        if table is None or not isinstance(select.args["from_"].this, exp.Table):
            self._text.refuse(0, f"a SELECT over the table {self._tables[0]} is expected")
        if table.name not in self._tables or table.args.get("db") is not None:
            self._text.refuse(
                sql.position(table), f"there is no table '{table.sql()}': a query reads {self._tables[0]}"
            )
        for name, part in select.args.items():
            if part and name not in ("kind", "expressions", "from_", "where"):
                at = sql.position(part[0] if isinstance(part, list) else part)
                self._text.refuse(at, f"{name.upper().rstrip('_')} is not supported around MATCH_RECOGNIZE")
        here = {output.name: Column(output.name, output.expression.type) for output in row}
        context = Context(self._text, here, self._time, table=self._clauses.alias, is_outer=True)
        outputs: list[Output] = []
        for number, node in enumerate(select.expressions):
            is_star = isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))
            if is_star:
                if isinstance(node, exp.Column) and node.table != self._clauses.alias:
                    self._text.refuse(sql.position(node), f"there is no table '{node.table}'")
                outputs += [
                    Output(name, values.reference(column.type, name, values.Rows(None, True)))
                    for name, column in here.items()
                ]
                continue
            inside = node.this if isinstance(node, exp.Alias) else node
            name = (
                node.alias
                if isinstance(node, exp.Alias)
                else getattr(node, "name", "")
                if isinstance(node, exp.Column)
                else f"EXPR${number}"
            )
            outputs.append(Output(name, expressions.build(inside, context)))
        names: list[str] = []
        for output in outputs:  # as in Flink, the second column `a` is called `a0`
            further = (f"{output.name}{number}" for number in range(len(outputs)))
            names.append(
                output.name if output.name not in names else next(name for name in further if name not in names)
            )
        outputs = [Output(name, output.expression) for name, output in zip(names, outputs, strict=True)]
        where = select.args.get("where")
        return tuple(outputs), None if where is None else expressions.condition(where.this, context)


_SIGNS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


class _Pattern:
    """Reader of the parentheses of PATTERN: variables with quantifiers, one after the other."""

    def __init__(self, text: sql.Text, words: list[Token]) -> None:
        self._text = text
        self._words = words
        self._at = 0

    def variables(self) -> tuple[Variable, ...]:
        if self._words[0].token_type != TokenType.L_PAREN:
            self._text.refuse(self._words[0].start, "'(' is expected after PATTERN")
        variables = self._group()
        if self._at < len(self._words):
            self._refuse("is not expected here")
        names: set[str] = set()
        for variable, at in variables:
            if variable.name in names:
                self._text.refuse(
                    at, f"the variable {variable.name} occurs twice in PATTERN, which Flink does not support"
                )
            names.add(variable.name)
        for (loop, _), (variable, at) in pairwise(variables):
            if loop.is_greedy_loop and variable.is_optional:
                reason = f"the greedy loop {loop.name} cannot precede {variable.name}, which may take no row"
                self._text.refuse(at, f"{reason}; nor can it in Flink")
        return tuple(variable for variable, _ in variables)

    def _refuse(self, reason: str) -> NoReturn:
        word = self._words[min(self._at, len(self._words) - 1)]
        self._text.refuse(word.start, f"'{word.text}' {reason}")

    def _word(self) -> Token | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def _group(self) -> list[tuple[Variable, int]]:
        opening = self._words[self._at]
        self._at += 1
        variables: list[tuple[Variable, int]] = []
        while (word := self._word()) is not None and word.token_type != TokenType.R_PAREN:
            if word.token_type == TokenType.L_PAREN:
                variables += self._group()
            elif word.text == "|":
                self._refuse("is not supported in PATTERN, nor is it by Flink: write a rule for each alternative")
            elif word.text.startswith(("{", "^", "$")) or word.text.upper() == "PERMUTE":
                self._refuse("is not supported in PATTERN, nor is it by Flink")
            elif not word.text.replace("_", "a").isalnum() or word.text[0].isdigit():
                self._refuse("is not expected in PATTERN")
            else:
                self._at += 1
                variables.append((self._quantified(word), word.start))
        if self._word() is None:
            self._text.refuse(opening.start, "this parenthesis is never closed")
        if not variables:
            self._text.refuse(opening.start, "there is no variable in these parentheses")
        self._at += 1
        following = self._word()
        if following is not None and following.text.startswith(("?", "*", "+", "{")):
            self._refuse("is not supported after parentheses in PATTERN, nor is it by Flink")
        return variables

    def _quantified(self, name: Token) -> Variable:
        word = self._word()
        sign = word.text if word is not None else ""
        least: int
        most: int | None
        if sign in ("?", "*", "+"):
            self._at += 1
            least, most = _SIGNS[sign]
        elif sign == "??":
            self._refuse(f"after {name.text} is not supported, nor is it by Flink: a '?' cannot be reluctant")
        elif sign == "{":
            least, most = self._bounds()
        else:
            return Variable(name.text)
        mark = self._word()
        greedy = mark is None or mark.text != "?"
        if not greedy:
            self._at += 1
            if (least, most) == (0, 1):
                self._at -= 1
                self._refuse(f"after {name.text}{sign} is not supported, nor is it by Flink: it cannot be reluctant")
        return Variable(name.text, least, most, greedy)

    def _bounds(self) -> tuple[int, int | None]:
        opening = self._words[self._at]
        parts: list[str] = []
        self._at += 1
        while (word := self._word()) is not None and word.text != "}":
            parts.append(word.text)
            self._at += 1
        self._at += 1
        if parts and parts[0] == "-":
            self._text.refuse(opening.start, "'{-' is not supported in PATTERN, nor is it by Flink")
        low, comma, high = "".join(parts).partition(",")
        if word is None or not (low + high).isdigit() or any(part and not part.isdigit() for part in (low, high)):
            self._text.refuse(opening.start, "{n}, {n,}, {n,m} or {,m} is expected")
        least = int(low or 0)
        most = (int(high) if high else None) if comma else least
        if most is not None and (most < least or most == 0):
            self._text.refuse(opening.start, "the second number must not be below the first, nor 0")
        return least, most
