"""SQL text: splits a Flink query into the clauses of its MATCH_RECOGNIZE, and keeps their positions for messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NoReturn

from sqlglot import Token, TokenType, exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError, TokenError

from fraudlake.errors import UsageError, first_line


class _Flink(Dialect):
    """The part of Flink's SQL that rules need. Functions stay names with arguments, which `expressions` looks up."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ["`"]  # noqa: RUF012

    class Parser(parser.Parser):
        FUNCTIONS = {}  # noqa: RUF012
        NO_PAREN_FUNCTIONS = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: function
            for name, function in parser.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "EXTRACT", "SUBSTRING", "TRIM", "TRY_CAST")
        }


@dataclass(frozen=True)
class Text:
    """A text and its name in messages; its parts are addressed by the positions of their characters."""

    sql: str
    name: str = "SQL"

    def refuse(self, at: int, reason: str) -> NoReturn:
        """Raise a one-line error about a character of the text.

        Raises:
            UsageError: always.
        """
        before = self.sql[:at]
        line = before.count("\n") + 1
        column = at - (before.rfind("\n") + 1) + 1
        in_one_line = " ".join(reason.splitlines())  # quoted text may have several lines
        raise UsageError(f"{self.name}: line {line}, column {column}: {in_one_line}")

    @cached_property
    def tokens(self) -> list[Token]:
        """The words of the text, without comments."""
        try:
            return _Flink().tokenize(self.sql)
        except TokenError as error:
            raise UsageError(f"{self.name}: {first_line(error)}") from None

    def parse(self, start: int, end: int) -> exp.Expr:
        """Parse the part from ``start`` up to ``end``; everything else is blanked to preserve positions."""
        try:
            parsed = _Flink().parse(_blank(self.sql[:start]) + self.sql[start:end])
        except ParseError as error:
            first = error.errors[0]
            at = self._offset(first["line"], first["col"] - len(first["highlight"]))
            self.refuse(
                at,
                f"{_reason(first['description'])} at '{first['highlight']}'"
                if first["highlight"]
                else _reason(first["description"]),
            )
        except SqlglotError as error:
            self.refuse(start, first_line(error))
        if len(parsed) != 1 or parsed[0] is None:
            self.refuse(start, "one expression is expected")
        return parsed[0]

    def _offset(self, line: int, column: int) -> int:
        lines = self.sql.split("\n")
        return min(sum(len(earlier) + 1 for earlier in lines[: line - 1]) + max(column, 0), len(self.sql))


def _blank(sql: str) -> str:
    """Replace every character by a blank, and keep the line breaks."""
    return "".join(character if character == "\n" else " " for character in sql)


def _reason(description: str) -> str:
    return description.split(" for <class")[0].rstrip(".").lower()


def names_in(node: exp.Expr) -> list[str]:
    """Return the names of the columns in an expression."""
    return [column.name for column in node.find_all(exp.Column)]


