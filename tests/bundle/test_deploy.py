"""The bundle through the real Databricks CLI, if it is on the PATH, against a workspace on this machine."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config
from databricks.sdk.errors import ResourceAlreadyExists
from databricks.sdk.service.workspace import ImportFormat

from tests.workspace_http import TOKEN, UNAUTHENTICATED, serving

from .rendering import APPLICATION_ID, DESK, GIVEN, REALTIME_PIPELINE, ROOT, WITHOUT_A_PAUSE, render
from .workspace import WAREHOUSE, Workspace

CLI = shutil.which("databricks")
Run = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.skipif(CLI is None, reason="there is no Databricks CLI ('databricks') on the PATH")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, so that no wheel or state is left in it: as somebody has it who only deploys."""
    folder = tmp_path_factory.mktemp("project")
    unwanted = shutil.ignore_patterns(".git", ".venv*", ".databricks", ".*_cache", "__pycache__", "dist", "lake")
    shutil.copytree(ROOT, folder, ignore=unwanted, dirs_exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def unchanged(copy: Path) -> Iterator[None]:
    """Each test finds the copy's configuration as it is in the project."""
    yield
    for folder in ("resources", ".databricks"):
        shutil.rmtree(copy / folder, ignore_errors=True)
    shutil.copytree(ROOT / "resources", copy / "resources")
    shutil.copy(ROOT / "databricks.yml", copy)


def stop_protecting(copy: Path) -> None:
    """Remove what protects the data of staging and prod, as the guide says."""
    (copy / "resources" / "protection.yml").unlink()


def edit(copy: Path, before: str, after: str) -> None:
    """Change a line of ``databricks.yml``."""
    text = (copy / "databricks.yml").read_text()
    assert before in text
    (copy / "databricks.yml").write_text(text.replace(before, after))


def asked(workspace: Workspace, method: str, path: str) -> list[Any]:
    """The bodies of the requests of this method whose paths contain this one."""
    return [body for way, where, body in workspace.changes if way == method and path in where]


@pytest.fixture
def cloud(copy: Path, request: pytest.FixtureRequest) -> str | None:
    """The cloud whose jobs on clusters are asked for, as ``databricks.yml`` says; None: no such jobs."""
    cloud: str | None = request.param
    if cloud:
        edit(copy, "# - resources/clusters/", "- resources/clusters/")
        edit(copy, "clusters/aws.yml", f"clusters/{cloud}.yml")
    return cloud


@pytest.fixture
def workspace(target: str) -> Workspace:
    """In which a person deploys dev and staging, and the service principal prod, as CI does."""
    return Workspace(APPLICATION_ID if target == "prod" else None)


@pytest.fixture
def bundle(copy: Path, workspace: Workspace, target: str, tmp_path: Path) -> Iterator[Run]:
    """Run ``databricks bundle`` on the target; variables are given as keywords."""
    with serving(workspace.reply_to) as host:

        def run(*arguments: str, token: str = TOKEN, **variables: str) -> subprocess.CompletedProcess[str]:
            inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
            given = {f"BUNDLE_VAR_{name}": value for name, value in variables.items()}
            return subprocess.run(
                [str(CLI), "bundle", *arguments, "--target", target],
                cwd=copy,
                env={
                    **inherited,
                    **given,
                    "HOME": str(tmp_path),
                    "DATABRICKS_HOST": host,
                    "DATABRICKS_TOKEN": token,
                    "DATABRICKS_RATE_LIMIT": "1000",  # a second; by default 15
                    # The build's backend is that of this environment: nothing is fetched.
                    "PYTHON": sys.executable,
                    "PIP_NO_BUILD_ISOLATION": "0",
                },
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )

        yield run


def ok(done: subprocess.CompletedProcess[str]) -> str:
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "Warning" not in said, said
    return said


@pytest.mark.parametrize("target", ["dev"])
def test_the_desk_is_deployed_if_it_is_included(bundle: Run, workspace: Workspace, copy: Path, target: str) -> None:
    edit(copy, f"# - {DESK}", f"- {DESK}")

    ok(bundle("deploy", desk_name="desk-jane"))

    assert set(workspace.objects["apps"]) == {"desk-jane"}
    # No group of the account need exist for it.
    [app] = asked(workspace, "POST", "/api/2.0/apps")[:1]
    assert app["resources"][0]["sql_warehouse"] == {"id": WAREHOUSE["id"], "permission": "CAN_USE"}
    assert [(word, after) for word, after in pairwise(command_of(workspace)) if word == "--analyst-groups"] == [
        ("--analyst-groups", "users, users"),
    ]


def command_of(workspace: Workspace) -> list[str]:
    """The command of the app that is deployed."""
    [deployment] = asked(workspace, "POST", "/deployments")
    command: list[str] = deployment["command"]
    return command


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_the_service_principal_may_set_aliases_after_a_deploy_by_a_person(
    bundle: Run, workspace: Workspace, target: str
) -> None:
    """Some versions of the CLI send ALL_PRIVILEGES alone, if one grant has MANAGE and other privileges with it."""
    ok(bundle("deploy", **GIVEN))

    schema = render(target, **GIVEN).resources["schemas"]["fraudlake"]["name"]
    given = {kind: granted(workspace, kind, f"main.{schema}") for kind in ("schema", "function")}
    assert {"MANAGE", "CREATE_MODEL", "USE_SCHEMA"} <= given["schema"]
    assert given["function"] == {"ALL_PRIVILEGES"}


def granted(workspace: Workspace, kind: str, name: str) -> set[str]:
    """What the CLI asked to grant to the service principal on securables whose names begin so."""
    bodies = asked(workspace, "PATCH", f"/permissions/{kind}/{name}")
    changes = [change for body in bodies for change in body["changes"] if change["principal"] == APPLICATION_ID]
    return {privilege for change in changes for privilege in change["add"]}


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_data_outlives_a_changed_schema_and_a_destroy(bundle: Run, workspace: Workspace, target: str) -> None:
    ok(bundle("deploy", **GIVEN))
    workspace.changes.clear()

    for arguments, variables in ((("deploy",), {"schema": "other"}), (("destroy",), {})):
        done = bundle(*arguments, "--auto-approve", **GIVEN, **variables)
        assert done.returncode == 1
        for resource in (
            "schemas.fraudlake",
            "volumes.landing",
            "volumes.checkpoints",
            "volumes.attachments",
            "registered_models.fraud_model",
        ):
            assert f"resources.{resource} has lifecycle.prevent_destroy set" in done.stderr

    assert not [path for method, path, _ in workspace.changes if method == "DELETE"]
    assert len(workspace.objects["volumes"]) == 3


@pytest.mark.parametrize("target", ["prod"])
def test_dashboard_and_alerts_use_a_warehouse_that_stops_and_that_people_may_use(
    bundle: Run, workspace: Workspace, target: str
) -> None:
    ok(bundle("deploy", **GIVEN))

    [made] = asked(workspace, "POST", "/api/2.0/sql/warehouses")
    [key] = workspace.objects["warehouses"]
    [rights] = asked(workspace, "PUT", f"/api/2.0/permissions/sql/warehouses/{key}")
    assert (made["cluster_size"], made["auto_stop_mins"], made["enable_serverless_compute"]) == ("2X-Small", 5, True)
    assert {"group_name": "users", "permission_level": "CAN_USE"} in rights["access_control_list"]
    users = [*asked(workspace, "POST", "/api/2.0/alerts"), *asked(workspace, "POST", "/api/2.0/lakeview/dashboards")]
    assert {user["warehouse_id"] for user in users if "warehouse_id" in user} == {key}


@pytest.mark.parametrize("target", ["prod"])
@pytest.mark.parametrize("source", ["files", "kafka"])
def test_ingest_starts_by_the_clock_whatever_it_reads(
    bundle: Run, workspace: Workspace, target: str, source: str
) -> None:
    ok(bundle("deploy", **GIVEN, source=source))

    triggers = {job["name"]: job["trigger"] for job in asked(workspace, "POST", "/jobs/create") if "trigger" in job}
    assert triggers == {
        "fraudlake ingest and detect": {"periodic": {"interval": 15, "unit": "MINUTES"}, "pause_status": "UNPAUSED"}
    }


@pytest.mark.parametrize("target", ["dev"])
def test_jobs_and_pipeline_install_from_a_volume_without_a_network(
    bundle: Run, workspace: Workspace, copy: Path, target: str
) -> None:
    """By the lines of the guide."""
    guide = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    [lines] = re.findall(r'\{"dependencies": \[[^\]]*\]\}', guide)
    overrides = copy / ".databricks" / "bundle" / target / "variable-overrides.json"
    overrides.parent.mkdir(parents=True)
    overrides.write_text(lines)

    ok(bundle("deploy"))

    options = ["--no-index", "--find-links=/Volumes/main/tools/wheels"]
    jobs, pipelines = (asked(workspace, "POST", path) for path in ("/jobs/create", "/api/2.0/pipelines"))
    installed = [job["environments"][0]["spec"]["dependencies"] for job in jobs]
    installed += [pipeline["environment"]["dependencies"] for pipeline in pipelines]
    assert len(installed) == len(jobs) + 1
    assert all(some[:2] == options and some[2].endswith(".whl") and len(some) == 3 for some in installed)


@pytest.mark.parametrize("target", ["dev", "staging", "prod"])
def test_a_target_with_a_host_is_deployed_nowhere_else(
    bundle: Run, workspace: Workspace, copy: Path, target: str
) -> None:
    """Even if the environment names another workspace."""
    other = Workspace(APPLICATION_ID if target == "prod" else None)
    with serving(other.reply_to) as host:
        if target == "dev":
            edit(copy, "    mode: development\n", f"    mode: development\n    workspace:\n      host: {host}\n")
        else:
            edit(copy, f"# host: https://YOUR-{target.upper()}-WORKSPACE", f"host: {host}")
        ok(bundle("deploy", **GIVEN))

    assert other.objects["jobs"] and not workspace.objects


@pytest.mark.parametrize("target", ["dev"])
def test_the_tutorial_names_the_model_as_it_is_deployed(bundle: Run, workspace: Workspace, target: str) -> None:
    ok(bundle("deploy"))

    [model] = workspace.objects["models"]
    tutorial = (ROOT / "docs" / "tutorials" / "first-deploy.md").read_text()
    assert f"FRAUDLAKE_MODEL_NAME={model}" in tutorial.replace("<you>", "someone")
    named = {
        given[given.index("--model-name") + 1]
        for tasks in parameters(asked(workspace, "POST", "/jobs/create")).values()
        for given in tasks.values()
        if "--model-name" in given
    }
    assert named == {model}


@pytest.mark.parametrize(
    ("target", "cloud"),
    [("dev", None), ("staging", None), ("staging", "gcp"), ("prod", None), ("prod", "azure")],
    indirect=["cloud"],
)
def test_a_target_is_deployed_once_and_destroyed_whole(
    bundle: Run, workspace: Workspace, copy: Path, target: str, cloud: str | None
) -> None:
    variables = {} if target == "dev" else GIVEN
    rendered = render(target, cloud, **variables)

    ok(bundle("validate", "--strict", **variables))
    ok(bundle("deploy", **variables))

    assert parameters(job["settings"] for job in workspace.objects["jobs"].values()) == parameters(
        rendered.jobs().values()
    )
    assert clusters(job["settings"] for job in workspace.objects["jobs"].values()) == clusters(rendered.jobs().values())
    assert {name: len(some) for name, some in workspace.objects.items()} == {
        {"registered_models": "models", "sql_warehouses": "warehouses"}.get(kind, kind): len(some)
        for kind, some in rendered.resources.items()
    }

    if target != "dev":
        schema = rendered.resources["schemas"]["fraudlake"]["name"]
        granted = {right["principal"]: right["privileges"] for right in workspace.rights[f"schema/main.{schema}"]}
        assert {"USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE"} <= set(granted[APPLICATION_ID])

    assert "0 to add, 0 to change, 0 to delete" in ok(bundle("plan", **variables))
    assert "0 created, 0 changed, 0 deleted" in ok(bundle("deploy", **variables))
    assert rendered.jobs()["gold"]["name"] in ok(bundle("summary", **variables))

    if target != "dev":
        stop_protecting(copy)
    ok(bundle("destroy", "--auto-approve", **variables))

    assert not any(workspace.objects.values())
    assert not workspace.files
    assert not workspace.unanswered


@pytest.mark.parametrize(("target", "cloud"), [("staging", "aws")], indirect=["cloud"])
def test_changed_code_is_deployed_beside_the_wheel_that_runs_still_need(
    bundle: Run, workspace: Workspace, copy: Path, cloud: str
) -> None:
    ok(bundle("deploy", **GIVEN))
    before = wheels(workspace)

    with (copy / "src" / "fraudlake" / "__init__.py").open("a") as module:
        module.write("# Changed.\n")
    ok(bundle("deploy", **GIVEN))

    assert len(before) == 1 and len(wheels(workspace)) == 2
    [changed] = wheels(workspace) - before
    assert wheels_of(workspace.objects["jobs"]) == wheels_of(workspace.objects["pipelines"]) == {changed}
    assert not (copy / ".venv").exists()  # a wheel needs no environment


@pytest.mark.parametrize(("target", "is_continuous"), [("dev", False), ("staging", False), ("prod", True)])
def test_the_fast_lane_runs_as_a_pipeline_in_prod_if_it_is_included(
    bundle: Run, workspace: Workspace, copy: Path, target: str, is_continuous: bool
) -> None:
    """Lakeflow documentation, "Use real-time mode": continuous, on the preview channel, enabled for the pipeline."""
    edit(copy, f"# - {REALTIME_PIPELINE}", f"- {REALTIME_PIPELINE}")

    ok(bundle("deploy", fast_alerts_topic="fast-alerts", **GIVEN))

    asked_for = {one["name"].split("] ")[-1]: one for one in asked(workspace, "POST", "/api/2.0/pipelines")}
    pipeline = asked_for["fraudlake realtime pipeline"]
    assert pipeline.get("continuous", False) is is_continuous
    assert (pipeline["serverless"], pipeline["channel"]) == (True, "PREVIEW")
    assert pipeline["configuration"]["spark.databricks.streaming.realTimeMode.enabled"] == "true"
    assert pipeline["configuration"]["fraudlake.fast_alerts_topic"] == "fast-alerts"
    [library] = pipeline["libraries"]
    assert library["glob"]["include"].endswith("/pipeline/realtime_pipeline.py")
    [other] = asked_for["fraudlake declarative pipeline"]["libraries"]
    assert other["glob"]["include"].endswith("/pipeline/fraudlake_pipeline.py")


@pytest.mark.parametrize("target", ["prod"])
def test_the_serverless_job_without_a_pause_is_deployed_if_it_is_included(
    bundle: Run, workspace: Workspace, copy: Path, target: str
) -> None:
    edit(copy, f"# - {WITHOUT_A_PAUSE}", f"- {WITHOUT_A_PAUSE}")

    ok(bundle("deploy", continuous_serverless="UNPAUSED", **GIVEN))

    [job] = [job for job in asked(workspace, "POST", "/jobs/create") if "continuous" in job]
    assert job["continuous"]["pause_status"] == "UNPAUSED"
    assert job["tasks"][0]["python_wheel_task"]["parameters"][-2:] == ["--trigger", "available-now"]
    assert "job_clusters" not in job


def wheels(workspace: Workspace) -> set[str]:
    return {name for name in workspace.files if name.endswith(".whl")}


def wheels_of(resources: Any) -> set[str]:
    """The wheels that some jobs or pipelines install."""
    return set(re.findall(r'"([^"]+\.whl)"', json.dumps(resources)))


def test_a_file_comes_as_the_clis_of_each_version_send_it() -> None:
    workspace = Workspace()
    with serving(workspace.reply_to) as host:
        client = WorkspaceClient(config=Config(host=host, token=TOKEN, auth_type="pat"))
        client.workspace.mkdirs("/Workspace/files")
        client.workspace.upload("/Workspace/files/wheel", io.BytesIO(b"\0\r\n--a\n"), format=ImportFormat.AUTO)
        with pytest.raises(ResourceAlreadyExists):
            client.workspace.upload("/Workspace/files/wheel", io.BytesIO(b"2"), format=ImportFormat.AUTO)
        client.workspace.upload("/Workspace/files/wheel", io.BytesIO(b"3"), format=ImportFormat.AUTO, overwrite=True)
        client.workspace.upload("/Workspace/files/other", io.BytesIO(b"\0\r\n--a\n"), format=ImportFormat.AUTO)

    assert workspace.files == {"/Workspace/files/wheel": b"3", "/Workspace/files/other": b"\0\r\n--a\n"}


def parameters(jobs: Any) -> dict[str, dict[str, list[str]]]:
    """The parameters of every task, by job and task."""
    return {
        job["name"]: {task["task_key"]: task["python_wheel_task"]["parameters"] for task in job["tasks"]}
        for job in jobs
    }


def clusters(jobs: Any) -> dict[str, Any]:
    """The clusters of jobs that have any."""
    return {job["name"]: job["job_clusters"] for job in jobs if "job_clusters" in job}


@pytest.mark.parametrize("target", ["prod"])
@pytest.mark.parametrize("missing", sorted(GIVEN))
def test_a_missing_variable_is_named(bundle: Run, missing: str) -> None:
    done = bundle("validate", **{name: value for name, value in GIVEN.items() if name != missing})

    assert done.returncode == 1
    assert f"no value assigned to required variable {missing}" in done.stderr


@pytest.mark.parametrize("target", ["dev"])
def test_an_expired_token_is_reported_and_not_shown(bundle: Run) -> None:
    done = bundle("validate", token="dapi-expired-0123456789")

    assert done.returncode == 1
    assert UNAUTHENTICATED.body["message"] in done.stdout + done.stderr
    assert "dapi-expired" not in done.stdout + done.stderr
