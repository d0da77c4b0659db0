"""What talks to a workspace needs its SDK alone: every command works in an environment without PySpark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fraudlake_cli.commands.workspace import workspace as group
from fraudlake_tools.probe import probe
from fraudlake_tools.probe.probe import Answer
from tests.workspace.server import Workspace, a_task
from tests.workspace_http import TOKEN

COMMANDS = (["check"], ["jobs"], ["run", "ingest_and_detect", "--wait"], ["smoke"], ["probe"])
WITHOUT_SPARK = f"""
import sys
sys.modules["pyspark"] = None
from fraudlake_cli.commands import cli
for command in {COMMANDS!r}:
    cli.main(["--catalog", "main", "--schema", "fraud", "workspace", *command], standalone_mode=False)
"""


@pytest.mark.slow
def test_every_command_works_without_spark(workspace: Workspace, tmp_path: Path) -> None:
    assert {command[0] for command in COMMANDS} == set(group.commands)
    settings = {"name": "fraudlake probe", "tags": {"project": "fraudlake"}, "tasks": [a_task("main", "fraud")]}
    workspace.jobs.append({"job_id": 13, "settings": settings})
    workspace.prints = json.dumps(probe.as_dict([Answer("session", True, True, "Spark 4.0")]))
    access = {"DATABRICKS_HOST": workspace.host, "DATABRICKS_TOKEN": TOKEN, "HOME": str(tmp_path)}

    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **access},
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "✓ session: Spark 4.0"
    assert "alerts for accounts 2, 4, 3, as in Flink's tutorial; cleaned up." in ended.stdout
