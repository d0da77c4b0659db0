"""The probe inside a workspace, imitated by a local Spark Connect session."""

from __future__ import annotations

import json

import pytest

from fraudlake_tools.probe import assumptions
from tests.standin.process import Workspace
from tests.standin.workspace import CATALOG, SCHEMA

pytestmark = pytest.mark.stream

REFUSED = {
    "setting spark.sql.execution.arrow.maxRecordsPerBatch",
    "setting spark.sql.execution.arrow.maxBytesPerBatch",
    "setting spark.sql.streaming.stateStore.providerClass",
    "persist",
    "task: the volume of the checkpoints",
    "foreachBatch: persist",
    "foreachBatch: the volume of the checkpoints",
    "foreachBatch: MLflow's registry",
    "Auto Loader: _metadata.row_index",
}
"""What the stand-in refuses as serverless compute does, or does not have: the package does without."""


@pytest.mark.long
def test_inside_all_holds_but_what_needs_databricks_itself(compute: Workspace) -> None:
    checkpoints = compute.landing.parent / "checkpoints"
    before = list(checkpoints.iterdir())

    ended = compute.task("--catalog", CATALOG, "--schema", SCHEMA, "--json", "workspace", "probe")

    answers = {answer["question"]: answer for answer in json.loads(ended["out"])["answers"]}
    assert list(answers) == [assumption.question for assumption in assumptions.assumptions()]
    failed = {question: answer["seen"] for question, answer in answers.items() if not answer["ok"]}
    assert set(failed) == REFUSED | {"MLflow"}, failed
    assert all(answers[question]["remedy"] for question in failed)
    assert "CONFIG_NOT_AVAILABLE" in answers["setting spark.sql.execution.arrow.maxRecordsPerBatch"]["seen"]
    assert answers["foreachBatch: its session"]["seen"].endswith("whose current schema is workspace.")
    assert answers["foreachBatch: its rows for each action of refine"]["seen"].endswith("5 and 5 committed")
    assert answers["foreachBatch: views of the batch in MERGE"]["seen"].startswith("10 and 10 rows after two MERGE")
    assert (ended["code"], ended["error"]) == (
        1,
        f"fraudlake: probe: 1 of {len(answers)} assumptions do not hold here: MLflow",
    )
    assert "✓ stateful stream: " in (compute.folder / "log").read_text()
    assert [path.name for path in (compute.folder / "tables").glob("fraudlake_probe*")] == []
    assert list(checkpoints.iterdir()) == before
