"""In a workspace a rule of scores goes from draft to shadow to live: its alerts are those of its predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fraudlake_tools import simulator
from tests.standin.process import Workspace
from tests.standin.workspace import CATALOG, SCHEMA

from .both import tasks
from .conftest import workspace

pytestmark = [pytest.mark.stream, pytest.mark.long, pytest.mark.timeout(1200)]

LIKELY = 0.3
Row = dict[str, Any]


@pytest.fixture
def compute(tmp_path: Path) -> Iterator[Workspace]:
    with workspace(tmp_path) as (own, _):
        yield own


def take(compute: Workspace, *jobs: str, **variables: str) -> None:
    """Run the tasks of jobs as the bundle deploys them."""
    for job, task, parameters in tasks(compute, *jobs, **variables):
        ended = compute.task(*parameters)
        assert ended["code"] == 0, f"{job}.{task}: {ended['error']}"


def land(compute: Workspace, seed: int) -> None:
    """Land some transactions, of which many are fraud, and take them to silver."""
    traffic = simulator.Traffic(seed=seed, fraud=0.08, rate=1.0)
    simulator.simulate(compute.landing / f"part-{seed}", traffic, rows=2000, file_rows=2000)
    take(compute, "ingest_and_detect")


def command(compute: Workspace, *arguments: str) -> Any:
    """Run a command by hand; return its answer."""
    ended = compute.task("--catalog", CATALOG, "--schema", SCHEMA, "--json", *arguments)
    assert ended["code"] == 0, ended["error"]
    return json.loads(ended["out"])


def likely(compute: Workspace) -> dict[str, Row]:
    """The predictions that reach the rule's threshold, by transaction."""
    rows = compute.rows("gold_fraud_predictions").to_pylist()
    return {row["transaction_id"]: row for row in rows if row["probability"] >= LIKELY}


def raised(compute: Workspace, table: str) -> list[tuple[str, str, str, float, float]]:
    """The alerts of scores in a table: their transaction, entity, its key, amount and probability."""
    rows = [row for row in compute.rows(table).to_pylist() if row["kind"] == "model"]
    columns = ("transaction_id", "entity", "entity_key", "amount")
    return sorted((*(row[name] for name in columns), float(dict(row["measures"])["probability"])) for row in rows)


def right(rows: dict[str, Row]) -> list[tuple[str, str, str, float, float]]:
    """The alerts of predictions that all reach the threshold."""
    return sorted((name, "account", row["account_id"], row["amount"], row["probability"]) for name, row in rows.items())


def test_a_rule_of_scores_goes_from_draft_to_shadow_to_live(compute: Workspace, tmp_path: Path) -> None:
    rule = tmp_path / "rule.toml"
    rule.write_text(f'[[rules]]\nkind = "model"\nname = "likely"\nthreshold = {LIKELY}\n')
    land(compute, 1)
    take(compute, "train")
    command(compute, "rules", "add", str(rule))
    take(compute, "gold")
    in_draft = likely(compute)
    assert in_draft and raised(compute, "silver_alerts") == raised(compute, "silver_shadow_alerts") == []
    assert command(compute, "rules", "backtest", "likely")["alerts"] == len(in_draft)

    command(compute, "rules", "shadow", "likely")
    land(compute, 2)
    take(compute, "gold")
    in_shadow = {name: row for name, row in likely(compute).items() if name not in in_draft}
    assert raised(compute, "silver_shadow_alerts") == right(in_shadow) != []
    assert raised(compute, "silver_alerts") == []

    command(compute, "rules", "promote", "likely")
    land(compute, 3)
    (scoring,) = (parameters for _, task, parameters in tasks(compute, "gold") if "score" in str(parameters))
    ends = compute.task_until_done(*scoring)
    when_live = {name: row for name, row in likely(compute).items() if name not in {*in_draft, *in_shadow}}
    assert raised(compute, "silver_alerts") == right(when_live) != []
    assert raised(compute, "silver_shadow_alerts") == right(in_shadow)
    assert ends >= 2  # predictions and alerts are two commits
    in_cases = [name for case in compute.rows("gold_cases").to_pylist() for name in case["alert_ids"]]
    assert sorted(in_cases) == sorted(compute.rows("silver_alerts")["alert_id"].to_pylist())
