"""Ways to find neighbours: a workspace's, in micro-batches, since Real-time Mode calls Python only there; rows that are
kept permanently; and windows of which rows may be missing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake.rules import rule_file
from fraudlake.rules.kinds import RULE, Rule
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.rules.rule_set import Status
from fraudlake.settings import Settings
from fraudlake_lane import alerts, lane, neighbours, rules, session
from tests import oracle
from tests.integration.broker import Broker
from tests.rule_cases import CASES, PAIRS, WINDOWS, Case

from .test_realtime import (
    LIMITS,
    PATIENCE,
    RULES,
    beyond,
    expected,
    expected_beyond,
    message,
    pairs,
    produce_at,
    raised,
    traffic,
)

NOW = time.time_ns() // 1_000_000 * 1000
SMALL_THEN_LARGE = SmallThenLargeRule(
    name="small_then_large", small_below=1.0, large_above=500.0, within=timedelta(minutes=1)
)
LAST_FEW = (
    {"name": "spent", "aggregate": "sum", "window": "5 transactions", "above": 1500},
    {"name": "on_average", "aggregate": "mean", "window": "3 transactions", "below": 5},
    {"name": "once", "aggregate": "max", "window": "1 transaction", "above": 700},
)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[session.Session]:
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with session.started(Settings(lake=folder), folder / "log") as started:
            yield started


def settings_of(folder: Path, broker: Broker, topic: str) -> Settings:
    broker.create_topic(topic, 2)
    broker.create_topic(f"{topic}-alerts", 1)
    topics = {"topic": topic, "fast_alerts_topic": f"{topic}-alerts"}
    return Settings(lake=folder, bootstrap_servers=broker.bootstrap_servers, **topics)


def until(holds: Callable[[], bool], query: Any) -> None:
    """Wait until a condition holds or patience ends, which the assertions after it notice."""
    deadline = time.monotonic() + PATIENCE
    while query.isActive and not holds() and time.monotonic() < deadline:
        time.sleep(1)
    query.stop()
    assert query.exception() is None


Alerts = tuple[set[tuple[str, str, str]], set[tuple[str, ...]]]
"""Those of pairs, and those of thresholds."""


def has_all(broker: Broker, topic: str, truth: Alerts) -> bool:
    return all(map(set.issuperset, said_of(broker, topic), truth))


def said_of(broker: Broker, topic: str) -> Alerts:
    events = raised(broker, topic)
    return pairs(events), beyond(events)


def test_a_processor_raises_the_alerts_of_the_oracle_over_several_runs(
    own: session.Session, tmp_path: Path, broker: Broker
) -> None:
    settings = settings_of(tmp_path, broker, "processed")
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    chosen = rules.choose((rule, status, None) for rule, status in rule_file.read(file))
    processed = replace(own, neighbours=neighbours.by_processor)
    rows = traffic(3, 360, NOW - 400 * oracle.SECOND)
    small, large, newest = (
        oracle.Row("moved", NOW - second * oracle.SECOND, amount, f"moved-{second}")
        for second, amount in ((500, 0.5), (480, 900.0), (0, 20.0))
    )
    so_far: list[oracle.Row] = []
    # An account's earlier rows are read eight minutes after its newest one, which is in another partition.
    for part, partition, moved in ((rows[:200], 0, [newest]), (rows[200:], 1, [small, large])):
        broker.produce("processed", [message(row) for row in part])
        produce_at(broker, "processed", partition, *moved)
        so_far = [*so_far, *part, *moved]
        truth = expected(so_far), expected_beyond(so_far)
        # With `availableNow` a processor that has timers would never end.
        query = lane.writer(processed, settings, chosen).start()
        until(partial(has_all, broker, "processed-alerts", truth), query)
    assert said_of(broker, "processed-alerts") == truth
    assert {rule for rule, _, _ in truth[0]} == set(LIMITS)


def test_rows_that_are_kept_for_good_raise_the_exact_lanes_alerts_however_far_apart_they_are(
    own: session.Session, tmp_path: Path, broker: Broker
) -> None:
    settings = settings_of(tmp_path, broker, "for-good")
    given: list[tuple[Rule, Status, int]] = [(ThresholdRule.model_validate(fields), "live", 1) for fields in LAST_FEW]
    chosen = rules.choose(given, is_without_end=True)
    in_order = traffic(4, 240, 0)
    # Six hours between two rows: those of an account are days apart.
    rows = [row._replace(time=NOW - (len(in_order) - n) * 6 * oracle.HOUR) for n, row in enumerate(in_order)]
    truth = expected_beyond(rows, LAST_FEW)
    assert {rule for rule, *_ in truth} == {fields["name"] for fields in LAST_FEW}
    broker.produce("for-good", map(message, rows))

    query = lane.writer(own, settings, chosen).trigger(**lane.trigger(settings.realtime_batch)).start()
    until(lambda: beyond(raised(broker, "for-good-alerts")) >= truth, query)

    assert beyond(raised(broker, "for-good-alerts")) == truth


@pytest.mark.parametrize(("cases", "is_without_end"), [(PAIRS + WINDOWS, False), (CASES, True)])
def test_the_fast_lane_raises_the_alerts_of_the_cases(
    own: session.Session, tmp_path: Path, cases: list[Case], is_without_end: bool
) -> None:
    # A batch evaluates the row of an account that came last, so each row of a case is the last one of an account.
    accounts = {f"{case.name}/{count}": case for case in cases for count in range(1, len(case.transactions) + 1)}
    rows = [
        row._replace(account_id=account, source=str(row.position))
        for account, case in accounts.items()
        for row in case.rows(NOW - 3 * oracle.HOUR, int(account.rpartition("/")[2]))
    ]
    messages = [message(row) for row in rows]
    kafka = pa.table(
        {
            "key": [str(key).encode() for key, _, _ in messages],
            "value": [value for _, value, _ in messages],
            "topic": ["t"] * len(rows),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": range(len(rows)),
            "timestamp": pa.array([row.time for row in rows], pa.timestamp("us", "UTC")),
        }
    )
    different = {case.rule["name"]: RULE.validate_python(case.rule) for case in cases}
    given: list[tuple[Rule, Status, int]] = [(rule, "live", 1) for rule in different.values()]
    chosen = rules.choose(given, is_without_end)
    assert not chosen.refused

    read = own.spark.createDataFrame(kafka).coalesce(1)
    said = alerts.events(read, Settings(lake=tmp_path), chosen, own.neighbours).collect()

    raised: dict[str, set[tuple[int, ...]]] = {case.name: set() for case in cases}
    for data in (json.loads(event["value"])["data"] for event in said):
        case = accounts[data["account_id"]]
        if data["rule"] == case.rule["name"]:
            raised[case.name].add(tuple(int(row["transaction_id"]) for row in data["evidence"]))
    assert raised == {case.name: set(case.alerts) for case in cases}


def last_of(own: session.Session, tmp_path: Path, count: int, since: datetime | None = None) -> list[dict[str, Any]]:
    """What thresholds say of the last of an account's rows, which follow each other by 10 milliseconds."""
    rule = ThresholdRule(name="busy", aggregate="count", window=timedelta(minutes=1), above=9)
    begin = NOW - NOW % oracle.MINUTE  # where a window begins
    fields = f"'ts', {begin // 1000} + 10 * id, 'accountId', 'a', 'amount', 12.5, 'transaction_id', id"
    messages = own.spark.range(0, count, 1, 1).selectExpr(
        "CAST('a' AS BINARY) AS key", f"CAST(to_json(named_struct({fields})) AS BINARY) AS value", "'t' AS topic",
        "0 AS partition", "id AS offset", f"timestamp_millis({begin // 1000} + 10 * id) AS timestamp",
    )  # fmt: skip
    chosen = rules.choose([(rule, "live", 1)])
    said = alerts.events(messages, Settings(lake=tmp_path), chosen, own.neighbours, since)
    return [json.loads(event["value"])["data"] for event in said.collect()]


