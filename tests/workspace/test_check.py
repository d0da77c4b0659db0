from __future__ import annotations

import json

import pytest

from tests.workspace.conftest import Command
from tests.workspace.server import APPLICATION_ID, Workspace


def test_all_is_well_in_one_line_each(fraudlake: Command, workspace: Workspace) -> None:
    code, out, _ = fraudlake("check", "--kafka-secret", "fraudlake/kafka")
    assert code == 0
    assert [line.partition(" at ")[0] for line in out.splitlines()] == [
        "✓ identity: jane@example.com",
        "✓ catalog main: may USE CATALOG",
        "✓ storage of catalog main: s3://bucket/lake",
        "✓ schema main.fraud: may USE SCHEMA, SELECT, MODIFY, CREATE TABLE, CREATE MODEL",
        "✓ volume /Volumes/main/fraud/landing: can be read",
        "✓ volume /Volumes/main/fraud/checkpoints: can be read and written",
        "✓ warehouse: Shared (w2), running",
        "✓ secret fraudlake/kafka: is there; its value was not read",
    ]
    assert workspace.files == {}


def test_missing_rights_are_reported_with_what_to_grant(fraudlake: Command, workspace: Workspace) -> None:
    workspace.grants["SCHEMA", "main.fraud"] = {"analysts": ["USE_SCHEMA", "SELECT"]}
    workspace.read_only = True
    workspace.folders.remove("/Volumes/main/fraud/landing")
    workspace.warehouses = []
    code, out, _ = fraudlake("check", "--kafka-secret", "fraudlake/nokey", json=True)
    assert code == 1
    failed = {check["what"]: check for check in json.loads(out)["checks"] if not check["ok"]}
    assert failed["schema main.fraud"]["seen"] == "lacks CREATE MODEL, CREATE TABLE, MODIFY"
    assert "GRANT USE SCHEMA, SELECT, MODIFY, CREATE TABLE" in failed["schema main.fraud"]["remedy"]
    assert failed["volume /Volumes/main/fraud/landing"]["seen"].startswith("it does not exist")
    assert failed["volume /Volumes/main/fraud/checkpoints"]["seen"].startswith("permission denied")
    assert "WRITE VOLUME ON VOLUME main.fraud.checkpoints" in failed["volume /Volumes/main/fraud/checkpoints"]["remedy"]
    assert failed["warehouse"]["seen"].startswith("there is no SQL warehouse that you may use")
    assert failed["secret fraudlake/nokey"]["seen"] == "the scope 'fraudlake' has no 'nokey'"
    assert len(failed) == 5


def test_a_catalog_that_does_not_exist_is_reported(fraudlake: Command, workspace: Workspace) -> None:
    workspace.grants = {}
    code, out, _ = fraudlake("check")
    assert code == 1
    assert "✗ catalog main: it does not exist (Catalog 'main' does not exist)" in out
    assert "✗ storage of catalog main: it does not exist" in out
    assert "✗ schema main.fraud: it does not exist" in out


def test_groups_that_unity_catalog_does_not_know_hold_nothing_and_stop_nothing(
    fraudlake: Command, workspace: Workspace
) -> None:
    workspace.principals = {"analysts"}
    code, out, _ = fraudlake("check", json=True)
    assert code == 1
    checks = {check["what"]: check for check in json.loads(out)["checks"]}
    assert checks["catalog main"]["seen"] == "may USE CATALOG"
    assert checks["schema main.fraud"]["seen"] == "lacks CREATE MODEL, CREATE TABLE, MODIFY, SELECT, USE SCHEMA"
    assert checks["warehouse"]["ok"]


def test_another_failure_of_a_grant_is_reported(fraudlake: Command, workspace: Workspace) -> None:
    workspace.fail("effective-permissions/CATALOG", 403, {"error_code": "PERMISSION_DENIED", "message": "no MANAGE"})
    code, out, _ = fraudlake("check")
    assert code == 1
    assert "✗ catalog main: permission denied (no MANAGE)" in out


