"""Files of verdicts: analysts name transactions or alerts, and learn which ids the lake does not have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.rules.kinds import RULE
from tests.conftest import FraudlakeHere
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected, land

pytestmark = pytest.mark.stream

DEAR = {"kind": "threshold", "name": "dear", "aggregate": "maximum", "transactions": 1, "above": 800}


@pytest.fixture
def raised(lake: Any) -> Any:
    """A lake with an alert, and one of a shadow that ends with the same transaction."""
    opened = lake()
    rule_table.add(opened, RULE.validate_python(DEAR), "ann", None)
    rule_table.set_status(opened, "dear", "shadow", "ann", None)
    amounts = (20.0, 0.5, 900.0, 30.0)
    detected(opened, [Row("1", MARCH_7 + i * SECOND, amount, position=i) for i, amount in enumerate(amounts)])
    return opened


def ids(lake: Any) -> list[str]:
    """The id of the alert, and that of the shadow's."""
    of_tables = (tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS)
    return [lake.query(table, "alert_id")["alert_id"][0].as_py() for table in of_tables]


def decided(lake: Any) -> list[tuple[str, bool, str | None]]:
    rows = lake.query(tables.SILVER_VERDICTS, "transaction_id, verdict, analyst").to_pylist()
    return sorted((row["transaction_id"], row["verdict"], row["analyst"]) for row in rows)


def test_verdicts_name_transactions_or_alerts_and_unknown_ids_are_listed(
    raised: Any, tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    alert, shadow = ids(raised)
    file = tmp_path / "decided.csv"
    file.write_text(
        "alert_id,transaction_id,verdict,analyst\n"
        f"{alert},,fraud,ann\n{shadow},,yes,bob\nno-such-alert,,true,ann\n"
        ",part-0-0,false,ann\n,part-0-99,false,ann\n"
    )
    done = fraudlake_here("--lake", str(raised.root), "verdicts", str(file))
    assert done.returncode == 1
    assert done.stdout.startswith("3 verdicts loaded, 0 were known already;")
    assert done.stderr.splitlines()[-1] == (
        f"fraudlake: {file}: 2 verdicts are about no transaction and no alert of this lake, and were not loaded: "
        "no-such-alert, part-0-99"
    )
    expected = [("part-0-0", False, "ann"), ("part-0-2", True, "ann"), ("part-0-2", True, "bob")]
    assert decided(raised) == expected

    again = fraudlake_here("--lake", str(raised.root), "--json", "verdicts", str(file))
    assert again.returncode == 1
    loaded = {"taken": 0, "known": 3, "unmatched": 2, "unknown": ["no-such-alert", "part-0-99"]}
    assert json.loads(again.stdout) == loaded
    assert decided(raised) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("id,verdict\n1,true\n", "needs the columns verdict, and transaction_id or alert_id"),
        ("alert_id\n1\n", "needs the columns verdict, and transaction_id or alert_id"),
        ("transaction_id,verdict\npart-0-0,maybe\n", "the verdict on part-0-0 must be true or false"),
        ("transaction_id,verdict\n,true\n", "a verdict has neither a transaction_id nor an alert_id"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_line_and_loads_nothing(
    lake: Any, tmp_path: Path, fraudlake_here: FraudlakeHere, text: str, line: str
) -> None:
    opened = lake()
    land(opened, [Row("1", MARCH_7, 20.0)])
    file = tmp_path / "decided.csv"
    file.write_text(text)
    done = fraudlake_here("--lake", str(opened.root), "verdicts", str(file))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"fraudlake: {file}: {line}")
    assert decided(opened) == []
