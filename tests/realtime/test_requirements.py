"""What the fast lane asks of its topics, at a real broker, and of its compute before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.settings import Settings
from fraudlake_lane import neighbours, session, topics
from tests.integration.broker import Broker


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    with session.started(Settings(lake=folder), folder / "log") as own:
        yield own.spark


@pytest.fixture(scope="module")
def there(broker: Broker) -> dict[str, str]:
    """Settings of topics that suit: two partitions of transactions, some of which are no JSON or have no account."""
    broker.create_topic("suits", 2)
    broker.create_topic("suits-alerts", 1)
    broker.produce(
        "suits",
        [
            ("1", b'{"accountId": 1, "amount": 3}', None),
            ("2", b'{"accountId": "2", "amount": 3}', None),
            (None, b'{"accountId": 3, "amount": 3}', None),
            (None, b"no json", None),
            (None, None, None),
            ("x", b'{"amount": 3}', None),
        ],
    )
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "topic": "suits",
        "fast_alerts_topic": "suits-alerts",
    }


def required(spark: Any, slots: int, **values: Any) -> dict[int, int]:
    return topics.require(spark, Settings(lake=Path("lake"), **values), slots, 2)


def test_topics_that_suit_are_taken_although_some_messages_have_no_key(spark: Any, there: dict[str, str]) -> None:
    ends = required(spark, 4, **there)
    assert len(ends) == 2 and sum(ends.values()) == 6


def test_too_few_task_slots_are_refused(spark: Any, there: dict[str, str]) -> None:
    with pytest.raises(FraudlakeError, match=r"2 partitions of topic 'suits' and the 2 of its state, and Spark has 3"):
        required(spark, 3, **there)


@pytest.mark.parametrize("name", ["topic", "fast_alerts_topic"])
def test_a_topic_that_is_not_there_is_named(spark: Any, there: dict[str, str], name: str) -> None:
    with pytest.raises(FraudlakeError, match="not-there") as refused:
        required(spark, 4, **there | {name: "not-there"})
    assert "\n" not in str(refused.value)


def test_messages_whose_key_is_not_the_account_are_refused_with_one_of_them(
    spark: Any, there: dict[str, str], broker: Broker
) -> None:
    broker.create_topic("other-keys", 1)
    broker.produce("other-keys", [("a", b'{"accountId": 7}', None), (None, b'{"accountId": 8}', None)])
    with pytest.raises(FraudlakeError, match=r"'other-keys' must be their account: 2 of 2 .* \"a\" for account \"7\""):
        required(spark, 4, **there | {"topic": "other-keys"})


def test_brokers_that_do_not_answer_are_one_line(spark: Any, there: dict[str, str]) -> None:
    with pytest.raises(FraudlakeError, match="localhost:1") as refused:
        required(spark, 4, **there | {"bootstrap_servers": "localhost:1"})
    assert "\n" not in str(refused.value)


def test_a_workspaces_compute_is_refused_where_alerts_would_be_missed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(lake=tmp_path)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "16.4")
    with pytest.raises(UsageError, match=r"needs Databricks Runtime 17\.3 or newer, and this compute has 16\.4"):
        session.require_spark()
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3.x-scala2.13")
    with (
        pytest.raises(UsageError, match=r"needs spark\.databricks\.streaming\.realTimeMode\.enabled true"),
        session.started(settings, tmp_path / "log"),
    ):
        pass
    spark.conf.set("spark.databricks.streaming.realTimeMode.enabled", "true")
    with session.started(settings, tmp_path / "log") as own:
        assert own.neighbours is neighbours.by_processor
        assert own.slots == spark.sparkContext.defaultParallelism
    assert spark.range(1).count() == 1  # the compute's session continues
