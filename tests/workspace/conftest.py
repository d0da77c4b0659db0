from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config

from fraudlake_cli.main import main
from fraudlake_workspace import client as clients
from fraudlake_workspace import jobs, sql
from tests.workspace.server import Workspace, serving
from tests.workspace_http import TOKEN


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    """A workspace that is served; the test fails if it was asked for what no workspace knows."""
    with serving(Workspace()) as served:
        yield served
    assert not served.unknown


@pytest.fixture
def client(workspace: Workspace) -> WorkspaceClient:
    """A client of that workspace that gives up soon."""
    return WorkspaceClient(
        config=Config(
            host=workspace.host, token=TOKEN, auth_type="pat", http_timeout_seconds=0.5, retry_timeout_seconds=1.2
        )
    )


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fraudlake(client: WorkspaceClient, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run ``fraudlake --catalog main --schema fraud workspace …``; gives exit code, standard output and error."""
    monkeypatch.setattr(clients, "connect", lambda profile: client)
    for polling in (jobs, sql):  # this workspace has done in no time what it was asked for
        monkeypatch.setattr(polling, "pauses", lambda most: itertools.repeat(0.01))

    def run(*arguments: str, json: bool = False, schema: str = "fraud") -> tuple[int, str, str]:
        flags = ["--catalog", "main", "--schema", schema, *(["--json"] if json else [])]
        monkeypatch.setattr("sys.argv", ["fraudlake", *flags, "workspace", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(str(end.code))
        printed = capfd.readouterr()
        assert TOKEN not in printed.out + printed.err
        return code, printed.out, printed.err

    return run