def test_only_groups_of_the_account_can_be_granted_rights(fraudlake: Command) -> None:
    named = ("fraudlake-readers", "fraudlake-local", "fraudlake-nobody")
    code, out, _ = fraudlake("check", *(part for group in named for part in ("--group", group)), json=True)
    assert code == 1
    groups = [check for check in json.loads(out)["checks"] if check["what"] in {f"group {name}" for name in named}]
    assert {check["what"]: (check["ok"], check["seen"]) for check in groups} == {
        "group fraudlake-readers": (True, "is a group of the account"),
        "group fraudlake-local": (
            False,
            "belongs to this workspace alone: Unity Catalog grants rights to groups of the account only",
        ),
        "group fraudlake-nobody": (False, "it does not exist, or is not assigned to this workspace"),
    }


def test_the_service_principal_must_be_one_of_the_workspaces(fraudlake: Command, workspace: Workspace) -> None:
    workspace.service_principals = {}
    code, out, _ = fraudlake("check", "--service-principal", APPLICATION_ID)
    assert (code, f"✗ service principal {APPLICATION_ID}: it does not exist" in out) == (1, True)


def test_the_service_principal_has_what_the_bundle_grants(fraudlake: Command) -> None:
    code, out, _ = fraudlake("check", "--kafka-secret", "fraudlake/kafka", "--service-principal", APPLICATION_ID)
    assert code == 0
    assert out.splitlines()[8:] == [
        f"✓ service principal {APPLICATION_ID}: fraudlake prod",
        f"✓ {APPLICATION_ID} on catalog main: may USE CATALOG",  # through its group
        f"✓ {APPLICATION_ID} on schema main.fraud: may USE SCHEMA, SELECT, MODIFY, CREATE TABLE, CREATE MODEL",
        f"✓ {APPLICATION_ID} on volume main.fraud.landing: may READ VOLUME",
        f"✓ {APPLICATION_ID} on volume main.fraud.checkpoints: may READ VOLUME, WRITE VOLUME",
        f"✓ {APPLICATION_ID} on model main.fraud.fraud_model: may EXECUTE, MANAGE",
        f"✓ {APPLICATION_ID} on the warehouse: may use Shared",
        f"✓ {APPLICATION_ID} on secret scope fraudlake: may READ",
    ]


def test_rights_that_the_service_principal_lacks_are_reported_with_what_to_grant(
    fraudlake: Command, workspace: Workspace
) -> None:
    """As after a deploy by a person whose bundle grants nothing to the principal."""
    workspace.acls = {"fraudlake": ["somebody@example.com"]}
    for securable, granted in workspace.grants.items():
        if securable[0] != "CATALOG":
            granted.pop(APPLICATION_ID)
    workspace.grants["FUNCTION", "main.fraud.fraud_model"] = {APPLICATION_ID: ["ALL_PRIVILEGES"]}
    workspace.owners = {"main.fraud.landing": APPLICATION_ID}
    given = ("check", "--kafka-secret", "fraudlake/kafka", "--service-principal", APPLICATION_ID)
    code, out, _ = fraudlake(*given, json=True)
    assert code == 1
    failed = {check["what"]: check for check in json.loads(out)["checks"] if not check["ok"]}
    assert {what.removeprefix(f"{APPLICATION_ID} on "): check["seen"] for what, check in failed.items()} == {
        "schema main.fraud": "lacks CREATE MODEL, CREATE TABLE, MODIFY, SELECT, USE SCHEMA",
        "volume main.fraud.checkpoints": "lacks READ VOLUME, WRITE VOLUME",
        "model main.fraud.fraud_model": "lacks MANAGE",
        "secret scope fraudlake": "lacks READ",
    }
    assert failed[f"{APPLICATION_ID} on volume main.fraud.checkpoints"]["remedy"] == (
        f"deploy the bundle, or GRANT READ VOLUME, WRITE VOLUME ON VOLUME main.fraud.checkpoints TO `{APPLICATION_ID}`"
    )


