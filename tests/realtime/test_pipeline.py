"""The fast lane's declarative pipeline: only Lakeflow has update flows, so its flow runs here in micro-batches."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import pipelines

from fraudlake.rules import rule_file
from fraudlake_lane import session
from tests import oracle
from tests.integration.broker import Broker

from .test_neighbours import NOW, has_all, own, said_of, until
from .test_realtime import RULES, expected, expected_beyond, message, traffic

__all__ = ["own"]

PROGRAM = Path(__file__).parents[2] / "pipeline" / "realtime_pipeline.py"


class Lakeflow:
    """What a pipeline's program has declared."""

    def __init__(self) -> None:
        self.sinks: dict[str, tuple[str, dict[str, str]]] = {}
        self.flows: dict[str, dict[str, Any]] = {}

    def create_sink(self, name: str, format: str, options: dict[str, str]) -> None:
        self.sinks[name] = format, options

    def update_flow(self, *, name: str, target: str, spark_conf: dict[str, str]) -> Any:
        def declare(query: Any) -> None:
            self.flows[name] = {"query": query, "target": target, "spark_conf": spark_conf}

        return declare


@pytest.fixture
def lakeflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lakeflow]:
    declared = Lakeflow()
    for name in ("create_sink", "update_flow"):
        monkeypatch.setattr(pipelines, name, getattr(declared, name), raising=False)
    yield declared


def test_the_pipelines_flow_raises_the_alerts_of_the_oracle(
    own: session.Session, lakeflow: Lakeflow, tmp_path: Path, broker: Broker
) -> None:
    broker.create_topic("taken", 2)
    broker.create_topic("taken-alerts", 1)
    (tmp_path / "rules.toml").write_text(RULES)
    given = [rule.model_dump(mode="json", exclude_none=True) for rule, _ in rule_file.read(tmp_path / "rules.toml")]
    configuration = {
        "bootstrap_servers": broker.bootstrap_servers,
        "topic": "taken",
        "fast_alerts_topic": "taken-alerts",
        "rules": json.dumps(given),
        "kafka_secret": "",
        "shuffle_partitions": "1",
        "realtime_batch": "1 minute",
    }
    for name, value in configuration.items():
        own.spark.conf.set(f"fraudlake.{name}", value)

    runpy.run_path(str(PROGRAM))

    [(name, flow)] = lakeflow.flows.items()
    kind, options = lakeflow.sinks[flow["target"]]
    assert (name, kind, options["topic"]) == ("realtime", "kafka", "taken-alerts")
    assert flow["spark_conf"]["pipelines.trigger"] == "RealTime"
    assert flow["spark_conf"]["pipelines.trigger.interval"] == "60 seconds"
    rows = traffic(5, 360, NOW - 400 * oracle.SECOND)
    broker.produce("taken", map(message, rows))
    truth = expected(rows), expected_beyond(rows)
    assert all(truth)
    for key, value in flow["spark_conf"].items():
        own.spark.conf.set(key, value)
    query = (
        flow["query"]().writeStream.format(kind).options(**options).outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    until(partial(has_all, broker, "taken-alerts", truth), query)
    assert said_of(broker, "taken-alerts") == truth
