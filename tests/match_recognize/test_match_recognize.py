"""MATCH_RECOGNIZE against Flink SQL's own answers, and what is refused before a row is read."""

from __future__ import annotations

import json
import random
import re
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.rules.compiled_rule import CompiledRule
from fraudlake.rules.kinds.pattern import CompiledPattern
from fraudlake_patterns import automaton, evaluation, rows
from tests.match_recognize import flink

FIXTURES = Path(__file__).parents[2] / "fixtures" / "match_recognize"
QUERIES = {
    name: (over, sql)
    for name, over, sql in re.findall(
        r"^-- (\w+) over (\w+)\n(.*?);\n", (FIXTURES / "queries.sql").read_text(), re.DOTALL | re.MULTILINE
    )
}
ANSWERS = json.loads((FIXTURES / "answers.json").read_text())
ANSWERED = sorted(name for name, answer in ANSWERS.items() if isinstance(answer, list))
REFUSED_BY_FLINK = sorted(set(ANSWERS) - set(ANSWERED))
SIGNS = "( ) , . ; * ? + | ` -- /* '' 'x' '1' 1 {2,} A B.amount NULL PATTERN é"
NAMES = "SELECT FROM AS AND NOT CASE WHEN END CAST( LAST( SUM( COUNT(*) DISTINCT LIKE INTERVAL SECOND WITHIN DEFINE"
WORDS = [*SIGNS.split(), *NAMES.split()]
"""What a changed query may hold at a wrong place."""


@cache
def table(name: str) -> pa.Table:
    return flink.table((FIXTURES / "rows" / f"{name}.jsonl").read_text().splitlines())


@pytest.mark.parametrize("name", ANSWERED)
def test_a_query_gives_the_rows_that_flink_gives(name: str) -> None:
    over, sql = QUERIES[name]
    assert flink.unordered(flink.results(sql, table(over))) == flink.unordered(list(map(json.loads, ANSWERS[name])))


@pytest.mark.parametrize("name", REFUSED_BY_FLINK)
def test_a_query_that_flink_refuses_is_refused(name: str) -> None:
    over, sql = QUERIES[name]
    with pytest.raises(FraudlakeError):
        flink.results(sql, table(over))


FIXED = sorted(name for name in ANSWERED if not re.search(r"PATTERN \([^)]*[?*+,]", QUERIES[name][1]))


@pytest.mark.parametrize("name", FIXED)
def test_a_pattern_of_fixed_length_gives_the_same_matches_row_by_row(name: str) -> None:
    over, sql = QUERIES[name]
    parsed = flink.parse(sql)
    ordered = rows.sort(table(over), parsed.time, parsed.partition_by, parsed.order_by, parsed.columns)
    at_once = evaluation.match_fixed_length(parsed, ordered).matches
    assert at_once == evaluation.match_any_length(parsed, ordered).matches


def in_parts(rule: CompiledRule, history: pa.Table, cuts: list[int]) -> list[tuple[list[str], dict[str, Any]]]:
    """Evaluate rows in parts, each up to a time, and return each alert's transactions and measures."""
    time = history["timestamp"].cast(pa.int64()).to_numpy()
    needed, state, alerts = history.slice(0, 0), (), []
    for begin, end in pairwise([-sys.maxsize, *cuts, None]):
        is_in = (time >= begin) & (time < (sys.maxsize if end is None else end))
        part = pa.concat_tables([needed, history.filter(pa.array(is_in))])
        evaluated = rule.evaluate(part, len(needed), json.loads(json.dumps(state)), end)
        names = part["transaction_id"].to_pylist()
        alerts += [([names[row] for row in alert.rows], dict(alert.measures)) for alert in evaluated.alerts]
        needed, state = part.take(pa.array(evaluated.needed)), evaluated.state
    return sorted(alerts, key=str)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERED)
