"""In a workspace entries suppress alerts in the micro-batches of serverless compute, and commands add and end them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.detection.list_entries import Entry
from fraudlake_tools import simulator
from tests.plain_lake import fill
from tests.standin.process import Workspace
from tests.standin.workspace import CATALOG, SCHEMA

from .both import tasks
from .conftest import workspace

pytestmark = [pytest.mark.stream, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture
def compute(tmp_path: Path) -> Iterator[Workspace]:
    with workspace(tmp_path) as (own, _):
        yield own


def detect(compute: Workspace, seed: int) -> None:
    """Land some transactions, of which many are fraud, and raise their alerts."""
    traffic = simulator.Traffic(seed=seed, fraud=0.08, rate=1.0)
    simulator.simulate(compute.landing / f"part-{seed}", traffic, rows=2000, file_rows=2000)
    for job, task, parameters in tasks(compute, "ingest_and_detect"):
        ended = compute.task(*parameters)
        assert ended["code"] == 0, f"{job}.{task}: {ended['error']}"


def command(compute: Workspace, *arguments: str) -> Any:
    ended = compute.task("--catalog", CATALOG, "--schema", SCHEMA, "--json", "rules", *arguments)
    assert ended["code"] == 0, ended["error"]
    return json.loads(ended["out"])


def test_an_account_is_suppressed_from_its_entry_on(compute: Workspace) -> None:
    detect(compute, 1)
    before = compute.rows("silver_alerts").to_pylist()
    account = max(row["account_id"] for row in before)
    until = str((datetime.now(UTC) + timedelta(days=30)).date())
    arguments = ("small_then_large", "--key", account, "--until", until, "--reason", "travels")
    added = command(compute, "suppress", *arguments)["entry"]
    command(compute, "end-suppression", added["entry_id"][:8], "--reason", "it was fraud")
    (listed,) = command(compute, "suppressions", "--all")["entries"]
    assert (listed["entity_key"], listed["ended_because"], listed["alerts"]) == (account, "it was fraud", 0)

    accounts = {row["account_id"] for row in before if row["account_id"] != account}
    start = datetime(2000, 1, 1, tzinfo=UTC)
    always = [
        Entry(
            f"of {one}",
            "suppressed",
            "small_then_large",
            "account",
            one,
            one,
            start,
            start + 99_999 * timedelta(days=1),
            "",
            "ann",
            start,
        )
        for one in accounts
    ]
    fill(compute.folder, tables.SILVER_LIST_ENTRIES, *(entry.added for entry in always))
    detect(compute, 2)
    new = [row for row in compute.rows("silver_alerts").to_pylist() if row not in before]
    held = compute.rows("silver_suppressed_alerts").to_pylist()
    assert {row["account_id"] for row in held} <= accounts
    assert not {row["account_id"] for row in new} & accounts
    assert {row["entry_id"] for row in held} == {f"of {row['account_id']}" for row in held}
    assert min(len(new), len(held)) > 0
    assert not {row["alert_id"] for row in held} & {row["alert_id"] for row in new}