@pytest.mark.parametrize("name", ["jane@example.com", "fraudlake prod", "11111111222233334444555555555555"])
def test_a_service_principal_is_given_by_its_application_id(fraudlake: Command, name: str) -> None:
    code, out, err = fraudlake("check", "--service-principal", name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"--service-principal {name}: must be the application id of a service principal" in err


def test_people_and_the_service_principal_must_be_able_to_query_the_warehouse(
    fraudlake: Command, workspace: Workspace
) -> None:
    workspace.warehouse_users.pop(APPLICATION_ID)
    workspace.groups = {"fraudlake-readers": "Group", "viewers": "Group"}
    given = ("--service-principal", APPLICATION_ID, "--group", "fraudlake-readers", "--group", "viewers")
    code, out, _ = fraudlake("check", *given)
    assert code == 1
    assert f"✗ {APPLICATION_ID} on the warehouse: lacks CAN USE on Shared" in out
    assert "✓ group fraudlake-readers on the warehouse: may use Shared" in out
    assert "✗ group viewers on the warehouse: lacks CAN USE on Shared" in out  # CAN VIEW runs no query


def test_everybody_may_query_a_warehouse_of_everybody(fraudlake: Command, workspace: Workspace) -> None:
    workspace.warehouse_users = {"users": "CAN_USE"}
    code, out, _ = fraudlake("check", "--service-principal", APPLICATION_ID, "--group", "fraudlake-readers")
    assert (code, out.count("on the warehouse: may use Shared")) == (0, 2)


def test_clusters_cannot_reach_default_storage(fraudlake: Command, workspace: Workspace) -> None:
    workspace.storage = "s3://dbstorage-prod-a1b2c/uc/6f0a/7c1d"
    code, out, _ = fraudlake("check")
    assert (code, "✓ storage of catalog main: is default storage, which only serverless compute reaches" in out) == (
        0,
        True,
    )

    workspace.jobs[1]["settings"]["job_clusters"] = [{"job_cluster_key": "streams", "new_cluster": {}}]
    code, out, _ = fraudlake("check")
    assert code == 1
    assert "✗ storage of catalog main: is default storage" in out
    assert "not [dev jane] fraudlake ingest and detect" in out


@pytest.mark.parametrize(
    ("uses_file_events", "mark", "seen"),
    [
        (True, "✓", "waits for files, by file events"),
        (False, "✗", "it lists the folder, which has no file events, and ends at 10,000 landed files"),
        (None, "✓", "waits for files; whether it uses file events is known once it has looked for some"),
    ],
)
def test_a_trigger_without_file_events_ends_at_ten_thousand_files(
    fraudlake: Command, workspace: Workspace, uses_file_events: bool | None, mark: str, seen: str
) -> None:
    workspace.jobs[1]["settings"]["trigger"] = {"file_arrival": {"url": "/Volumes/main/fraud/landing/"}}
    workspace.uses_file_events = uses_file_events
    code, out, _ = fraudlake("check")
    assert (code, out.splitlines()[7]) == (
        int(mark == "✗"),
        f"{mark} trigger of [dev jane] fraudlake ingest and detect: {seen}",
    )


def test_a_job_that_reads_kafka_must_not_wait_for_files(fraudlake: Command, workspace: Workspace) -> None:
    settings = workspace.jobs[1]["settings"]
    settings["trigger"] = {"file_arrival": {"url": "/Volumes/main/fraud/landing/"}}
    settings["tasks"][0]["python_wheel_task"]["parameters"] += ["--source", "kafka"]
    code, out, _ = fraudlake("check")
    assert (code, "✗ trigger of [dev jane] fraudlake ingest and detect: it waits for files" in out) == (1, True)


def test_the_model_is_checked_under_the_name_that_the_jobs_give_it(fraudlake: Command, workspace: Workspace) -> None:
    """As in the target staging, where its name has a prefix."""
    name = "main.fraud.staging_fraud_model"
    workspace.grants["FUNCTION", name] = workspace.grants.pop(("FUNCTION", "main.fraud.fraud_model"))
    workspace.jobs[1]["settings"]["tasks"][0]["python_wheel_task"]["parameters"] += ["--model-name", name]
    code, out, _ = fraudlake("check", "--service-principal", APPLICATION_ID)
    assert (code, f"✓ {APPLICATION_ID} on model {name}: may EXECUTE, MANAGE" in out) == (0, True)