def test_rows_in_parts_give_the_alerts_that_they_give_at_once(name: str) -> None:
    over, sql = QUERIES[name]
    rule, history = CompiledPattern(flink.parse(sql), None), table(over)
    times = sorted(set(history["timestamp"].cast(pa.int64()).to_pylist()))
    draw = random.Random(name)
    for count in (1, 3, 30):
        cuts = sorted(draw.sample(times, min(count, len(times))))
        assert in_parts(rule, history, cuts) == in_parts(rule, history, [])


def clause(pattern: str = "A B", define: str = "B AS B.amount > 5", **parts: str) -> str:
    measures, rest = parts.get("measures", "A.amount AS a"), parts.get("rest", "")
    order, after = parts.get("order", "ORDER BY dt"), parts.get("after", "")
    inside = f"PARTITION BY accountId {order} MEASURES {measures} {after} PATTERN ({pattern}) {rest} DEFINE {define}"
    return f"SELECT {parts.get('select', '*')} FROM transactions MATCH_RECOGNIZE ({inside}) {parts.get('outer', '')}"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (clause(define="B AS B.amont > 5"), "there is no column 'amont'"),
        (clause(define="B AS B.amount > 9E"), "9E is not a number"),
        (clause(define="B AS C.amount > 5"), "there is no variable 'C' in PATTERN"),
        (clause(define="C AS C.amount > 5"), "the variable C is not in PATTERN"),
        (clause(define="B AS B.amount > 'many'"), "'many' cannot be compared with DOUBLE"),
        (clause(define="B AS B.merchantId > 5"), "STRING cannot be compared with INT"),
        (clause(define="B AS B.amount + 1"), "a condition must be BOOLEAN, not DOUBLE"),
        (clause(define="B AS reflect('java.lang.System', 'exit')"), "the function reflect is not allowed"),
        (clause(define="B AS java_method('a', 'b') = 1"), "the function java_method is not allowed"),
        (clause(define="B AS B.amount IN (SELECT 1)"), "IN query is not supported"),
        (clause(define="B AS B.amount > PREV(B.amount)"), "PREV is not supported, nor is it by Flink"),
        (clause(define="B AS B.amount >"), "missing"),
        (clause(pattern="A*?", define="A AS A.amount > 5"), "the pattern can match no row at all"),
        (clause(pattern="A*? B?"), "the pattern can match no row at all"),
        (clause(pattern="A B+"), "B is a greedy loop at the end"),
        (clause(pattern="A+ B"), "A may take any number of rows: WITHIN INTERVAL must limit the time"),
        (clause(pattern="A (B | C)"), "'|' is not supported in PATTERN"),
        (clause(pattern="(A B)+ C"), "'+' is not supported after parentheses"),
        (clause(pattern="A B?? C"), "'?' cannot be reluctant"),
        (clause(pattern="A B A"), "the variable A occurs twice"),
        (clause(pattern="A PERMUTE(B, C)"), "'PERMUTE' is not supported"),
        (clause(pattern="A {- B -}"), "'{-' is not supported"),
        (clause(pattern="A{3,2} B"), "the second number must not be below the first"),
        (clause(pattern="A+ B? C", rest="WITHIN INTERVAL '1' HOUR"), "the greedy loop A cannot precede B"),
        (clause(rest="WITHIN INTERVAL '1' MONTH"), "not of MONTH"),
        (clause(after="AFTER MATCH SKIP TO FIRST C"), "there is no variable 'C'"),
        (clause(after="AFTER MATCH SKIP TO FIRST A"), "A is the first row of a match"),
        (clause(after="ALL ROWS PER MATCH"), "ALL ROWS PER MATCH is not supported"),
        (clause(order="ORDER BY d--t\nt"), "there is no column 'd--t t'"),
        (clause(order="ORDER BY amount"), "ORDER BY must begin with the time"),
        (clause(order="ORDER BY dt DESC"), "ORDER BY must begin with the time"),
        (clause(measures="SUM(A.amount + B.amount) AS s"), "SUM takes the rows of one variable"),
        (clause(measures="COUNT(DISTINCT A.amount) AS s"), "COUNT(DISTINCT …) is not supported"),
        (clause(measures="SUM(A.merchantId) AS s"), "SUM does not take STRING"),
        (clause(measures="A.amount AS a, B.amount AS a"), "the name 'a' occurs twice"),
        (clause(measures="MATCH_PROCTIME() AS t"), "it would depend on when the rule runs"),
        (clause(outer="LIMIT 5"), "LIMIT is not supported around MATCH_RECOGNIZE"),
        (clause(select="DISTINCT a"), "DISTINCT is not supported around MATCH_RECOGNIZE"),
        (clause(outer="; DROP TABLE transactions"), "more than one query"),
        (clause().replace("FROM transactions", "FROM other"), "there is no table 'other'"),
        (clause().replace("FROM transactions", ""), "a SELECT over the table transactions is expected"),
        (clause(pattern="A) '' (B"), "'' is not expected here"),
        (clause(measures="CAST(A.amount AS DECIMAL(?)) AS d"), "CAST to DECIMAL(?) is not supported"),
        (clause(measures="CAST(A.amount AS DECIMAL(39, 2)) AS d"), "CAST to DECIMAL(39, 2) is not supported"),
        (clause(measures="SUBSTRING(A.merchantId FROM) AS s"), "SUBSTRING needs where to start"),
        ("SELECT * FROM transactions", "a query over MATCH_RECOGNIZE is expected"),
        ("", "there is no query"),
        ("SELECT 'open", "SQL"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_name(sql: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        flink.parse(sql)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@given(
    sql=st.sampled_from([sql for _, sql in QUERIES.values()]),
    changes=st.lists(st.tuples(st.integers(0, 500), st.sampled_from(WORDS)), min_size=1, max_size=3),
)
def test_whatever_a_text_holds_it_is_a_query_or_one_line(sql: str, changes: list[tuple[int, str]]) -> None:
    words = re.findall(r"\s+|\w+|[^\w\s]", sql)
    for at, word in changes:
        words[at % len(words)] = word
    try:
        flink.parse("".join(words))
    except UsageError as refused:
        assert "\n" not in str(refused)


def test_a_refusal_tells_line_and_column() -> None:
    sql = clause(define="B AS\n  B.amount > 1\n  AND md5(B.kind) = 'x'")
    with pytest.raises(UsageError, match=r"^SQL: line 3, column 7: the function md5 is not allowed$"):
        flink.parse(sql)


def test_skipping_to_a_variable_without_rows_is_an_error_as_in_flink() -> None:
    sql = clause("A B*? C", "C AS C.amount > 10", after="AFTER MATCH SKIP TO FIRST B", rest="WITHIN INTERVAL '1' HOUR")
    with pytest.raises(FraudlakeError, match="a match has no row of B"):
        flink.results(sql, table("mixed"))


def test_at_most_m_rows_may_be_none_although_flink_refuses_to_read_it() -> None:
    most = flink.results(clause("A B{,2} C", after="AFTER MATCH SKIP PAST LAST ROW"), table("mixed"))
    both = flink.results(clause("A B{0,2} C", after="AFTER MATCH SKIP PAST LAST ROW"), table("mixed"))
    assert most == both


def test_columns_may_be_named_as_in_silver() -> None:
    sql = clause(define="B AS B.amount > 5 AND B.merchantId = 'm1'", measures="B.dt AS t")
    silver = sql.replace("accountId", "account_id").replace("merchantId", "merchant_id").replace("dt", "timestamp")
    assert flink.results(silver, table("mixed")) == flink.results(sql, table("mixed"))


def test_a_loop_that_may_be_absent_makes_a_pattern_with_another_variable_possible() -> None:
    states = automaton.compile_states((automaton.Variable("A", 0, None), automaton.Variable("B")))
    assert not automaton.can_be_empty(states)
    assert automaton.can_be_empty(automaton.compile_states((automaton.Variable("A", 0, 3),)))
