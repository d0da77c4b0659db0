"""Both ways to find neighbours, the one of workspaces in micro-batches: Real-time Mode calls Python only there."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from fraudlake.realtime import lane, neighbours, rules, session
from fraudlake.rules import rule_file
from fraudlake.settings import Settings
from tests import oracle
from tests.integration.broker import Broker

from .test_realtime import LIMITS, RULES, expected, message, pairs, raised, traffic


def test_a_processor_raises_the_alerts_of_the_oracle_over_several_runs(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    broker.create_topic("processed", 2)
    broker.create_topic("processed-alerts", 1)
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    settings = Settings(
        lake=tmp_path,
        bootstrap_servers=broker.bootstrap_servers,
        topic="processed",
        fast_alerts_topic="processed-alerts",
    )
    chosen = rules.choose((rule, status, None) for rule, status in rule_file.read(file))
    now = time.time_ns() // 1_000_000 * 1000
    rows = traffic(3, 360, now - 400 * oracle.SECOND)
    with session.started(settings, tmp_path / "log") as own:
        processed = session.Session(own.spark, own.slots, neighbours.by_processor, own.log)
        for part, truth in ((rows[:200], expected(rows[:200])), (rows[200:], expected(rows))):
            broker.produce("processed", [message(row) for row in part])
            # With `availableNow` a processor that has timers would never end.
            query = lane.writer(processed, settings, chosen).start()
            while query.isActive and not pairs(raised(broker, "processed-alerts")) >= truth:
                time.sleep(1)
            query.stop()
    events = raised(broker, "processed-alerts")
    assert pairs(events) == expected(rows)
    assert {rule for rule, _, _ in pairs(events)} == set(LIMITS)
