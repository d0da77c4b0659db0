"""What a rule's figures are over: the transactions that the stream has evaluated it on, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from fraudlake.detection import comparison, coverage, rule_table
from fraudlake.rules.kinds import RULE
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected, land

pytestmark = pytest.mark.stream

DEAR = {"kind": "threshold", "name": "dear", "aggregate": "max", "window": "1 transaction", "above": 800}


def rows(first: int, count: int, amount: float = 20.0) -> list[Row]:
    """One account's transactions, a second apart."""
    return [Row("1", MARCH_7 + (first + i) * SECOND, amount, position=first + i) for i in range(count)]


def shadow(lake: Any) -> None:
    rule_table.set_status(lake.store, "dear", "shadow", "ann", None)


def figures(lake: Any) -> tuple[int, int, int]:
    """The transactions, by versions of silver and by event times, and the alerts that the rule is judged over."""
    rules = rule_table.read(lake)
    version = rules.version_of("dear")
    report = comparison.compare(lake, rules, version, None, None).report
    return report.transactions, coverage.evaluated_rows(lake, version, by_time=True).count(), report.alerts


@pytest.mark.long
def test_a_rule_is_judged_over_what_it_has_seen_in_the_shadow_and_live(lake: Any) -> None:
    opened = lake()
    detected(opened, rows(0, 100, 900.0))
    rule_table.add(opened, [RULE.validate_python(DEAR)], "ann", None)
    shadow(opened)
    assert figures(opened) == (0, 0, 0)  # no micro-batch had it yet
    detected(opened, rows(100, 3))
    assert figures(opened) == (3, 3, 0)
    rule_table.set_status(opened.store, "dear", "live", "ann", None)
    detected(opened, rows(103, 2, 900.0))
    land(opened, rows(105, 2))
    assert figures(opened)[::2] == (5, 2)  # the last two were not read yet
    rule_table.retire(opened.store, "dear", "ann", None)
    detected(opened, rows(107, 1, 900.0))
    assert figures(opened) == (5, 5, 2)
    shadow(opened)
    detected(opened, rows(108, 1, 900.0))
    assert figures(opened) == (6, 6, 3)
    of_the_first = comparison.compare(opened, rule_table.read(opened), rule_table.read(opened).live[0], None, None)
    assert of_the_first.report.transactions == 109


@pytest.mark.long
def test_in_event_time_order_a_rule_sees_the_rows_that_were_waiting_when_it_began(lake: Any) -> None:
    opened = lake(ordering="event_time", max_out_of_orderness="10 seconds")
    detected(opened, rows(0, 100, 900.0))
    rule_table.add(opened, [RULE.validate_python(DEAR)], "ann", None)
    shadow(opened)
    detected(opened, rows(1000, 1))
    transactions, by_time, alerts = figures(opened)
    assert transactions == by_time == alerts + 1
    assert 9 <= alerts <= 11
