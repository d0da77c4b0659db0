from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import INTERPRETED, SHORT_LIVED
from tests.delivery.receiver import Receiver, listening
from tests.standin.process import Workspace, running
from tests.workspace import server
from tests.workspace_http import TOKEN

from .shared_broker import broker

__all__ = ["broker", "compute", "receiver", "shared_workspace", "workspace"]


@contextmanager
def workspace(folder: Path) -> Iterator[tuple[Workspace, Receiver]]:
    """Start a workspace in a folder; its API knows secrets, of which one is the address of a webhook."""
    with listening() as receiver:
        delivery = json.dumps({"webhook_url": receiver.url})
        values = {("fraudlake", "kafka"): '{"client.id": "fraudlake"}', ("fraudlake", "delivery"): delivery}
        api = server.Workspace(values=values)
        with (
            server.serving(api),
            running(
                folder,
                DATABRICKS_HOST=api.host,
                DATABRICKS_TOKEN=TOKEN,
                FRAUDLAKE_SPARK_OPTIONS=json.dumps(INTERPRETED),
                **SHORT_LIVED,
            ) as compute,
        ):
            yield compute, receiver


@pytest.fixture(scope="session")
def shared_workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workspace, Receiver]]:
    """One workspace for the whole run: a Spark Connect server takes long to warm up."""
    with workspace(tmp_path_factory.mktemp("workspace")) as shared:
        yield shared


@pytest.fixture(scope="session")
def compute(shared_workspace: tuple[Workspace, Receiver]) -> Workspace:
    """The workspace."""
    return shared_workspace[0]


@pytest.fixture(scope="session")
def receiver(shared_workspace: tuple[Workspace, Receiver]) -> Receiver:
    """Its webhook."""
    return shared_workspace[1]
