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
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config
from databricks.sdk.errors import ResourceAlreadyExists
from databricks.sdk.service.workspace import ImportFormat

from tests.workspace_http import TOKEN, UNAUTHENTICATED, serving

from .rendering import APPLICATION_ID, DESK, GIVEN, ROOT, render
from .workspace import Workspace

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


@pytest.fixture
def cloud(copy: Path, request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The cloud whose jobs on clusters are asked for, as ``databricks.yml`` says; None: no such jobs."""
    file = copy / "databricks.yml"
    original, cloud = file.read_text(), request.param
    if cloud:
        asked = original.replace("# - resources/clusters/", "- resources/clusters/")
        file.write_text(asked.replace("clusters/aws.yml", f"clusters/{cloud}.yml"))
    yield cloud
    file.write_text(original)


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
    file = copy / "databricks.yml"
    original = file.read_text()
    file.write_text(original.replace(f"# - {DESK}", f"- {DESK}"))

    done = bundle("deploy", desk_name="desk-jane")
    deployed = set(workspace.objects.get("apps", {}))
    bundle("destroy", "--auto-approve", desk_name="desk-jane")
    file.write_text(original)

    ok(done)
    assert deployed == {"desk-jane"}


@pytest.mark.parametrize(
    ("target", "cloud"),
    [("dev", None), ("staging", None), ("staging", "gcp"), ("prod", None), ("prod", "azure")],
    indirect=["cloud"],
)
def test_a_target_is_deployed_once_and_destroyed_whole(
    bundle: Run, workspace: Workspace, target: str, cloud: str | None
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
        {"registered_models": "models"}.get(kind, kind): len(some) for kind, some in rendered.resources.items()
    }

    if target != "dev":
        schema = rendered.resources["schemas"]["fraudlake"]["name"]
        granted = {right["principal"]: right["privileges"] for right in workspace.rights[f"schema/main.{schema}"]}
        assert {"USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE"} <= set(granted[APPLICATION_ID])

    assert "0 to add, 0 to change, 0 to delete" in ok(bundle("plan", **variables))
    assert "0 created, 0 changed, 0 deleted" in ok(bundle("deploy", **variables))
    assert rendered.jobs()["gold"]["name"] in ok(bundle("summary", **variables))

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
