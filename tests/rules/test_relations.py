"""What is proved of rules and conditions, by hand and against the rules themselves on drawn transactions."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest

from fraudlake.rules import relations
from fraudlake.rules.columns import query_columns
from fraudlake.rules.condition import Condition, answer, both
from fraudlake.rules.kinds import RULE
from fraudlake.settings import Settings

DECLARED = {"risk": "double", "items": "bigint", "country": "string", "is_new": "boolean", "paid": "timestamp"}
COLUMNS = query_columns(Settings(columns=DECLARED).columns)
ENTITIES = Settings(columns=DECLARED, entities={"country": "country"}).entities

COUNT = {"kind": "threshold", "aggregate": "count", "window": "1 hour", "above": 5}
MAX = {"kind": "threshold", "aggregate": "max", "window": "1 hour", "above": 500}
PAIR = {"kind": "small_then_large", "small_below": 1, "large_above": 500, "within": "1 minute"}
MODEL = {"kind": "model", "threshold": 0.9}


def rule(name: str, of: dict[str, Any], **changed: Any) -> Any:
    fields = {**of, "name": name, **changed}
    return RULE.validate_python({key: value for key, value in fields.items() if value is not None})


def findings(one: Any, *others: Any) -> list[tuple[str, str, str | None]]:
    found = relations.find([one, *others], COLUMNS)
    return [(finding.kind, finding.rule, finding.other) for finding in found]


PATTERN = {"kind": "pattern", "pattern": "SMALL LARGE", "measures": {"n": "COUNT(*)"}}

NEVER = [
    (COUNT, {"where": "amount > 500 AND amount < 100"}),
    (COUNT, {"where": "amount > 500 AND NOT amount > 100"}),
    (COUNT, {"where": "amount BETWEEN 5 AND 1"}),
    (COUNT, {"where": "country = 'DE' AND country = 'FR'"}),
    (COUNT, {"where": "country IN ('DE', 'FR') AND country NOT IN ('FR', 'DE', 'IT')"}),
    (COUNT, {"where": "country IS NULL AND country <> 'DE'"}),
    (COUNT, {"where": "items > 1 AND items < 2"}),
    (COUNT, {"where": "is_new AND NOT is_new"}),
    (COUNT, {"where": "is_new = TRUE AND is_new = FALSE"}),
    (COUNT, {"where": "(amount > 10 OR risk > 1) AND amount <= 10 AND risk <= 1"}),
    (COUNT, {"where": "country LIKE 'D%' AND NOT country LIKE 'D%'"}),
    (COUNT, {"where": "items = 2.5"}),
    (COUNT, {"where": "is_new NOT IN (TRUE, FALSE)"}),
    (COUNT, {"where": "FALSE"}),
    (COUNT, {"window": "5 transactions"}),
    (COUNT, {"above": None, "below": 1}),
    (MAX, {"where": "amount <= 500"}),
    (MAX, {"above": None, "below": 100, "where": "amount >= 100"}),
    ({**MAX, "aggregate": "mean"}, {"where": "amount < 100"}),
    ({**MAX, "aggregate": "distinct", "column": "country"}, {"window": "3 transactions", "above": 3}),
    ({**MAX, "aggregate": "share", "where": "amount > 5"}, {"above": 1}),
    (PATTERN, {"define": {"SMALL": "SMALL.amount < 1", "LARGE": "LARGE.amount > 500 AND LARGE.amount < 5"}}),
]
MAY = [
    (COUNT, {"where": "amount > 100 AND amount < 500"}),
    (COUNT, {"where": "items > 1 AND items < 3"}),
    (COUNT, {"where": "amount > 500 OR amount < 100"}),
    (COUNT, {"where": "amount > risk AND amount < risk"}),
    (COUNT, {"where": "NOT (risk > 5) AND NOT (risk <= 5)"}),  # NaN
    (COUNT, {"where": "amount > 1e16"}),
    (COUNT, {"where": "amount < -1e16 AND amount <> -2e16"}),
    (COUNT, {"where": "amount > -1e308 AND amount < 1e308"}),
    (COUNT, {"where": "amount > 1 AND amount <= 1.0000000000000002"}),
    (COUNT, {"where": "amount BETWEEN SYMMETRIC 5 AND 1"}),
    (COUNT, {"where": "items <= 1e16 AND items > 10000000000000000"}),  # compared as doubles
    (COUNT, {"window": "6 transactions"}),
    (MAX, {"where": "amount <= 501"}),
    ({**MAX, "aggregate": "sum"}, {"where": "amount < 100"}),
    ({**MAX, "aggregate": "mean"}, {"where": "amount <= 254.82", "above": 254.82}),  # a mean is rounded
    ({**MAX, "aggregate": "share", "where": "amount > 5"}, {"above": 0.99}),
    (PATTERN, {"define": {"SMALL": "SMALL.amount < 1", "LARGE": "LARGE.amount > SMALL.amount"}}),
    (
        PATTERN,
        {"pattern": "SMALL LARGE*", "define": {"SMALL": "SMALL.amount < 1", "LARGE": "LARGE.amount > 5 AND FALSE"}},
    ),
]
CONTAINED = [
    (COUNT, {"above": 6}, {}),
    (COUNT, {"window": "30 minutes"}, {}),
    (COUNT, {"where": "amount > 100"}, {}),
    (COUNT, {"where": "amount > 100"}, {"where": "amount > 50"}),
    (COUNT, {"where": "country = 'DE' AND amount > 5"}, {"where": "country IN ('DE', 'FR')"}),
    (COUNT, {"where": "items BETWEEN 5 AND 6"}, {"where": "NOT (items < 5 OR items > 6)"}),
    (COUNT, {"where": "risk BETWEEN 5 AND 6"}, {"where": "NOT (risk < 5 OR risk > 6)"}),  # NaN fulfils the second
    (COUNT, {"where": "is_new AND items = 3"}, {"where": "items > 2 AND items IS NOT NULL"}),
    (MAX, {"above": 600}, {}),
    (MAX, {"window": "10 minutes", "where": "amount > 5"}, {"where": "amount > 1"}),
    (MAX, {"aggregate": "min", "above": None, "below": 5}, {"aggregate": "min", "above": None, "below": 9}),
    ({**MAX, "aggregate": "mean"}, {"above": 700}, {}),
    ({**MAX, "aggregate": "sum", "column": "items"}, {"above": 9}, {"above": 8}),
    (PAIR, {"small_below": 0.5, "large_above": 900, "within": "30 seconds"}, {}),
    (PAIR, {"within": "59 seconds"}, {}),
    (MODEL, {"threshold": 0.95}, {}),
]


@pytest.mark.parametrize(("of", "changed"), NEVER)
def test_a_rule_that_can_never_alert_is_found(of: dict[str, Any], changed: dict[str, Any]) -> None:
    assert findings(rule("one", of, **changed)) == [("never", "one", None)]


@pytest.mark.parametrize(("of", "changed"), MAY)
def test_a_rule_that_may_alert_is_left_alone(of: dict[str, Any], changed: dict[str, Any]) -> None:
    assert findings(rule("one", of, **changed)) == []


@pytest.mark.parametrize(("of", "inner", "outer"), CONTAINED)
def test_a_rule_that_is_contained_in_another_is_found_in_this_direction_alone(
    of: dict[str, Any], inner: dict[str, Any], outer: dict[str, Any]
) -> None:
    one, other = rule("one", of, **inner), rule("other", of, **outer)
    assert ("contained", "one", "other") in findings(one, other)
    is_equal = "items BETWEEN" in inner.get("where", "")
    assert (("contained", "other", "one") in findings(other, one)) == is_equal


@pytest.mark.parametrize(
    ("of", "inner", "outer"),
    [
        (COUNT, {"above": 6, "window": "2 hours"}, {}),
        (COUNT, {"above": 6, "where": "amount > 1"}, {"where": "amount > 2"}),
        (COUNT, {"above": 6, "column": "items"}, {}),
        (COUNT, {"window": "9 transactions", "where": "amount > 2"}, {"window": "10 transactions"}),
        ({**MAX, "aggregate": "sum"}, {"window": "30 minutes"}, {}),
        ({**MAX, "aggregate": "mean"}, {"window": "30 minutes"}, {}),
        # The last 30 minutes may have no value, and the hour NaN.
        ({**MAX, "column": "items", "above": None, "below": 5}, {}, {"window": "30 minutes"}),
        ({**MAX, "column": "risk"}, {"window": "30 minutes"}, {}),
        ({**MAX, "column": "risk"}, {"aggregate": "count", "column": "amount", "where": "risk > 500"}, {}),
        (PAIR, {"small_below": 2}, {}),
        (MODEL, {"threshold": "5 accounts a day"}, {}),
    ],
)
def test_what_is_not_contained_is_not_called_so(of: dict[str, Any], inner: Any, outer: Any) -> None:
    assert ("contained", "one", "other") not in findings(rule("one", of, **inner), rule("other", of, **outer))


def test_a_large_payment_alone_crosses_a_limit_and_rules_of_other_payments_are_apart() -> None:
    pair = rule("pair", PAIR)
    assert findings(pair, rule("large", MAX, above=400)) == [("contained", "pair", "large")]
    assert findings(pair, rule("by_country", MAX, above=400, entity="country")) == [("overlap", "pair", "by_country")]
    assert findings(pair, rule("small", COUNT, where="amount < 100")) == [("apart", "pair", "small")]
    (found,) = relations.find(
        [rule("one", COUNT, where="country = 'DE'"), rule("other", MAX, where="items > 3")], COLUMNS
    )
    assert found.example == {"country": "DE", "items": 4}
    assert str(found) == "one and other may alert on one transaction, such as country 'DE', items 4"
    assert findings(pair, rule("likely", MODEL)) == [("undecided", "pair", "likely")]


def test_of_one_transaction_the_aggregate_is_its_own_value_also_of_a_column_with_a_keyword_as_its_name() -> None:
    columns = query_columns(Settings(columns={"order": "bigint"}).columns)
    own = {**MAX, "column": "order", "window": "1 transactions"}
    above, below = rule("above", own, above=300), rule("below", own, aggregate="sum", above=None, below=200)
    wide = rule("wide", MAX, column="order", above=200)
    found = relations.find([above, below, wide], columns)
    assert [(one.kind, one.rule, one.other, one.example) for one in found] == [
        ("apart", "above", "below", None),
        ("contained", "above", "wide", None),
        ("overlap", "below", "wide", {"order": 0}),
    ]


VALUES: dict[str, list[Any]] = {
    "amount": [1.0, 2.0, 2.5, 3.0],
    "risk": [None, math.nan, 1.0, 2.0, 3.0],
    "items": [None, 1, 2, 3],
    "country": [None, "DE", "FR", "other"],
    "is_new": [None, True, False],
}
ATOMS = [
    *(f"{name} {operator} {limit}" for name in ("amount", "risk", "items")
      for operator in ("<", "<=", ">", ">=", "=", "<>") for limit in (1, 2, 3)),
    *("country = 'DE'", "country <> 'FR'", "country IN ('DE', 'FR')", "country NOT IN ('DE')", "country IS NULL"),
    *("is_new", "NOT is_new", "is_new = FALSE", "items BETWEEN 1 AND 2", "risk IS NOT NULL", "2 < items", "items <> 2"),
]  # fmt: skip


def drawn(draw: random.Random, depth: int = 3) -> str:
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(ATOMS)
    if draw.random() < 0.25:
        return f"NOT ({drawn(draw, depth - 1)})"
    return f"({drawn(draw, depth - 1)} {draw.choice(['AND', 'OR'])} {drawn(draw, depth - 1)})"


def everything() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{}]
    for name, values in VALUES.items():
        rows = [{**row, name: value} for row in rows for value in values]
    return rows


def holds(condition: str, rows: list[dict[str, Any]]) -> list[bool]:
    """Which rows fulfil a condition, by the rule that counts them."""
    counted = rule("counted", COUNT, where=condition, window="1 transactions", above=0).compile(COLUMNS)
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in VALUES}
    types = {"risk": pa.float64(), "items": pa.int64(), "country": pa.string(), "is_new": pa.bool_()}
    table = pa.table(
        {name: pa.array(values, types.get(name), from_pandas=False) for name, values in columns.items()}
        | {"account_id": [str(number) for number in range(len(rows))], "source": ["s"] * len(rows)}
        | {"timestamp": pa.array([0] * len(rows), pa.timestamp("us", "UTC")), "position": range(len(rows))}
    )
    alerted = {alert.rows[-1] for alert in counted.evaluate(table).alerts}
    return [number in alerted for number in range(len(rows))]


@pytest.mark.parametrize("seed", range(150))
def test_what_is_said_of_two_drawn_conditions_is_so_on_all_transactions(seed: int) -> None:
    draw = random.Random(seed)
    one, other = drawn(draw), drawn(draw)
    rows = everything()
    of_one, of_other = holds(one, rows), holds(other, rows)
    found = answer(Condition(one, COLUMNS).cases())
    assert found.is_possible is not None
    if any(of_one):
        assert found.is_possible
    if found.is_possible:
        assert found.example is not None
        assert holds(one, [{"amount": 1.0, **found.example}]) == [True]
    is_implied = not both(Condition(one, COLUMNS).cases(), Condition(other, COLUMNS).cases("not true"))
    has_counterexample = any(mine and not theirs for mine, theirs in zip(of_one, of_other, strict=True))
    assert not (is_implied and has_counterexample)
    if found.is_possible is False:
        assert is_implied


FIELDS: dict[str, list[Any]] = {
    "aggregate": ["count", "distinct", "min", "max", "mean", "last", "sum"],
    "column": ["amount", "items", "risk"],
    "window": ["1 second", "3 seconds", "10 seconds", "2 transactions", "4 transactions"],
    "entity": ["account", "country"],
    "above": [0, 1, 2, 2.5, 3],
    "below": [1, 2, 2.5, 3, 9],
}


def drawn_rule(name: str, draw: random.Random, like: dict[str, Any] | None = None) -> dict[str, Any]:
    """Draw a threshold, or change one."""
    of = {name: draw.choice(values) for name, values in FIELDS.items()} | {"where": drawn(draw, 2)}
    limit = draw.choice(["above", "below"])
    fields = {**of, "kind": "threshold", "above": None, "below": None, limit: of[limit]}
    if like is not None:
        kept = draw.sample(sorted(fields), len(fields) - 2) if draw.random() < 0.9 else []
        fields |= {field: like[field] for field in {*kept, "above", "below"}}
    return {**fields, "name": name}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_proved_of_drawn_thresholds_is_so_of_drawn_transactions(seed: int) -> None:
    draw = random.Random(seed)
    columns: dict[str, Any] = {name: [draw.choice(values) for _ in range(300)] for name, values in VALUES.items()}
    seconds = sorted(draw.randrange(300) for _ in range(300))
    table = pa.table(
        {name: pa.array(values, from_pandas=False) for name, values in columns.items()}
        | {"account_id": [draw.choice("AB") for _ in range(300)], "source": ["s"] * 300, "position": range(300)}
        | {"timestamp": pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC"))}
    )
    for _ in range(20):
        of_one = drawn_rule("one", draw)
        rules = [rule("one", of_one), rule("other", drawn_rule("other", draw, of_one))]
        alerts = {
            one.name: {alert.rows[-1] for alert in one.compile(COLUMNS, ENTITIES).evaluate(table).alerts}
            for one in rules
        }
        for finding in relations.find(rules, COLUMNS):
            mine, others = alerts[finding.rule], alerts.get(finding.other or "", set())
            wrong = {"never": mine, "contained": mine - others, "apart": mine & others}.get(finding.kind)
            assert not wrong, f"{finding}: {rules}"
