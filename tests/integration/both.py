"""A workspace and a lake on this machine that take the same, task by task; the lake's tables are the truth."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.gold import lane_agreement
from fraudlake.lake import contents
from tests.bundle import rendering
from tests.conftest import run as fraudlake
from tests.delivery.receiver import Receiver
from tests.standin.process import Workspace, stored
from tests.standin.workspace import CATALOG, SCHEMA

DAY = "2026-01-01"
"""The day that is scored again."""
DECLARED = '{"merchant_id": {"from": "merchantId", "type": "string"}}'
"""The column that the lakes get by the job ``define``."""
RULES = """
[[rules]]
name = "small_then_large"
small_below = 1
large_above = 400
within = "60 s"
"""
"""The rule that the job ``rules`` applies: a change of the tutorial's."""
BY_HAND = "by hand"
"""The job of commands that no job runs."""
ENDED = {"ingest_and_detect", "deliver", "gold", "backfill"}
"""Jobs whose task is ended after its commits."""
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
    "built_at",
    "modified_at",  # to the millisecond in a workspace
    "inode",  # of a disk only
    "model",
    "profile",
}
"""Columns that differ from lake to lake: when something was done, and a model's numbers, whose last digits depend on
the order in which rows come; its scores and what they make of drift are compared."""
UNFILLED = (
    tables.BRONZE_FAST_ALERTS,
    lane_agreement.TABLE,
    tables.GOLD_ROW_REMOVALS,
    tables.GOLD_FORGOTTEN,
    tables.SILVER_LIST_ENTRIES,
    tables.SILVER_SUPPRESSED_ALERTS,
)
"""The tables that no job fills here: none reads a topic of alerts, has a limit of days, forgets accounts, or suppresses
rules."""
UNDECIDED = (tables.SILVER_REVIEW_EVENTS, tables.SILVER_APPROVAL_EVENTS, tables.SILVER_RATES)
"""The tables that people fill, and nobody does here: nobody decides on the queue or asks for an approval, and all
amounts are in one currency."""


def delivered(workspace: Workspace) -> Path:
    """Return the folder of delivered alerts."""
    return workspace.landing.with_name("delivered")


def tasks(workspace: Workspace, *jobs: str, **variables: str) -> Iterator[rendering.Task]:
    """Return the tasks of jobs as the bundle deploys them; ``variables``: the bundle's, or the jobs' parameters."""
    given = {**rendering.GIVEN, "catalog": CATALOG, "schema": SCHEMA, "landing": str(workspace.landing)}
    given["delivery_folder"] = str(delivered(workspace))
    deployed = rendering.tasks("prod", **given, **variables)
    yield from (one for job in jobs for one in deployed if one[0] == job)


@dataclass
class Both:
    """A workspace and a lake on this machine that have taken the same."""

    workspace: Workspace
    lake: Path
    receiver: Receiver
    commits: dict[str, int] = field(default_factory=dict)
    """How often the task of a job was ended after a commit."""
    done: list[str] = field(default_factory=list)
    """The tasks, each with its job."""

    @property
    def delivered(self) -> Path:
        """The workspace's folder of delivered alerts."""
        return delivered(self.workspace)

    def tasks(self, *jobs: str, **variables: str) -> Iterator[rendering.Task]:
        """Return the tasks of jobs as the bundle deploys them; ``variables`` as those of :func:`tasks`."""
        return tasks(self.workspace, *jobs, **{"from": DAY, "to": DAY}, **variables)

    def land(self, folder: Path) -> None:
        for landing in (self.workspace.landing, self.lake / "landing"):
            shutil.copytree(folder, landing, dirs_exist_ok=True)

    def take(self, job: str, task: str, parameters: list[str], ended_after: int = 0) -> None:
        """Run a task in the workspace, its first run ended after such a commit, and its command here."""
        if ended_after and job in ENDED:
            ends = self.workspace.task_until_done(*parameters, first=ended_after)
            self.commits[job] = self.commits.get(job, 0) + ends
        else:
            ended = self.workspace.task(*parameters)
            assert ended["code"] == 0, f"{job}.{task}: {ended['error']}"
        folders = {str(folder): str(self.lake / folder.name) for folder in (self.workspace.landing, self.delivered)}
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("FRAUDLAKE_WEBHOOK_URL", self.receiver.url)
            environment.setenv("FRAUDLAKE_BUCKETS", "2")  # as the workspace
            fraudlake(self.lake, *_here(parameters, folders))
        self.done.append(f"{job}.{task}")

    def differing(self) -> dict[str, str]:
        """Compare each filled table of the workspace with the lake's, row for row; return what differs."""
        return {
            table.name: difference
            for table in contents.TABLES
            if table not in (*UNFILLED, *UNDECIDED) and (difference := self._difference(table))
        }

    def _difference(self, table: tables.Table) -> str | None:
        here = _comparable(stored(self.lake / "tables" / table.name), self.lake / "landing")
        there = _comparable(self.workspace.rows(table.name), self.workspace.landing)
        if here == there:
            return None if here else "no rows"
        return f"only here {[*(here - there)][:3]}, only there {[*(there - here)][:3]}"


def _here(parameters: list[str], folders: dict[str, str]) -> list[str]:
    """Return what a task's command is called with on a laptop."""
    given = list(parameters)
    for flag in ("--catalog", "--schema", "--model-name", "--kafka-secret", "--delivery-secret"):
        if flag in given:
            del given[given.index(flag) : given.index(flag) + 2]
    return [folders.get(one, one) for one in given]


def _comparable(rows: pa.Table, landing: Path) -> Counter[tuple[str, ...]]:
    names = sorted(name for name in rows.column_names if name not in OWN)
    columns = [[_value(value, landing) for value in rows[name].to_pylist()] for name in names]
    return Counter(zip(*columns, strict=True))


def _value(value: Any, landing: Path) -> str:
    # Sums of the same numbers in another order differ in their last digits.
    return f"{value:.9g}" if isinstance(value, float) else str(value).replace(f"{landing}/", "")
