"""Every task of every job, called as the bundle deploys it, on compute that refuses what serverless compute refuses.

The same files and messages go through a lake on this machine; its tables are the truth for those of the workspace. In
the first round a task is ended behind its first commit, the next run behind its second one, and so on. Then come
verdicts and a replay, and a second round with more files and a Kafka topic. Tables are maintained in the first round,
so that the streams of the second go on behind that; a day is scored again in the second.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from fraudlake import simulator, tables
from fraudlake.lake import contents
from tests.bundle import rendering
from tests.conftest import FLINK, FraudlakeHere
from tests.conftest import run as fraudlake
from tests.delivery.receiver import Receiver
from tests.standin import classic, workspace
from tests.standin.process import Workspace, stored
from tests.standin.workspace import CATALOG, SCHEMA

from .broker import Broker

pytestmark = [pytest.mark.stream, pytest.mark.timeout(2400)]  # the jobs, twice, over Spark Connect

BAD = FLINK.parent / "bad" / "files"
DAY = "2026-01-01"
TOPIC = "workspace-jobs"
ENDED = {"ingest", "refine", "detect", "deliver", "aggregate", "score"}
"""Tasks that are ended behind their commits."""
RULES = """
[[rules]]
name = "small_then_large"
small_below = 1
large_above = 400
within = "60 s"

[[rules]]
kind = "threshold"
name = "often"
aggregate = "count"
transactions = 2
above = 1
status = "shadow"
"""
"""One rule changes, and another one begins in the shadow, between two runs of the stream."""
DECLARED = '{"merchant_id": {"from": "merchantId", "type": "string"}}'
"""The column that the lakes get between the rounds."""
BY_HAND = "by hand"
"""Commands that no job runs."""
OWN = {
    "_ingested_at",
    "detected_at",
    "quarantined_at",
    "scored_at",
    "noted_at",
    "number",  # rises with each commit to the ledger, and a task that was ended has made one more
    "rejected_at",
    "published_at",
    "changed_at",
    "modified_at",  # to the millisecond in a workspace
    "inode",  # of a disk only
    "model",
    "profile",
}
"""Columns that differ from lake to lake: when something was done, and a model's numbers, whose last digits depend on
the order in which rows come; its scores and what they make of drift are compared."""


@dataclass
class Both:
    """A workspace and a lake on this machine that have taken the same."""

    workspace: Workspace
    lake: Path
    receiver: Receiver
    commits: dict[str, int] = field(default_factory=dict)
    """How often a task was ended behind a commit."""
    rows: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    """Rows of the tables after each task."""

    @property
    def delivered(self) -> Path:
        """The workspace's folder of delivered alerts."""
        return self.workspace.landing.with_name("delivered")

    def land(self, folder: Path) -> None:
        for landing in (self.workspace.landing, self.lake / "landing"):
            shutil.copytree(folder, landing, dirs_exist_ok=True)

    def take(self, job: str, task: str, parameters: list[str], ended_behind: int = 0) -> None:
        """Run a task in the workspace, its first run ended behind such a commit, and its command here."""
        if ended_behind and task in ENDED:
            ends = self.workspace.task_until_done(*parameters, first=ended_behind)
            self.commits[task] = self.commits.get(task, 0) + ends
        else:
            ended = self.workspace.task(*parameters)
            assert ended["code"] == 0, f"{job}.{task}: {ended['error']}"
        folders = {str(folder): str(self.lake / folder.name) for folder in (self.workspace.landing, self.delivered)}
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("FRAUDLAKE_WEBHOOK_URL", self.receiver.url)
            environment.setenv("FRAUDLAKE_BUCKETS", "2")  # as the workspace
            fraudlake(self.lake, *_here(parameters, folders))
        counts = {table.name: self.workspace.rows(table.name).num_rows for table in contents.TABLES}
        self.rows.append((f"{job}.{task}", counts))


def _here(parameters: list[str], folders: dict[str, str]) -> list[str]:
    """Return what a task's command is called with on a laptop."""
    given = list(parameters)
    for flag in ("--catalog", "--schema", "--model-name", "--kafka-secret", "--delivery-secret"):
        if flag in given:
            del given[given.index(flag) : given.index(flag) + 2]
    return [folders.get(one, one) for one in given]


