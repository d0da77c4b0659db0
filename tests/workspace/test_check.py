from __future__ import annotations

import json

from tests.workspace.conftest import Command
from tests.workspace.server import Workspace


def test_all_is_well_in_one_line_each(fraudlake: Command, workspace: Workspace) -> None:
    code, out, _ = fraudlake("check", "--kafka-secret", "fraudlake/kafka")
    assert code == 0
    assert [line.partition(" at ")[0] for line in out.splitlines()] == [
        "✓ identity: jane@example.com",
        "✓ catalog main: may USE CATALOG",
        "✓ schema main.fraud: may USE SCHEMA, SELECT, MODIFY, CREATE TABLE, CREATE MODEL",
        "✓ volume /Volumes/main/fraud/landing: can be read",
        "✓ volume /Volumes/main/fraud/checkpoints: can be read and written",
        "✓ warehouse: Shared (w2), running",
        "✓ secret fraudlake/kafka: is there; its value was not read",
    ]
    assert workspace.files == {}


def test_what_is_missing_is_told_with_what_to_grant(fraudlake: Command, workspace: Workspace) -> None:
    workspace.grants["SCHEMA", "main.fraud"] = {"analysts": ["USE_SCHEMA", "SELECT"]}
    workspace.read_only = True
    workspace.folders.remove("/Volumes/main/fraud/landing")
    workspace.warehouses = []
    code, out, _ = fraudlake("check", "--kafka-secret", "fraudlake/nokey", json=True)
    assert code == 1
    found = {one["what"]: one for one in json.loads(out)["checks"] if not one["ok"]}
    assert found["schema main.fraud"]["seen"] == "lacks CREATE MODEL, CREATE TABLE, MODIFY"
    assert "GRANT USE SCHEMA, SELECT, MODIFY, CREATE TABLE" in found["schema main.fraud"]["remedy"]
    assert found["volume /Volumes/main/fraud/landing"]["seen"].startswith("there is none")
    assert found["volume /Volumes/main/fraud/checkpoints"]["seen"].startswith("permission denied")
    assert "WRITE VOLUME ON VOLUME main.fraud.checkpoints" in found["volume /Volumes/main/fraud/checkpoints"]["remedy"]
    assert found["warehouse"]["seen"].startswith("there is no SQL warehouse that you may use")
    assert found["secret fraudlake/nokey"]["seen"] == "the scope 'fraudlake' holds no 'nokey'"
    assert len(found) == 5


def test_a_catalog_that_does_not_exist_is_told(fraudlake: Command, workspace: Workspace) -> None:
    workspace.grants = {}
    code, out, _ = fraudlake("check")
    assert code == 1
    assert "✗ catalog main: there is none (Catalog 'main' does not exist)" in out
    assert "✗ schema main.fraud: there is none" in out
