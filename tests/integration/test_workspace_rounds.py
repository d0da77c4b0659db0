"""Two rounds of the jobs' tasks, ended after their commits: the workspace's tables are those of a laptop.

In the first round a task is ended after its first commit, the next run after its second one, and so on. Then come
verdicts and a replay, and a second round with more files and a Kafka topic. Tables are maintained in the first round,
so that the streams of the second continue after that; a day is scored again in the second.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from fraudlake_tools import simulator
from tests.conftest import FLINK
from tests.standin.process import stored
from tests.standin.workspace import CATALOG, SCHEMA

from .both import BY_HAND, DECLARED, ENDED, RULES, Both
from .broker import Broker
from .conftest import workspace

# The jobs, twice, over Spark Connect.
pytestmark = [pytest.mark.stream, pytest.mark.long, pytest.mark.timeout(2400)]

BAD = FLINK.parent / "bad" / "files"
TOPIC = "workspace-rounds"
MORE_RULES = """
[[rules]]
kind = "threshold"
name = "often"
aggregate = "count"
window = "2 transactions"
above = 1
status = "shadow"
"""
"""One rule changes, and this one begins in the shadow, between two runs of the stream."""


@pytest.fixture(scope="module")
def both(spark: Any, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    with workspace(tmp_path_factory.mktemp("workspace")) as (compute, receiver):
        taken = Both(compute, folder / "laptop", receiver)
        _take_rounds(taken, broker, folder)
        yield taken


def _take_rounds(taken: Both, broker: Broker, folder: Path) -> None:
    first, second = folder / "first", folder / "second"
    simulator.simulate(first / "traffic", simulator.Traffic(fraud=0.08, rate=1.0, bad=0.01), rows=4000, file_rows=900)
    simulator.simulate(second / "more", simulator.Traffic(seed=2, bad=0.02, columns=True), rows=900)
    shutil.copytree(FLINK / "tutorial" / "int96", first / "tutorial")
    # Both ends of the calendar, and amounts whose sums no double can hold.
    edges: dict[str, list[Any]] = {
        "dt": [datetime.min, datetime.max, *(datetime(2026, 1, 1, 0, 0, second) for second in range(4))],
        "accountId": ["first", "last", *["huge"] * 4],
        "amount": [1.0, 1.0, 1e308, 1e308, 5e-324, 1e308],
        "alert": [False, False, False, False, False, True],
    }
    pq.write_table(pa.table(edges), first / "part-edges")
    for name in ("part-damaged-page", "part-truncated", "part-zero-bytes", "part-good"):
        shutil.copy(BAD / name, first / name)
    shutil.copytree(FLINK / "tutorial" / "int64_micros", second / "a b%20+ü")
    shutil.copy(BAD / "part-damaged-footer", second / "part-damaged-footer")
    broker.create_topic(TOPIC, partitions=2)
    pair = [
        {"dt": 1767225600000 + at, "accountId": "k", "amount": amount, "alert": at > 0}
        for at, amount in ((0, 0.5), (9, 900.0))
    ]
    broker.produce(
        TOPIC, [("k", json.dumps(one).encode(), 0) for one in pair] + [("k", b"{not JSON", 1), ("k", None, 1)]
    )
    taken.land(first)
    first_round = ("ingest_and_detect", "deliver", "train", "gold", "maintain")
    for job, task, parameters in taken.tasks(*first_round, deliver_to="webhook"):
        taken.take(job, task, parameters, ended_after=1)
    decided = stored(taken.lake / "tables" / "silver_transactions").sort_by("transaction_id").slice(0, 60)
    lines = [f"{row['transaction_id']},{str(row['label']).lower()}" for row in decided.to_pylist()]
    (folder / "decided.csv").write_text("\n".join(["transaction_id,verdict", *lines]) + "\n")
    schema = ["--catalog", CATALOG, "--schema", SCHEMA]
    taken.take(BY_HAND, "verdicts", [*schema, "verdicts", str(folder / "decided.csv")])
    taken.take(BY_HAND, "replay", [*schema, "quarantine", "--replay", "--set", "amount=abs(amount)"])
    (folder / "rules.toml").write_text(RULES + MORE_RULES)
    for job, task, parameters in taken.tasks("rules", file=str(folder / "rules.toml")):
        taken.take(job, task, parameters)
    # From here on nobody gives the columns: the lake has recorded them.
    for job, task, parameters in taken.tasks("define", columns=DECLARED):
        taken.take(job, task, parameters)
    taken.land(second)
    taken.take(*next(taken.tasks("ingest_and_detect")), ended_after=2)
    kafka = {"source": "kafka", "kafka_bootstrap_servers": broker.bootstrap_servers, "kafka_topic": TOPIC}
    second_round = ("ingest_and_detect", "deliver", "train", "gold", "review_queue", "backfill")
    for job, task, parameters in taken.tasks(
        *second_round, deliver_to="file", max_alerts_per_minute="1000000", **kafka
    ):
        taken.take(job, task, parameters, ended_after={"ingest_and_detect": 2, "backfill": 1}.get(job, 0))


def test_the_workspaces_tables_are_the_laptops_row_for_row(both: Both) -> None:
    assert both.differing() == {}


def test_every_task_was_ended_between_its_commits(both: Both) -> None:
    assert set(both.commits) == ENDED
    # A run is ended after its first commit, the next one after its second, and so on.
    least = {"ingest_and_detect": 4, "gold": 2, "deliver": 1, "backfill": 1}
    assert all(number >= least[job] for job, number in both.commits.items()), both.commits


def test_alerts_reach_a_webhook_and_a_volume_as_they_do_from_a_laptop(both: Both) -> None:
    def data(events: Iterable[dict[str, Any]], source: str) -> dict[str, str]:
        """The data of the events by their ids; the events of an id are the same."""
        lines = {(one["id"], json.dumps(one)) for one in events if one["source"] == f"/fraudlake/{source}"}
        assert len(dict(lines)) == len(lines)
        return {id_: json.dumps({**json.loads(line)["data"], "detected_at": ""}) for id_, line in lines}

    def files(pattern: str, folder: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for file in folder.glob(pattern) for line in file.read_text().splitlines()]

    posted = data(both.receiver.events, f"{CATALOG}.{SCHEMA}")
    assert posted and posted == data(both.receiver.events, "laptop")
    written = data(files("alerts-*/part-*", both.delivered), f"{CATALOG}.{SCHEMA}")
    assert written and written == data(files("alerts-*.jsonl", both.lake / "delivered"), "laptop")
    assert set(written) == set(both.workspace.rows("silver_alerts")["alert_id"].to_pylist())


def test_columns_that_a_job_has_declared_hold_for_every_later_one(both: Both) -> None:
    rows = both.workspace.rows("silver_transactions").to_pylist()
    with_column = {row["source"] for row in rows if row["merchant_id"] is not None}
    assert with_column == {row["source"] for row in rows if row["source"].startswith("more/")} != set()


PURGE = f"""
from fraudlake import tables
from fraudlake.lake import open_lake
from fraudlake.operations import maintenance
from fraudlake.settings import Settings
maintenance.purge(open_lake(Settings(catalog="{CATALOG}", schema="{SCHEMA}")), tables.SILVER_ALERTS)
"""


def test_files_that_no_version_uses_are_removed(both: Both) -> None:
    """The job of maintenance finds tables that are too young to have any."""
    table = both.workspace.folder / "tables" / "silver_alerts"
    before, rows = len(list(table.rglob("part-*.parquet"))), both.workspace.rows(table.name)
    ended = both.workspace.task("-c", PURGE)
    assert ended["code"] == 0, ended["error"]
    assert len(list(table.rglob("part-*.parquet"))) == len(DeltaTable(table).file_uris()) < before
    assert both.workspace.rows(table.name).sort_by("alert_id") == rows.sort_by("alert_id")
