from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.conftest import INTERPRETED
from tests.delivery.receiver import Receiver, listening
from tests.standin.process import Workspace, running
from tests.workspace import server
from tests.workspace_http import TOKEN

from .shared_broker import broker

__all__ = ["broker", "compute", "receiver"]


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    """One webhook for the whole run, whose address is a secret of the workspace."""
    with listening() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def compute(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Workspace]:
    """One workspace for the whole run, whose API knows secrets: a Spark Connect server takes long to warm up."""
    delivery = json.dumps({"webhook_url": receiver.url})
    values = {("fraudlake", "kafka"): '{"client.id": "fraudlake"}', ("fraudlake", "delivery"): delivery}
    api = server.Workspace(values=values)
    with (
        server.serving(api),
        running(
            tmp_path_factory.mktemp("workspace"),
            DATABRICKS_HOST=api.host,
            DATABRICKS_TOKEN=TOKEN,
            FRAUDLAKE_SPARK_OPTIONS=json.dumps(INTERPRETED),
        ) as one,
    ):
        yield one
