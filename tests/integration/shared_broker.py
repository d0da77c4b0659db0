"""The broker that all tests of a run share: both environments' tests take this fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Kafka broker for the whole run: a test names its topics after itself."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()