def test_a_window_of_which_rows_may_be_missing_raises_nothing(own: session.Session, tmp_path: Path) -> None:
    [alert] = last_of(own, tmp_path, 255)
    assert alert["measures"] == {"count": "255", "transactions": "255"}
    assert [row["transaction_id"] for row in alert["evidence"]] == [str(number) for number in range(235, 255)]
    assert last_of(own, tmp_path, 9) == []
    # More rows than are kept, and rows from before the state was begun.
    assert last_of(own, tmp_path, 257) == []
    begun = [datetime.fromtimestamp(NOW / 1e6, UTC) - timedelta(minutes=minutes) for minutes in (3, 1)]
    assert [len(last_of(own, tmp_path, 10, since)) for since in begun] == [1, 0]


@pytest.mark.parametrize(("apart", "found"), [(60_000, 1), (60_001, 0)])
def test_two_rows_are_a_pair_once_wherever_between_them_a_window_begins(
    own: session.Session, tmp_path: Path, apart: int, found: int
) -> None:
    begin = NOW // 1000 - NOW // 1000 % 600_000  # milliseconds; where a window begins
    # An account each, whose first row is from 61 seconds before that to a second after it.
    fields = "'ts', time, 'accountId', account, 'amount', IF(part = 0, 0.5, 600.0), 'transaction_id', account || part"
    messages = (
        own.spark.range(0, 63, 1, 1)
        .selectExpr("id", "CAST(id AS STRING) AS account", "explode(array(0, 1)) AS part")
        .selectExpr("*", f"{begin} + (id - 61) * 1000 + part * {apart} AS time")
        .selectExpr(
            "CAST(account AS BINARY) AS key", f"CAST(to_json(named_struct({fields})) AS BINARY) AS value",
            "'t' AS topic", "0 AS partition", "2 * id + part AS offset", "timestamp_millis(time) AS timestamp",
        )
    )  # fmt: skip
    chosen = rules.choose([(SMALL_THEN_LARGE, "live", 1)])
    said = alerts.events(messages, Settings(lake=tmp_path), chosen, own.neighbours).collect()
    assert sorted(int(event["key"]) for event in said) == [*range(63)] * found
