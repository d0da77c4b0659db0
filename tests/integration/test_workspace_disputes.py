"""Dispute files in a volume, loaded by the job that the bundle deploys, on a stand-in of serverless compute."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chaos.landing import landing_files
from tests.standin.process import Workspace

from .both import tasks
from .conftest import workspace

pytestmark = [pytest.mark.stream, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace of its own, with transactions."""
    with workspace(tmp_path_factory.mktemp("disputes")) as (compute, _):
        (file,) = landing_files(seed=1, count=1)
        file.land(compute.landing, 0)
        run(compute, "ingest_and_detect")
        yield compute


def run(compute: Workspace, job: str, **variables: str) -> str:
    for _, _, parameters in tasks(compute, job, **variables):
        ended = compute.task(*parameters)
        assert ended["code"] == 0, ended["error"]
    return str(ended)


def test_a_job_loads_each_file_of_a_volume_once(refined: Workspace) -> None:
    folder = refined.landing.with_name("disputes")
    folder.mkdir()
    first, second = refined.rows("silver_transactions").sort_by("timestamp").slice(0, 2).to_pylist()
    lines = [
        f"{second['account_id']},{second['amount']},{second['timestamp']:%Y-%m-%d %H:%M:%S.%f}",
        "nobody,1,2026-01-01",
    ]
    Path(folder, "a.csv").write_text("\n".join(["account_id,amount,timestamp", *lines, ""]))
    Path(folder, "b.csv").write_text(f"transaction_id,decided_at\n{first['transaction_id']},2026-04-06\n")
    Path(folder, "c.csv").write_text("transaction_id\n1.5e+20\n")
    disputes = json.dumps({"folder": str(folder), "verdict": "fraud"})
    for _ in range(2):
        run(refined, "gold", disputes=disputes)
    rows = {row["transaction_id"]: row for row in refined.rows("silver_verdicts").to_pylist()}
    assert set(rows) == {first["transaction_id"], second["transaction_id"]}
    assert rows[first["transaction_id"]]["decided_at"].astimezone(UTC) == datetime(2026, 4, 6, tzinfo=UTC)
    assert refined.rows("silver_verdicts").num_rows == 2
    left = Path(folder, "a.csv.unmatched.csv").read_text().splitlines()
    assert left[1:] == ['"nobody","1","2026-01-01","no such payment in the lake"']
