"""The tutorial of a first deploy, walked line by line: the Databricks CLI and the program in one workspace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import Block, blocks
from tests.workspace import server
from tests.workspace_http import TOKEN, Reply, Request, serving

from .rendering import ROOT, USER
from .workspace import WAREHOUSE, Workspace

PAGE = Path("docs/tutorials/first-deploy.md")
YOU = "someone"
SCHEMA = f"dev_{YOU}_fraudlake"
NOT_WALKED = {
    "databricks auth login": "a browser: the tests have a token",
    "databricks bundle open": "a browser",
    "databricks bundle destroy": "tests/bundle/test_deploy.py",
    "python3 -m venv": "the environment of the tests",
    "fraudlake workspace probe": "tests/workspace/test_probe.py",
}
"""Lines that a machine of tests cannot walk, by how they begin, and why."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("databricks"), reason="there is no Databricks CLI on the PATH"),
]


class Both:
    """A workspace to which bundles are deployed, and in which the program then finds their jobs and runs them."""

    def __init__(self) -> None:
        me, name = USER["userName"], f"main.{SCHEMA}"
        self.deployed = Workspace()
        self.used = server.Workspace(
            schema=SCHEMA,
            principals={me},
            warehouses=[WAREHOUSE],
            folders={f"/Volumes/main/{SCHEMA}/landing", f"/Volumes/main/{SCHEMA}/checkpoints"},
            grants={
                ("CATALOG", "main"): {me: ["USE_CATALOG"]},
                ("SCHEMA", name): {me: ["USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE", "CREATE_MODEL"]},
                ("VOLUME", f"{name}.landing"): {me: ["READ_VOLUME", "WRITE_VOLUME"]},
                ("VOLUME", f"{name}.checkpoints"): {me: ["READ_VOLUME", "WRITE_VOLUME"]},
            },
        )

    def reply_to(self, request: Request) -> Reply:
        before = len(self.deployed.unanswered)
        reply = self.deployed.reply_to(request)
        if len(self.deployed.unanswered) == before:
            return reply
        self.deployed.unanswered.pop()
        jobs = self.deployed.objects.get("jobs", {})
        self.used.jobs = [{"job_id": int(key), "settings": job["settings"]} for key, job in jobs.items()]
        return self.used.reply_to(request)


def lines(page: list[Block]) -> Iterator[str]:
    for block in page:
        if block.language == "shell":
            yield from block.text.replace("<you>", YOU).splitlines()


def test_every_line_of_the_first_deploy_works(tmp_path: Path) -> None:
    unwanted = shutil.ignore_patterns(".git", ".venv*", ".databricks", ".*_cache", "__pycache__", "dist", "lake")
    shutil.copytree(ROOT, tmp_path / "clone", ignore=unwanted)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "fraudlake").symlink_to(Path(sys.executable).with_name("fraudlake"))
    walked = [line for line in lines([*blocks(PAGE)]) if line and not line.startswith(tuple(NOT_WALKED))]
    script = "\n".join(line.replace("/tmp/landed", str(tmp_path / "landed")) for line in walked)
    workspace = Both()
    with serving(workspace.reply_to) as workspace.used.host:
        done = subprocess.run(
            ["bash", "-e", "-x", "-c", script],
            cwd=tmp_path / "clone",
            env={
                **{name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ},
                "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
                "HOME": str(tmp_path),
                "DATABRICKS_HOST": workspace.used.host,
                "DATABRICKS_TOKEN": TOKEN,
                "DATABRICKS_RATE_LIMIT": "1000",
                "PYTHON": sys.executable,
                "PIP_NO_BUILD_ISOLATION": "0",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 0, done.stdout + done.stderr
    assert not workspace.used.unknown
    assert SCHEMA in done.stdout
    for name in ("fraudlake ingest and detect", "fraudlake train", "fraudlake gold"):
        (job,) = [one["job_id"] for one in workspace.used.jobs if one["settings"]["name"].endswith(name)]
        assert any(run["job_id"] == job for run in workspace.used.runs)
    assert [name for name in workspace.used.files if re.search(r"/landing/part-.*\.parquet$", name)]
    (shown,) = [block.text for block in blocks(PAGE) if block.language == "text"]
    for line in shown.replace("<you>", YOU).splitlines():
        assert line.partition("…")[0] in done.stdout
