"""Every engine that needs no Spark raises the alerts of the cases; so do the oracle and the plain rules."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fraudlake.rules.columns import query_columns
from fraudlake.rules.kinds import RULE
from tests import rule_cases
from tests.detection import plain_rules
from tests.rule_cases import CASES, EXACT, Case


@pytest.mark.parametrize("case", CASES + EXACT, ids=lambda case: case.name)
def test_a_compiled_rule_raises_the_alerts_of_the_case(case: Case) -> None:
    rows = case.rows()
    table = pa.table(
        {
            "account_id": [row.account_id for row in rows],
            "timestamp": pa.array([row.time for row in rows], pa.timestamp("us", "UTC")),
            "amount": [row.amount for row in rows],
            "source": [row.source for row in rows],
            "position": [row.position for row in rows],
        }
    )
    alerts = RULE.validate_python(case.rule).compile(query_columns({})).evaluate(table).alerts
    assert [tuple(alert.rows) for alert in alerts] == case.alerts


@pytest.mark.parametrize("case", rule_cases.PAIRS, ids=lambda case: case.name)
def test_the_oracle_agrees(case: Case) -> None:
    assert [pair for pair, _ in plain_rules.alerts(case.rule, case.rows())] == case.alerts
