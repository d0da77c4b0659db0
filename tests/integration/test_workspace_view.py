"""A workspace's schema has the alert windows as a view, which follows the lake's definition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.standin import workspace
from tests.standin.process import Workspace
from tests.standin.workspace import CATALOG

pytestmark = [pytest.mark.stream, pytest.mark.timeout(900)]

PROGRAM = """
import json
from fraudlake.gold import account_tiles, alert_windows
from fraudlake.lake import open_lake
from fraudlake.lake.definition import Change
from fraudlake.settings import Settings

def opened(**change):
    settings = Settings(
        catalog={catalog!r}, schema="windows", landing="/landing", checkpoints={folder!r} + "/checkpoints", **change
    )
    return open_lake(settings, spark, change=Change("ann") if change else None)

def states():
    rows = spark.sql(f"SELECT kind, state FROM {{view}} WHERE account_id = '1' ORDER BY kind, state").collect()
    return sorted(dict.fromkeys((row["kind"], row["state"]) for row in rows))

spark.sql("CREATE DATABASE IF NOT EXISTS {catalog}.windows LOCATION '{folder}/tables'")
view = "{catalog}.windows.gold_alert_windows"
lake = opened()
for account, at in (("1", "2026-03-07 10:00:00Z"), ("2", "2026-03-07 11:00:10Z")):
    tile = f"SELECT '{{account}}', date_trunc('hour', at), to_date(at), 1, 2D, 2D, 0, at, at"
    spark.sql(f"INSERT INTO {{lake.name_of(account_tiles.TABLE)}} {{tile}} FROM VALUES (TIMESTAMP'{{at}}') AS t(at)")
shown = [states()]
opened(max_out_of_orderness="2 hours")
shown.append(states())
opened()
shown.append(spark.catalog.getTable(view).description)
print(json.dumps(shown))
"""


@pytest.mark.long
def test_the_view_follows_a_declared_change(compute: Workspace, tmp_path: Path) -> None:
    folder = workspace.volumes(compute.folder).with_name(tmp_path.name)
    (folder / "checkpoints").mkdir(parents=True)

    ended = compute.task("-c", PROGRAM.format(catalog=CATALOG, folder=str(folder)))

    assert ended["code"] == 0, ended["error"]
    before, after, comment = json.loads(ended["out"].splitlines()[-1])
    assert before == [["session", "closed"], ["sliding", "closed"], ["tumbling", "closed"]]
    assert after == [["session", "open"], ["sliding", "open"], ["tumbling", "open"]]
    assert comment == "A window of an account, from its first transaction on."
