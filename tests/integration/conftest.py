from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.standin.process import Workspace, running
from tests.workspace import server
from tests.workspace_http import TOKEN

from .broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Kafka broker for the whole run: a test names its topics after itself."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def compute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """One workspace for the whole run, whose API knows a secret: a Spark Connect server takes long to warm up."""
    api = server.Workspace(values={("fraudlake", "kafka"): '{"client.id": "fraudlake"}'})
    with (
        server.serving(api),
        running(tmp_path_factory.mktemp("workspace"), DATABRICKS_HOST=api.host, DATABRICKS_TOKEN=TOKEN) as one,
    ):
        yield one