def _jobs(both: Both, jobs: tuple[str, ...], **variables: str) -> Iterator[rendering.Task]:
    given = {**rendering.GIVEN, "catalog": CATALOG, "schema": SCHEMA, "landing": str(both.workspace.landing)}
    given["delivery_folder"] = str(both.delivered)
    days = {"from": DAY, "to": DAY}
    tasks = rendering.tasks("prod", **given, **days, **variables)
    yield from (one for job in jobs for one in tasks if one[0] == job)


@pytest.fixture(scope="module")
def both(
    spark: Any, broker: Broker, compute: Workspace, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Both:
    folder = tmp_path_factory.mktemp("both")
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
    taken = Both(compute, folder / "laptop", receiver)
    taken.land(first)
    first_round = ("ingest_and_detect", "deliver", "train", "gold", "maintain")
    for job, task, parameters in _jobs(taken, first_round, deliver_to="webhook"):
        taken.take(job, task, parameters, ended_behind=1)
    decided = stored(taken.lake / "tables" / "silver_transactions").sort_by("transaction_id").slice(0, 60)
    lines = [f"{row['transaction_id']},{str(row['label']).lower()}" for row in decided.to_pylist()]
    (folder / "decided.csv").write_text("\n".join(["transaction_id,verdict", *lines]) + "\n")
    schema = ["--catalog", CATALOG, "--schema", SCHEMA]
    taken.take(BY_HAND, "verdicts", [*schema, "verdicts", str(folder / "decided.csv")])
    taken.take(BY_HAND, "replay", [*schema, "quarantine", "--replay", "--set", "amount=abs(amount)"])
    (folder / "rules.toml").write_text(RULES)
    for job, task, parameters in _jobs(taken, ("rules",), file=str(folder / "rules.toml")):
        taken.take(job, task, parameters)
    # From here on nobody gives the columns: the lake has recorded them.
    for job, task, parameters in _jobs(taken, ("define",), columns=DECLARED):
        taken.take(job, task, parameters)
    taken.land(second)
    taken.take(*next(_jobs(taken, ("ingest_and_detect",))), ended_behind=2)
    kafka = {"source": "kafka", "kafka_bootstrap_servers": broker.bootstrap_servers, "kafka_topic": TOPIC}
    second_round = ("ingest_and_detect", "deliver", "train", "gold", "backfill")
    for job, task, parameters in _jobs(
        taken, second_round, deliver_to="file", max_alerts_per_minute="1000000", **kafka
    ):
        ended_behind = {("ingest_and_detect", "refine"): 2, ("backfill", "score"): 1}.get((job, task), 0)
        taken.take(job, task, parameters, ended_behind)
    return taken


UNFILLED = (
    tables.BRONZE_FAST_ALERTS,
    tables.GOLD_LANE_AGREEMENT,
    tables.GOLD_ROW_REMOVALS,
    tables.GOLD_FORGOTTEN,
)
FILLED = [table for table in contents.TABLES if table not in UNFILLED]
"""The tables that a job fills: no job reads a topic here, has a limit of days, or forgets accounts."""


@pytest.mark.parametrize("table", FILLED, ids=lambda table: table.name)
def test_the_workspaces_tables_are_the_laptops_row_for_row(both: Both, table: tables.Table) -> None:
    here = stored(both.lake / "tables" / table.name)
    there = both.workspace.rows(table.name)
    assert there.num_rows > 0
    assert _comparable(there, both.workspace.landing) == _comparable(here, both.lake / "landing")


def _comparable(rows: pa.Table, landing: Path) -> list[tuple[str, ...]]:
    names = sorted(name for name in rows.column_names if name not in OWN)
    columns = [[_value(value, landing) for value in rows[name].to_pylist()] for name in names]
    return sorted(zip(*columns, strict=True))


def _value(value: Any, landing: Path) -> str:
    # Sums of the same numbers in another order differ in their last digits.
    return f"{value:.9g}" if isinstance(value, float) else str(value).replace(f"{landing}/", "")


def test_every_task_was_ended_between_its_commits(both: Both) -> None:
    assert set(both.commits) == ENDED
    # Behind the first commit and, of those that make two, in the second round behind the second.
    least = dict.fromkeys(ENDED, 2) | {"detect": 1, "deliver": 1}
    assert all(number >= least[task] for task, number in both.commits.items()), both.commits


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


def test_each_task_took_rows(both: Both) -> None:
    last = both.rows[-1][1]
    assert last["bronze_transactions"] == last["silver_transactions"] + last["silver_quarantine"]
    names = {name for name, _ in both.rows}
    deployed = {f"{job}.{task}" for job, task, _ in rendering.tasks("prod", **rendering.GIVEN)}
    by_hand = {f"{BY_HAND}.verdicts", f"{BY_HAND}.replay"}
    assert deployed - {"probe.probe"} == names - by_hand


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


def _in_micro_batch(line: str) -> str:
    """Python that runs a line in the function of a micro-batch, whose rows are ``rows``."""
    return f"""
import uuid
def write(rows, batch_id):
    {line}
folder = "{{folder}}/" + uuid.uuid4().hex
spark.range(1).write.parquet(folder + "/rows")
stream = spark.readStream.schema("id BIGINT").parquet(folder + "/rows").writeStream.foreachBatch(write)
query = stream.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
"""


RATE = "spark.readStream.format('rate').load().writeStream.format('noop')"


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        ("spark.conf.set('spark.databricks.delta.optimize.maxFileSize', '1')", "CONFIG_NOT_AVAILABLE"),
        ("spark.conf.get('spark.master', 'unknown')", "CONFIG_NOT_AVAILABLE"),
        ("spark.sql('SET spark.sql.shuffle.partitions = 3')", "NOT_SUPPORTED_WITH_SERVERLESS"),
        ("spark.range(1).persist()", "NOT_SUPPORTED_WITH_SERVERLESS"),
        ("spark.range(1).cache()", "NOT_SUPPORTED_WITH_SERVERLESS"),
        ("spark.sparkContext", "JVM_ATTRIBUTE_NOT_SUPPORTED"),
        ("spark.range(1).rdd", "NOT_IMPLEMENTED"),
        (f"{RATE}.trigger(availableNow=True).start()", "TEMP_CHECKPOINT_LOCATION_NOT_SUPPORTED"),
        (f"{RATE}.option('checkpointLocation', '{{folder}}/c').start()", "INFINITE_STREAMING_TRIGGER_NOT_SUPPORTED"),
        (
            f"{RATE}.option('checkpointLocation', '{{folder}}/c').trigger(processingTime='1 second').start()",
            "INFINITE_STREAMING_TRIGGER_NOT_SUPPORTED",
        ),
        ("spark.readStream.format('cloudFiles').option('cloudFiles.Format', 'parquet')", "CF_UNKNOWN_OPTION_KEYS"),
        (_in_micro_batch("rows.sparkSession.table('silver_alerts').count()"), "TABLE_OR_VIEW_NOT_FOUND"),
        (_in_micro_batch("rows.persist()"), "NOT_SUPPORTED_WITH_SERVERLESS"),
        (_in_micro_batch("open('{folder}/Volumes/some')"), "no volume is seen in this process"),
        (_in_micro_batch("import mlflow"), "mlflow"),
    ],
)
def test_what_serverless_compute_refuses_is_refused(both: Both, code: str, refusal: str) -> None:
    ended = both.workspace.task("-c", code.replace("{folder}", str(both.workspace.folder)))
    assert ended["code"] == 1
    assert refusal in ended["error"]


def test_the_continuous_job_runs_on_classic_compute(spark: Any, tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    landing = workspace.volumes(tmp_path) / "landing"
    shutil.copytree(FLINK / "tutorial" / "int96", landing / "tutorial")
    (workspace.volumes(tmp_path) / "checkpoints").mkdir()
    given = {**rendering.GIVEN, "catalog": CATALOG, "schema": SCHEMA, "landing": str(landing)}
    job = "ingest_and_detect_continuous"
    tasks = {task: parameters for key, task, parameters in rendering.tasks("prod", "aws", **given) if key == job}
    ends = {
        "ingest": ("bronze_transactions", 10),
        "refine": ("silver_transactions", 10),
        "detect": ("silver_alerts", 3),
    }
    assert set(tasks) == set(ends)

    with classic.cluster(spark, tmp_path):
        for task, (table, rows) in ends.items():
            with classic.stopped_at(tmp_path / "tables" / table, rows):
                ended = fraudlake_here(*tasks[task])
            assert ended.returncode == 143, ended.stderr
        alerts = stored(tmp_path / "tables" / "silver_alerts").sort_by("timestamp")

    assert alerts["account_id"].to_pylist() == ["2", "4", "3"]
