"""What goes wrong between here and a workspace: one line each, the right exit code, and never the token."""

from __future__ import annotations

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config

from fraudlake.errors import UsageError
from fraudlake_workspace import client as clients
from tests.workspace.conftest import Command
from tests.workspace.server import Workspace
from tests.workspace_http import TOKEN

LIST = "/api/2.2/jobs/list"


def failed(fraudlake: Command, workspace: Workspace, status: int, body: object = None, times: int = 99) -> str:
    workspace.fail(LIST, status, body, times=times)
    code, out, err = fraudlake("jobs")
    assert (code, out, err.count("\n")) == (1, "", 1)
    return err


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {"error_code": "UNAUTHENTICATED", "message": f"bad {TOKEN}"}),
        (403, {"error_code": "PERMISSION_DENIED", "message": "Invalid access token. [ReqId: 1]"}),
        (403, {"error_code": 403, "message": "Access token has expired"}),
    ],
)
def test_credentials_that_are_wrong_or_expired(
    fraudlake: Command, workspace: Workspace, status: int, body: object
) -> None:
    line = failed(fraudlake, workspace, status, body)
    assert f"jobs: {workspace.host} refuses the credentials, which are wrong or have expired: log in again" in line


def test_no_rights(fraudlake: Command, workspace: Workspace) -> None:
    body = {"error_code": "PERMISSION_DENIED", "message": f"{TOKEN} may not view jobs"}
    line = failed(fraudlake, workspace, 403, body)
    assert "jobs: permission denied (*** may not view jobs): 'fraudlake workspace check' says what to grant" in line


def test_not_found(fraudlake: Command, workspace: Workspace) -> None:
    line = failed(fraudlake, workspace, 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Job is gone"})
    assert "jobs: it does not exist (Job is gone): check the name" in line


def test_an_error_of_the_workspace(fraudlake: Command, workspace: Workspace) -> None:
    line = failed(fraudlake, workspace, 500, {"error_code": "INTERNAL_ERROR", "message": "oops\nat Frame.scala"})
    assert f"jobs: {workspace.host} could not do it (oops): try again" in line


def test_an_answer_that_is_no_json(fraudlake: Command, workspace: Workspace) -> None:
    line = failed(fraudlake, workspace, 200, "<html>a login page</html>")
    assert f"jobs: {workspace.host} sent an answer that cannot be read" in line


def test_too_many_requests_are_waited_out_as_long_as_the_workspace_asks(
    fraudlake: Command, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = Config(host=workspace.host, token=TOKEN, auth_type="pat", retry_timeout_seconds=60)
    monkeypatch.setattr(clients, "connect", lambda profile: WorkspaceClient(config=patient))
    workspace.fail(LIST, 429, {"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "slow"}, times=1, Retry_After="0")
    code, out, _ = fraudlake("jobs")
    assert code == 0
    assert out.startswith("ingest_and_detect 11 [dev jane] fraudlake ingest and detect")
    assert workspace.requests.count(f"GET {LIST}") == 3  # refused, and two pages


@pytest.mark.slow
def test_too_many_requests_for_too_long(fraudlake: Command, workspace: Workspace) -> None:
    line = failed(fraudlake, workspace, 429, {"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "slow"})
    assert f"jobs: {workspace.host} is busy and refuses more requests for now" in line


@pytest.mark.slow
def test_no_answer_in_time(fraudlake: Command, workspace: Workspace) -> None:
    line = failed(fraudlake, workspace, 0)
    assert f"jobs: {workspace.host} does not answer: check the host and the network" in line


def test_no_workspace_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "none.cfg")
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="run 'databricks auth login', give --profile, or set DATABRICKS_HOST"):
        clients.connect(None)