def position(node: exp.Expr) -> int:
    """Return the position of an expression in its text: that of its leftmost part with a known position."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts, default=0)


@dataclass(frozen=True)
class Part:
    """A part of the text, with its name from ``AS``."""

    start: int
    end: int
    name: str = ""
    name_start: int = 0


@dataclass
class Clauses:
    """A query over one MATCH_RECOGNIZE, clause by clause."""

    text: Text
    outer: exp.Select
    """The query with the clause left out."""
    alias: str | None = None
    partition_by: list[Part] = field(default_factory=list)
    order_by: list[Part] = field(default_factory=list)
    measures: list[Part] = field(default_factory=list)
    after: list[Token] = field(default_factory=list)
    pattern: list[Token] = field(default_factory=list)
    within: Part | None = None
    define: list[Part] = field(default_factory=list)


_STARTS = {
    "partition_by": ("PARTITION", "BY"),
    "order_by": ("ORDER", "BY"),
    "measures": ("MEASURES",),
    "one_row": ("ONE", "ROW", "PER", "MATCH"),
    "all_rows": ("ALL", "ROWS", "PER", "MATCH"),
    "after": ("AFTER", "MATCH", "SKIP"),
    "pattern": ("PATTERN",),
    "within": ("WITHIN",),
    "subset": ("SUBSET",),
    "define": ("DEFINE",),
}
"""The clauses in their required order."""


def clauses(text: Text) -> Clauses:
    """Divide a query into its clauses.

    Raises:
        UsageError: it is not one query over a MATCH_RECOGNIZE, or a clause is missing, misplaced or not supported.
    """
    words = text.tokens
    if not words:
        raise UsageError(f"{text.name}: there is no query")
    _is_one_query(text, words)
    begin = next((number for number, word in enumerate(words) if word.text.upper() == "MATCH_RECOGNIZE"), None)
    if begin is None:
        text.refuse(words[0].start, "a query over MATCH_RECOGNIZE is expected")
    if begin + 1 >= len(words) or words[begin + 1].token_type != TokenType.L_PAREN:
        text.refuse(words[begin].end + 1, "'(' is expected after MATCH_RECOGNIZE")
    end = _closing(text, words, begin + 1)
    second = next((word for word in words[end:] if word.text.upper() == "MATCH_RECOGNIZE"), None)
    if second is not None:
        text.refuse(second.start, "a second MATCH_RECOGNIZE is not supported")
    parts = Clauses(text, _outer(text, words[begin].start, words[end].end + 1))
    table = parts.outer.find(exp.Table)
    parts.alias = table.alias or None if table else None
    _divide(parts, words[begin + 2 : end], words[end])
    return parts


def _is_one_query(text: Text, words: list[Token]) -> None:
    for number, word in enumerate(words):
        if word.token_type == TokenType.SEMICOLON and number + 1 < len(words):
            text.refuse(words[number + 1].start, "more than one query: a rule is a single query")


def _closing(text: Text, words: list[Token], opening: int) -> int:
    """Return the number of the parenthesis that closes the one at ``opening``."""
    closing = next((number for number, depth in enumerate(_depths(words[opening:]), opening) if depth == 0), None)
    if closing is None:
        text.refuse(words[opening].start, "this parenthesis is never closed")
    return closing


def _depths(words: list[Token]) -> Iterator[int]:
    """Return how many parentheses are open after each word."""
    return accumulate({TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(word.token_type, 0) for word in words)


def _outer(text: Text, start: int, end: int) -> exp.Select:
    """Parse the query around the clause, which is blanked."""
    around = Text(text.sql[:start] + _blank(text.sql[start:end]) + text.sql[end:], text.name)
    query = around.parse(0, len(around.sql))
    if not isinstance(query, exp.Select):
        text.refuse(0, "a SELECT over one table is expected")
    return query


def _divide(clauses: Clauses, words: list[Token], closing: Token) -> None:
    text = clauses.text
    starts = _clause_starts(words)
    if not starts or starts[0][1] != 0:
        text.refuse(words[0].start if words else closing.start, "a clause of MATCH_RECOGNIZE is expected")
    order = list(_STARTS)
    for (name, _, _), (following, at, _) in pairwise(starts):
        if order.index(following) <= order.index(name):
            text.refuse(
                words[at].start,
                f"{' '.join(_STARTS[following])} must come before {' '.join(_STARTS[name])}"
                if following != name
                else f"{' '.join(_STARTS[name])} occurs twice",
            )
    for (name, number, length), (_, stop, _) in zip(starts, [*starts[1:], ("", len(words), 0)], strict=True):
        first = words[number]
        inside = words[number + length : stop]
        if name in ("all_rows", "subset"):
            text.refuse(first.start, f"{' '.join(_STARTS[name])} is not supported")
        if not inside and name != "one_row":
            text.refuse(first.start, f"{' '.join(_STARTS[name])} is empty")
        if name == "one_row":
            if inside:
                text.refuse(inside[0].start, f"'{inside[0].text}' is not supported after ONE ROW PER MATCH")
        elif name in ("partition_by", "order_by"):
            setattr(clauses, name, [Part(part[0].start, part[-1].end + 1) for part in _list(text, inside)])
        elif name == "measures":
            clauses.measures = [_measure(text, part) for part in _list(text, inside)]
        elif name == "define":
            clauses.define = [_definition(text, part) for part in _list(text, inside)]
        elif name == "within":
            clauses.within = Part(inside[0].start, inside[-1].end + 1)
        elif name == "after":
            clauses.after = inside
        else:
            clauses.pattern = inside
    names = [name for name, _, _ in starts]
    for needed in ("order_by", "measures", "pattern", "define"):
        if needed not in names:
            text.refuse(closing.start, f"{' '.join(_STARTS[needed])} is missing")


def _clause_starts(words: list[Token]) -> list[tuple[str, int, int]]:
    """Return the clauses that begin outside of parentheses, each with the number and the count of its keywords."""
    starts = []
    for number, (word, depth) in enumerate(zip(words, _depths(words), strict=True)):
        if depth or word.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if number and words[number - 1].token_type in (TokenType.DOT, TokenType.ALIAS):
            continue
        for name, start in _STARTS.items():
            # The tokenizer joins some pairs, such as ORDER BY, to one word.
            for length in {1, len(start)}:
                phrase = " ".join(token.text.upper() for token in words[number : number + length])
                if phrase.split() == list(start):
                    starts.append((name, number, length))
    return starts


def _list(text: Text, words: list[Token]) -> list[list[Token]]:
    """Divide words at the commas outside of parentheses."""
    parts: list[list[Token]] = [[]]
    for word, depth in zip(words, _depths(words), strict=True):
        if word.token_type == TokenType.COMMA and depth == 0:
            if not parts[-1]:
                text.refuse(word.start, "an expression is expected before ','")
            parts.append([])
        else:
            parts[-1].append(word)
    if not parts[-1]:
        text.refuse(words[-1].start, "an expression is expected after ','")
    return parts


def _measure(text: Text, words: list[Token]) -> Part:
    if words[0].text.upper() == "FINAL" and len(words) > 1:  # FINAL is the default of every measure
        words = words[1:]
    if len(words) < 2:
        text.refuse(words[0].start, "a measure needs a name: expression AS name")
    has_as = len(words) > 2 and words[-2].token_type == TokenType.ALIAS
    if (not has_as and words[-2].token_type in (TokenType.DOT, TokenType.L_PAREN)) or not _is_name(words[-1]):
        text.refuse(words[0].start, "a measure needs a name: expression AS name")
    inside = words[: -2 if has_as else -1]
    return Part(inside[0].start, inside[-1].end + 1, words[-1].text, words[-1].start)


def _definition(text: Text, words: list[Token]) -> Part:
    if len(words) < 3 or words[1].token_type != TokenType.ALIAS or not _is_name(words[0]):
        text.refuse(words[0].start, "a definition is expected: variable AS condition")
    return Part(words[2].start, words[-1].end + 1, words[0].text, words[0].start)


def _is_name(word: Token) -> bool:
    is_word = word.text.replace("_", "a").isalnum() and word.token_type not in (TokenType.NUMBER, TokenType.STRING)
    return is_word or word.token_type == TokenType.IDENTIFIER
