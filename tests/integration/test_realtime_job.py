"""The bundle's job ``realtime`` on classic compute, for which an ordinary session on the workspace's catalog stands.

That session is of the lake's Spark, whose Real-time Mode takes no state: the query runs in micro-batches.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fraudlake_lane import lane
from tests.bundle import rendering
from tests.conftest import FraudlakeHere
from tests.standin import classic
from tests.standin.workspace import CATALOG, SCHEMA
from tests.workspace import server
from tests.workspace_http import TOKEN

from .both import RULES
from .broker import Broker

pytestmark = [pytest.mark.stream, pytest.mark.long]

MORE_RULES = """
[[rules]]
kind = "threshold"
name = "often"
aggregate = "count"
window = "1 minute"
above = 2

[[rules]]
kind = "threshold"
name = "rarely"
aggregate = "count"
window = "1 minute"
above = 1
status = "shadow"
"""
AMOUNTS = (0.5, 500.0, 20.0)
"""One small, one that the lake's rule calls large and that of the settings, its first version, not, and a third."""


def test_it_raises_alerts_by_the_lakes_live_rules_with_their_versions(
    spark: Any, broker: Broker, tmp_path: Path, fraudlake_here: FraudlakeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("job-transactions", 1, message_timestamp_type="LogAppendTime")
    broker.create_topic("job-alerts", 1)
    begin = time.time_ns() // 1_000_000
    for account in ("a", "b"):
        rows = [
            {"ts": begin + n, "accountId": account, "amount": amount, "transaction_id": f"{account}{n}"}
            for n, amount in enumerate(AMOUNTS)
        ]
        broker.produce("job-transactions", [(account, json.dumps(row).encode(), None) for row in rows])
    monkeypatch.setattr(lane, "trigger", lambda settings: {"processingTime": "0 seconds"})
    # The session runs two tasks at once.
    monkeypatch.setenv("FRAUDLAKE_SHUFFLE_PARTITIONS", "1")
    schema, file = ["--catalog", CATALOG, "--schema", SCHEMA], tmp_path / "rules.toml"
    file.write_text(RULES + MORE_RULES)
    api = server.Workspace(values={("fraudlake", "kafka"): '{"client.id": "fraudlake"}'})

    with server.serving(api), classic.cluster(spark, tmp_path) as session:
        monkeypatch.setenv("DATABRICKS_HOST", api.host)
        monkeypatch.setenv("DATABRICKS_TOKEN", TOKEN)
        ended = fraudlake_here(*schema, "rules", "apply", str(file), "--yes")
        assert ended.returncode == 0, ended.stderr
        session.conf.set("spark.databricks.streaming.realTimeMode.enabled", "true")
        with classic.stopped_when(lambda: len(broker.messages("job-alerts")) >= 4):
            ended = fraudlake_here(*task(broker))
    assert ended.returncode == 143, ended.stderr

    datas = [json.loads(message.value())["data"] for message in broker.messages("job-alerts")]
    assert sorted((data["rule"], data["rule_version"], data["transaction_id"]) for data in datas) == [
        ("often", 1, "a2"),
        ("often", 1, "b2"),
        ("small_then_large", 2, "a1"),
        ("small_then_large", 2, "b1"),
    ]
    assert "rarely runs in 'fraudlake detect' only: it is in the shadow" in ended.stderr


def task(broker: Broker) -> list[str]:
    """What the bundle calls the job's task with."""
    topics = {"kafka_topic": "job-transactions", "fast_alerts_topic": "job-alerts"}
    given = {"catalog": CATALOG, "schema": SCHEMA, "kafka_bootstrap_servers": broker.bootstrap_servers, **topics}
    tasks = rendering.tasks("prod", "aws", **{**rendering.GIVEN, **given})
    return next(parameters for job, _, parameters in tasks if job == "realtime")
