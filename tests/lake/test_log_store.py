"""The log's store against another process that commits the same versions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError

from fraudlake import tables
from fraudlake.lake import spark_home
from tests import log_store

pytestmark = pytest.mark.stream

VERSIONS = 200
# It commits as delta-rs does, by a link.
OTHER = """
import os, random, sys, time
folder, versions = sys.argv[1], int(sys.argv[2])
def size(folder):
    try:
        return sum(file.stat().st_size for file in os.scandir(folder))
    except FileNotFoundError:  # its draft has just become the commit
        return 0
open(f"{folder}/draft", "w").write("other")
for version in range(versions):
    # Every other version is taken before this process comes to it, the rest while it writes.
    while version % 2 and not size(f"{folder}/{version}"):
        pass
    until = time.perf_counter() + version % 2 * random.choice([0, random.random() / 100])
    while time.perf_counter() < until:
        pass
    try:
        os.link(f"{folder}/draft", f"{folder}/{version}/0.json")
        print(version, flush=True)
    except FileExistsError:
        pass
"""


def test_no_commit_overwrites_that_of_another_process(spark: Any, tmp_path: Path) -> None:
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    ours, theirs = race(spark._jvm, spark.conf.get("spark.delta.logStore.file.impl"), configuration, tmp_path)
    assert ours and theirs
    assert ours & theirs == set()
    assert ours | theirs == set(range(VERSIONS))
    written = [(tmp_path / str(version) / "0.json").read_text() for version in range(VERSIONS)]
    assert written == ["spark\n" if version in ours else "other" for version in range(VERSIONS)]


def race(jvm: Any, store: str, configuration: Any, folder: Path) -> tuple[set[int], set[int]]:
    """Return the versions that this process and the other one believe to have committed."""
    for version in range(VERSIONS):
        (folder / str(version)).mkdir()
    command = [sys.executable, "-c", OTHER, str(folder), str(VERSIONS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        log = getattr(jvm, store)(configuration)
        ours = {version for version in range(VERSIONS) if commits(jvm, log, folder / str(version), configuration)}
        assert other.stdout
        return ours, {int(line) for line in other.stdout}


def commits(jvm: Any, log: Any, folder: Path, configuration: Any) -> bool:
    path = jvm.org.apache.hadoop.fs.Path(f"file://{folder}/0.json")
    actions = jvm.java.util.ArrayList()
    actions.add("spark")
    try:
        log.write(path, actions.iterator(), False, configuration)
    except Py4JJavaError as error:
        assert "FileAlreadyExistsException" in str(error.java_exception)
        return False
    return True


def test_every_commit_of_a_lake_goes_through_the_store(lake: Any) -> None:
    opened = lake()
    opened.spark.sql("ALTER TABLE bronze_files SET TBLPROPERTIES ('a' = 'b')")
    log = opened.root / "tables" / "bronze_files" / "_delta_log"
    (newest,) = log.glob(f"{1:020}.json")
    assert newest.exists()
    # Hadoop's files, which Delta's own store writes, have a checksum file.
    assert not (log / f".{newest.name}.crc").exists()


@pytest.mark.long
def test_a_checkpoint_that_delta_rs_writes_behind_one_of_sparks_is_read_at_once(lake: Any, spark_log: Path) -> None:
    opened, table = lake(), tables.BRONZE_FILES
    log = opened.root / "tables" / table.name / "_delta_log"

    def append(times: int) -> None:
        for _ in range(times):
            opened.spark.sql(f"INSERT INTO {opened.name_of(table)} (path) VALUES ('a')")

    append(10)
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 10
    DeltaTable(log.parent).create_checkpoint()
    append(1)
    DeltaTable(log.parent).create_checkpoint()
    opened.spark.sql("SELECT 1").collect()
    before = spark_log.stat().st_size
    opened.session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert opened.read(table).count() == 11
    assert "_last_checkpoint" not in spark_log.read_text()[before:]


def test_the_class_is_what_its_source_says(spark: Any) -> None:
    assert log_store.compiled(spark._jvm) == spark_home.LOG_STORE.read_bytes()
