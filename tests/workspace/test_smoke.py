from __future__ import annotations

import json

import pytest

from fraudlake_tools.smoke import Smoke, transactions
from tests.conftest import FLINK
from tests.workspace.conftest import Command
from tests.workspace.server import Workspace, landed


def test_the_ten_transactions_are_those_that_flinks_tutorial_has() -> None:
    flink = [json.loads(line) for line in (FLINK / "json" / "tutorial.iso.jsonl").read_text().splitlines()]
    ours = landed(Workspace(), transactions(Smoke("1")))
    assert ours == [(f"smoke-1-{row['accountId']}", row["amount"]) for row in flink]


def test_they_land_and_the_job_runs_and_all_is_taken_away(fraudlake: Command, workspace: Workspace) -> None:
    code, out, _ = fraudlake("smoke")
    assert code == 0
    assert out.startswith("alerts for accounts 2, 4, 3, as in Flink's tutorial; cleaned up.")
    requests = workspace.requests
    put, deleted = (next(line for line in requests if line.startswith(method)) for method in ("PUT", "DELETE"))
    assert put.removeprefix("PUT") == deleted.removeprefix("DELETE")
    assert "/Volumes/main/fraud/landing/fraudlake_smoke/part-" in put
    assert workspace.files == {}
    assert workspace.runs[0]["job_id"] == 11
    # What is deleted is the smoke test's own, by its file, its accounts or its day; the ledger keeps the file's entry.
    _, (ledger, by_file), *deletions = workspace.statements
    assert ledger == "UPDATE bronze_files SET rows = 0 WHERE _source_file = :source"
    (prefix,) = {given["prefix"] for _, given in deletions if "prefix" in given}
    assert prefix.startswith("smoke-") and len(prefix) > 12
    assert {given["table"] for _, given in deletions if given.get("source") == by_file["source"]} == {
        "bronze_transactions",
        "silver_quarantine",
    }
    by_account = {given["table"] for statement, given in deletions if "startswith(account_id, :prefix)" in statement}
    assert {"silver_transactions", "silver_alerts", "gold_account_daily", "gold_fraud_predictions"} <= by_account
    by_day = [(statement, given["table"]) for statement, given in deletions if "day" in given]
    assert all("NOT EXISTS (SELECT 1 FROM silver_transactions WHERE date = " in statement for statement, _ in by_day)
    assert {"gold_detector_agreement", "gold_prediction_quality"} <= {table for _, table in by_day}
    assert all(len(given) == 2 for _, given in deletions)


@pytest.mark.parametrize("alerts", [["3", "4", "2"], []])
def test_other_alerts_fail_and_all_is_taken_away_nevertheless(
    fraudlake: Command, workspace: Workspace, alerts: list[str]
) -> None:
    workspace.alerts = alerts
    code, _, err = fraudlake("smoke")
    assert code == 1
    assert f"smoke: the alerts are of the accounts {alerts}, not ['2', '4', '3']" in err.splitlines()[-1]
    assert workspace.files == {}
    assert "DELETE" in workspace.statements[-1][0]


def test_a_job_that_fails_and_a_clean_up_that_fails_are_both_reported(fraudlake: Command, workspace: Workspace) -> None:
    workspace.fails_with = "fraudlake: no"
    workspace.fail("/api/2.0/sql/statements", 403, {"error_code": "PERMISSION_DENIED", "message": "no MODIFY"})
    code, _, err = fraudlake("smoke")
    assert code == 1
    assert "run 500 failed: ingest: fraudlake: no" in err
    assert "and cleaning up failed: SQL: permission denied (no MODIFY)" in err
