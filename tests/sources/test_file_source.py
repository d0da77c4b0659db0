"""Landed files through the stream: each row once, each file with an entry of its outcome in the ledger.

The tests run twice: over a folder's lake, and over a schema's, where Auto Loader lists the files and Spark reads them.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from fraudlake import tables
from fraudlake.bronze import contract, parquet
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.forget import own_files
from fraudlake.lake import contents, open_lake
from fraudlake.lake.definition import Change
from fraudlake.lake.workspace import WorkspaceLake
from fraudlake.operations.status import status
from fraudlake.settings import Settings
from fraudlake.sources import file_source, ledger
from fraudlake.sources.file_source import FileSource
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.sources.local_folder import LocalFolder
from fraudlake.sources.volume import Volume
from fraudlake.streams import ingest, refine, stream
from tests.conftest import FLINK, LONG_BY_SPARK
from tests.standin import auto_loader

pytestmark = pytest.mark.stream

BAD = Path(__file__).parents[2] / "fixtures" / "bad"
Open = Callable[..., Any]


only_on_a_laptop = pytest.mark.parametrize("kind_of_lake", ["laptop"], indirect=True)


@pytest.fixture(params=["laptop", pytest.param("workspace", marks=pytest.mark.long)])
def kind_of_lake(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(frozen=True)
class Schema:
    """A schema, whose tables are in a folder; to name that many tables takes Spark seconds."""

    name: str
    folder: Path


@pytest.fixture(scope="module")
def schema(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Schema:
    folder = tmp_path_factory.mktemp("schema")
    name = "files"
    open_lake(Settings(lake=folder / "empty"))
    shutil.copytree(folder / "empty" / "tables", folder / "tables")
    session = spark.newSession()
    session.sql(f"CREATE DATABASE {name}")
    for table in contents.TABLES:
        session.sql(f"CREATE TABLE {name}.{table.name} USING DELTA LOCATION '{folder / 'tables' / table.name}'")
    return Schema(name, folder)


@pytest.fixture
def lake(
    kind_of_lake: str,
    lake: Open,
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Open:
    """Open a lake of either kind; every call opens it again, with other settings if they are given."""
    if kind_of_lake == "laptop":
        return lake
    schema = request.getfixturevalue("schema")
    monkeypatch.setattr(Volume, "sweep_seconds", 0.0)
    shutil.rmtree(schema.folder / "tables")
    shutil.copytree(schema.folder / "empty" / "tables", schema.folder / "tables")
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    session = spark.newSession()
    (tmp_path / "lake" / "checkpoints").mkdir(parents=True)

    def open_(**values: Any) -> Any:
        folders = {name: str(tmp_path / "lake" / name) for name in ("landing", "checkpoints")}
        return WorkspaceLake(
            Settings(catalog="spark_catalog", schema_name=schema.name, buckets=2, **{**folders, **values}),
            session,
            change=Change("the test"),  # the tables come with a definition
        )

    return open_


@pytest.fixture(scope="module", autouse=True)
def _auto_loader(spark: Any) -> None:
    auto_loader.install(DataStreamReader, SparkSession)


def write(path: Path, *amounts: float) -> None:
    """Land one row an amount; as Flink does, under the name of an unfinished file first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.inprogress.1")
    rows = {"dt": pa.array([0] * len(amounts), pa.timestamp("us")), "accountId": ["1"] * len(amounts)}
    pq.write_table(pa.table({**rows, "amount": list(amounts), "alert": [False] * len(amounts)}), hidden)
    hidden.replace(path)


def ingest_all(lake: Any, **arguments: Any) -> None:
    stream.run(lake, ingest.streams(lake, **arguments), "available-now")


def amounts(lake: Any) -> list[float]:
    return sorted(
        lake.store.query(f"SELECT amount FROM {tables.BRONZE_TRANSACTIONS.name}", tables.BRONZE_TRANSACTIONS)[
            "amount"
        ].to_pylist()
    )


def rejected(lake: Any) -> dict[str, str]:
    rows = lake.store.rows(tables.BRONZE_REJECTED_FILES).to_pylist()
    errors = {Path(row["path"]).relative_to(landing_folder(lake).path).as_posix(): row["error"] for row in rows}
    assert len(errors) == len(rows)
    return errors


def reconciles(lake: Any) -> bool:
    """What ``status`` says of landed rows; all that it counts takes a workspace's lake ten seconds."""
    landed = file_source.landed(lake)
    return landed.rows == lake.store.count(tables.BRONZE_TRANSACTIONS) and not landed.waiting_files


def test_every_row_of_the_corpus_is_accounted_for(lake: Open, landing: Path, kind_of_lake: str) -> None:
    shutil.copytree(BAD / "files", landing, dirs_exist_ok=True)
    shutil.copytree(FLINK / "tutorial" / "int96", landing / "good")
    cases = tomllib.loads((BAD / "files.toml").read_text())["file"]
    assert len(cases) >= 15
    for case in [case for case in cases if not (landing / case["name"]).exists()]:
        if kind_of_lake == "laptop":
            (landing / case["name"]).mkdir()  # git keeps no empty folders
        else:
            cases.remove(case)  # object stores know none
    opened = lake()
    for again in (False, True):
        ingest_all(opened)
        if not again:
            stream.run(opened, refine.streams(opened), "available-now")

        bronze = {
            row["_source_file"]: (row["rows"], row["rescued"])
            for row in opened.spark.sql(
                "SELECT _source_file, count(*) AS rows, count(_rescued_data) AS rescued "
                "FROM bronze_transactions GROUP BY ALL"
            ).collect()
        }
        assert bronze.pop("good/" + next((FLINK / "tutorial" / "int96").iterdir()).name) == (10, 0)
        assert bronze == {
            case["name"]: (case["accepted"], case.get("rescued", 0)) for case in cases if case.get("accepted")
        }

        reasons = rejected(opened)
        wanted = {case["name"]: case["error"] for case in cases if "error" in case}
        assert {name: error[: len(wanted.get(name, ""))] for name, error in reasons.items()} == wanted

        figures = status(opened)
        accepted = sum(case.get("accepted", 0) for case in cases)
        assert (figures.source.landed, figures.rows.bronze) == (accepted + 10, accepted + 10)
        assert figures.rows.silver == sum(case.get("silver", 0) for case in cases) + 10
        assert figures.rows.quarantine == figures.rows.bronze - figures.rows.silver
        assert figures.source.landed_files == sum("unfinished" not in case for case in cases) + 1
        assert figures.source.unread_files == 0
        assert figures.gaps == []


@pytest.mark.long
@only_on_a_laptop
def test_bucket_folders_and_both_timestamp_types_give_the_same_rows(lake: Open, landing: Path) -> None:
    names = ("twodays", "bucketed/hourly_int64_micros", "bucketed/hive_int96")
    for name in names[:2]:
        shutil.copytree(FLINK / name, landing / name)
    ingest_all(lake())
    ingest_all(
        lake(landing=str(FLINK / "bucketed"))
    )  # a second landing folder: the hourly ones once more, and the hive ones
    opened = lake()
    rows = "SELECT accountId, dt, amount, alert FROM bronze_transactions WHERE _source_file LIKE"
    for copy in ("bucketed/hourly%", "hourly%", "hive_int96%"):
        assert opened.spark.sql(f"{rows} '{copy}'").count() == 50_000
        for left, right in ((copy, "twodays%"), ("twodays%", copy)):
            assert opened.spark.sql(f"{rows} '{left}' EXCEPT ALL {rows} '{right}'").isEmpty()
    assert amounts(opened) == sorted(amounts(opened)[::4] * 4)
    assert rejected(opened) == {}
    assert reconciles(opened)


@only_on_a_laptop
@pytest.mark.parametrize("kind", ["relative", pytest.param("link", marks=pytest.mark.long), "pattern"])
def test_a_landing_folder_may_be_named_in_any_way(lake: Open, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / ("in [1] {a,b} *" if kind == "pattern" else "in")
    write(folder / "a b%20c#+ü" / "dt=2026-03-07 10:00" / "part:0", 1.0)
    (tmp_path / "linked").symlink_to(folder)
    named = {"relative": "./x/../in/", "link": str(tmp_path / "linked"), "pattern": str(folder)}
    opened = lake(landing=named[kind])
    ingest_all(opened)
    rows = opened.read(tables.BRONZE_TRANSACTIONS).select("amount", "_source_file").collect()
    assert [tuple(row) for row in rows] == [(1.0, "a b%20c#+ü/dt=2026-03-07 10:00/part:0")]
    assert rejected(opened) == {}


def test_a_file_rewritten_after_it_was_read_is_reported_once_and_not_read_again(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    ingest_all(lake())
    write(landing / "part-0", 2.0, 3.0)
    for _ in range(2):
        opened = lake()
        ingest_all(opened, retry_rejected=True)
        assert amounts(opened) == [1.0]
        assert "rewritten after it was ingested" in rejected(opened)["part-0"]
        assert opened.store.count(tables.BRONZE_FILES) == 2
        assert reconciles(opened)


def test_a_file_that_was_rejected_half_written_is_read_once_it_is_complete(
    lake: Open, landing: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "whole", 2.0, 3.0)
    content = (tmp_path / "whole").read_bytes()
    write(landing / "part-0", 1.0)
    (landing / "part-1").write_bytes(b"")
    (landing / "part-2").write_bytes(content[:-20])
    ingest_all(lake())
    assert set(rejected(lake())) == {"part-1", "part-2"}
    # Spark reports no empty file, so the first one is found in another step.
    said = sorted(message.partition(": ")[2].partition(": ")[0] for message in caplog.messages)
    assert said == ["1 file rejected, such as part-1", "1 file rejected, such as part-2"]
    (landing / "part-2").write_bytes(content)
    figures = status(lake())
    assert (figures.source.landed_files, figures.source.rejected_files, figures.source.unread_files) == (3, 1, 1)
    assert any("run 'fraudlake ingest'" in gap for gap in figures.gaps)
    for _ in range(2):
        opened = lake()
        ingest_all(opened)
        assert amounts(opened) == [1.0, 2.0, 3.0]
        assert set(rejected(opened)) == {"part-1"}
        assert reconciles(opened)
    assert caplog.messages[2:] == ["ingest: 1 file accepted that had been rejected before"]


def test_a_value_that_grows_to_megabytes_stops_no_file_after_it(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    names = {"dt": pa.array([0, 0], pa.timestamp("us")), "accountId": ["1", "x" * (4 << 20)]}
    pq.write_table(pa.table({**names, "amount": [2.0, 3.0], "alert": [False] * 2}), landing / "part-1")
    assert (landing / "part-1").stat().st_size < 1 << 20
    opened = lake()
    ingest_all(opened)
    write(landing / "part-2", 4.0)
    ingest_all(opened)
    assert amounts(opened) == [1.0, 4.0]
    [(name, reason)] = rejected(opened).items()
    assert (name, "more than 1,048,576 (the setting max_value_size)" in reason) == ("part-1", True), reason
    assert reconciles(opened)


@only_on_a_laptop
def test_a_link_doubles_no_row(lake: Open, landing: Path) -> None:
    write(landing / "10" / "part-0", 1.0)
    write(landing / "part-1", 2.0)
    (landing / "latest").symlink_to("10")
    (landing / "loop").symlink_to(".")
    os.link(landing / "part-1", landing / "part-2")
    reason = "it is a link: another name of {}, and is read under that"
    for again in (False, True):
        opened = lake()
        ingest_all(opened, retry_rejected=again)
        assert amounts(opened) == [1.0, 2.0]
        others = {"latest/part-0": "10/part-0", "part-2": "part-1"}
        assert rejected(opened) == {name: reason.format(other) for name, other in others.items()}
        assert reconciles(opened)
    (landing / "again").symlink_to(".")
    with pytest.raises(UsageError, match="are links to a folder above them: remove them"):
        ingest_all(lake())


@only_on_a_laptop
def test_what_is_no_file_is_rejected_and_never_opened(lake: Open, landing: Path, tmp_path: Path) -> None:
    write(landing / "part-0", 1.0)
    os.mkfifo(landing / "part-pipe")
    os.mknod(landing / "part-socket", stat.S_IFSOCK)
    (landing / "part-device.parquet").symlink_to("/dev/zero")
    opened = lake()
    assert file_source.landed(opened).waiting_files == 1
    for again in (False, True):
        ingest_all(opened, retry_rejected=again)
        assert amounts(opened) == [1.0]
        assert rejected(opened) == {
            "part-pipe": "it is a named pipe, not a file",
            "part-socket": "it is a socket, not a file",
            "part-device.parquet": "it is a device, not a file",
        }
        assert reconciles(opened)
    assert [landed.file.source for landed in own_files.landed(opened, ["1"])] == ["part-0"]

    # A file in the place of what was rejected is read, and what takes the place of a file is not.
    (landing / "part-pipe").unlink()
    write(landing / "part-pipe", 2.0)
    (landing / "part-0").unlink()
    os.mkfifo(landing / "part-0")
    ingest_all(lake())
    assert amounts(opened) == [1.0, 2.0]
    assert rejected(opened)["part-0"].startswith("it was rewritten after it was ingested")


@only_on_a_laptop
def test_a_renamed_file_doubles_no_row(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    write(landing / "10" / "part-0", 2.0)
    ingest_all(lake())
    (landing / "part-0").rename(landing / "part-1")
    (landing / "10").rename(landing / "done")
    write(landing / "part-0", 3.0)  # another file under a name that was read: reported, not read
    write(landing / "part-2", 4.0)
    for again in (False, True):
        opened = lake()
        ingest_all(opened, retry_rejected=again)
        assert amounts(opened) == [1.0, 2.0, 4.0]
        reasons = rejected(opened)
        assert reasons.pop("part-0").startswith("it was rewritten after it was ingested")
        renamed = "it was renamed: its rows are in bronze as those of "
        assert reasons == {"part-1": f"{renamed}part-0", "done/part-0": f"{renamed}10/part-0"}
        assert reconciles(opened)


def test_a_moved_file_doubles_no_row(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    write(landing / "part-1", 2.0, 3.0)
    ingest_all(lake())
    (landing / "done").mkdir()
    shutil.copyfile(landing / "part-0", landing / "done" / "first")  # as a move to another disk: another time and inode
    (landing / "part-0").unlink()
    shutil.copyfile(landing / "part-1", landing / "twin")  # whose first name is still there: a file of its own
    assert file_source.landed(lake()).rows == 5  # that of the moved file count once
    for again in (False, True):
        opened = lake()
        ingest_all(opened, retry_rejected=again)
        assert amounts(opened) == [1.0, 2.0, 2.0, 3.0, 3.0]
        assert rejected(opened) == {"done/first": "it was renamed: its rows are in bronze as those of part-0"}
        assert reconciles(opened)


def test_a_file_is_the_same_whatever_its_time_and_inode(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    write(landing / "part-1", 2.0)
    ingest_all(lake())
    for at in (1_700_000_000, 1_800_000_000):  # a restored copy, and another one
        content = (landing / "part-0").read_bytes()
        (landing / "part-0").unlink()
        (landing / "part-0").write_bytes(content)
        os.utime(landing / "part-0", (at, at))
        ingest_all(lake())
    opened = lake()
    assert (amounts(opened), rejected(opened)) == ([1.0, 2.0], {})
    entries = opened.store.count(tables.BRONZE_FILES)
    assert entries == 4
    ingest_all(opened)
    assert opened.store.count(tables.BRONZE_FILES) == entries
    content = bytearray(content)
    content[20] ^= 1  # as many bytes, and the same footer
    (landing / "part-0").write_bytes(content)
    ingest_all(opened)
    assert "rewritten after it was ingested" in rejected(opened)["part-0"]


@only_on_a_laptop
def test_a_copied_lake_takes_only_its_own_files_and_only_new_ones(
    lake: Open, landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(landing / "a b%20" / "part:0", 1.0)
    write(landing / "part-1", 2.0)
    (landing / "part-2").write_bytes(b"no parquet")
    os.link(landing / "part-1", landing / "part-3")
    ingest_all(lake())
    write(landing / "part-4", 3.0)
    with monkeypatch.context() as patch, pytest.raises(FraudlakeError):
        patch.setattr(LocalFolder, "append_to_bronze", fail)
        ingest_all(lake())  # cut within a micro-batch
    after = tmp_path / "ein 'See' {ü}"
    shutil.copytree(tmp_path / "lake", after, copy_function=shutil.copy)
    write(landing / "part-5", 4.0)  # the original continues
    write(landing / "part-2", 5.0)
    write(after / "landing" / "part-6", 6.0)
    opened = lake(after.name)
    (done,) = stream.run(opened, ingest.streams(opened, retry_rejected=True), "available-now")
    assert done.rows == 2  # the micro-batch that was cut, and a new file
    assert amounts(opened) == [1.0, 2.0, 3.0, 6.0]
    assert set(rejected(opened)) == {"part-2", "part-3"}
    assert reconciles(opened)


def fail(*_: Any) -> None:
    raise RuntimeError("the disk is full")


def test_a_rewritten_file_is_read_under_another_name(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    ingest_all(lake())
    write(landing / "part-0", 2.0, 3.0)
    ingest_all(lake())
    (landing / "part-0").rename(landing / "part-1")
    opened = lake()
    ingest_all(opened)
    assert amounts(opened) == [1.0, 2.0, 3.0]


@pytest.mark.long
def test_a_file_without_rows_that_only_has_another_date_stays_accepted(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    pq.write_table(pq.read_table(landing / "part-0").slice(0, 0), landing / "part-0")
    ingest_all(lake())
    os.utime(landing / "part-0", (1_700_000_000, 1_700_000_000))
    ingest_all(lake())
    assert rejected(lake()) == {}


def test_a_file_is_read_whatever_its_date(lake: Open, landing: Path) -> None:
    for at, date in enumerate((7_258_118_400, None, -86_400)):  # the year 2200, now, 1969
        write(landing / f"part-{at}", float(at))
        if date:
            os.utime(landing / f"part-{at}", (date, date))
        ingest_all(lake())
    assert amounts(lake()) == [0.0, 1.0, 2.0]


@only_on_a_laptop
def test_a_name_in_any_letters_is_read_and_one_that_is_no_utf8_is_rejected(lake: Open, landing: Path) -> None:
    names = (
        "part-ü",
        "part-u\u0308",
        "日本/part-0",
        "part-\U0001f0a1",
        "part-\ufffd",
        "part-\\xfc",
        "a%20b c",
        "10:00",
    )
    for number, name in enumerate(names):
        write(landing / name, float(number))
    foreign = {b"part-\xfc": "part-//xfc", b"part-\xfc\xff": "part-//xfc//xff", b"m\xe4rz/part-0": "m//xe4rz/part-0"}
    for name in foreign:
        write(landing / ".named", 100.0)  # Arrow writes no file of such a name
        (landing / os.fsdecode(name)).parent.mkdir(exist_ok=True)
        (landing / ".named").rename(landing / os.fsdecode(name))
    (landing / "link").symlink_to(landing / os.fsdecode(b"part-\xfc"))
    assert file_source.landed(lake()).waiting_files == len(names) + len(foreign) + 1

    for _ in range(2):
        ingest_all(lake())
        entries = ledger.latest(lake())
        assert {entry.file.source: entry.rows for entry in entries.values() if entry.status == "accepted"} == {
            **dict.fromkeys(names, 1),
            "link": 1,
        }
        assert {name: entry.error for name, entry in entries.items() if entry.status == "rejected"} == dict.fromkeys(
            foreign.values(), "its name is not UTF-8: land it under another name"
        )
        assert amounts(lake()) == [*map(float, range(len(names))), 100.0]
        assert reconciles(lake())

    (landing / os.fsdecode(b"part-\xfc\xff")).rename(landing / "part-renamed")
    ingest_all(lake(), retry_rejected=True)
    assert amounts(lake()) == [*map(float, range(len(names))), 100.0, 100.0]


@pytest.mark.long
@pytest.mark.parametrize("kind_of_lake", ["workspace"], indirect=True)
def test_a_name_with_a_colon_is_rejected_in_a_workspace_and_stops_no_other(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    write(landing / "10:00" / "part:0", 2.0)
    ingest_all(lake())
    assert amounts(lake()) == [1.0]
    assert rejected(lake())["10:00/part:0"].startswith("its name has a colon")
    assert reconciles(lake())


def test_a_file_that_vanishes_before_it_is_read_is_rejected_and_the_others_are_ingested(
    lake: Open, landing: Path
) -> None:
    for i in range(3):
        write(landing / f"part-{i}", float(i))
        os.utime(landing / f"part-{i}", (1_000_000 + i, 1_000_000 + i))
    opened = lake(max_files_per_trigger=1)
    (ingesting,) = ingest.streams(opened)

    def vanishing(lake: Any, batch: Any, batch_id: int) -> None:
        (landing / "part-1").unlink(missing_ok=True)
        ingesting.write(lake, batch, batch_id)

    changed = dataclasses.replace(ingesting, write=vanishing)
    stream.run(opened, [changed], "available-now")
    assert amounts(opened) == [0.0, 2.0]
    assert rejected(opened) == {"part-1": "the file is gone"}
    write(landing / "part-1", 1.0)
    ingest_all(opened, retry_rejected=True)
    assert amounts(opened) == [0.0, 1.0, 2.0]
    assert rejected(opened) == {}


@only_on_a_laptop
def test_a_file_that_changes_after_it_was_checked_is_checked_again(
    lake: Open, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(landing / "part-0", 1.0)
    write(landing / "part-1", 2.0)
    glance = parquet.glance

    def then_truncate(path: str) -> Any:
        result = glance(path)
        if path.endswith("part-1"):
            Path(path).write_bytes(b"PAR1")
        return result

    monkeypatch.setattr(parquet, "glance", then_truncate)
    opened = lake()
    ingest_all(opened)
    assert amounts(opened) == [1.0]
    assert set(rejected(opened)) == {"part-1"}
    assert reconciles(opened)


def test_values_that_python_cannot_express_stop_no_file(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    far = pa.StructArray.from_arrays([pa.array([2**62], pa.timestamp("us"))], ["at"])
    rows = {"dt": pa.array([0], pa.timestamp("us")), "accountId": ["1"], "amount": [2.0], "alert": [False]}
    pq.write_table(pa.table({**rows, "device": far}), landing / "part-1")
    opened = lake()
    ingest_all(opened)
    assert amounts(opened) == [1.0, 2.0]
    assert rejected(opened) == {}


@only_on_a_laptop
def test_a_file_that_fails_the_reader_in_any_way_is_rejected_alone(
    lake: Open, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        write(landing / f"part-{i}", float(i))

    def cursed(batch: pa.RecordBatch, *arguments: Any) -> Any:
        if batch["amount"][0].as_py() == 1.0:
            raise KeyError("a defect of the reader")
        return contract.fit(batch, *arguments)

    monkeypatch.setattr(parquet, "fit", cursed)
    ingest_all(lake())
    assert amounts(lake()) == [0.0, 2.0]
    assert rejected(lake()) == {"part-1": "not readable as parquet: 'a defect of the reader'"}
    assert reconciles(lake())
    monkeypatch.undo()
    ingest_all(lake(), retry_rejected=True)
    assert amounts(lake()) == [0.0, 1.0, 2.0]


@pytest.mark.usefixtures("each_writer")
@LONG_BY_SPARK
@pytest.mark.parametrize("lost", ["entry", "checkpoint", "list"])
def test_nothing_is_ingested_twice_after_a_crash(
    lake: Open, landing: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    write(landing / "part-0", 1.0, 2.0)
    (landing / "part-1").write_bytes(b"")
    opened = lake()
    if lost == "checkpoint":
        ingest_all(opened)
        shutil.rmtree(opened.checkpoint("ingest").folder)
    else:
        function = {"entry": "append", "list": "list_rejected"}[lost]
        calls = []
        whole = getattr(ledger, function)

        def dies(*arguments: Any) -> None:
            calls.append(function)
            if lost == "entry" or len(calls) > 1:  # the list is brought up to date before the stream too
                raise RuntimeError("killed")
            whole(*arguments)

        with pytest.MonkeyPatch.context() as crash:
            crash.setattr(ledger, function, dies)
            with pytest.raises((FraudlakeError, RuntimeError), match="killed"):
                ingest_all(opened)
        assert amounts(opened) == [1.0, 2.0]
    for _ in range(2):
        opened = lake()
        ingest_all(opened)
        assert amounts(opened) == [1.0, 2.0]
        assert rejected(opened) == {"part-1": "the file is empty (0 bytes)"}
        assert reconciles(opened)


def test_nothing_is_ingested_twice_where_the_clock_is_set_back(lake: Open, landing: Path, tmp_path: Path) -> None:
    write(tmp_path / "whole", 2.0)
    write(landing / "part-0", 1.0)
    (landing / "part-1").write_bytes(b"PAR1")
    with pytest.MonkeyPatch.context() as ahead:
        ahead.setattr(ledger, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + 7_200_000_000_000))
        ingest_all(lake())
    (tmp_path / "whole").replace(landing / "part-1")
    with pytest.MonkeyPatch.context() as crash:
        crash.setattr(ledger, "append", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
        with pytest.raises((FraudlakeError, RuntimeError), match="killed"):
            ingest_all(lake())
    for _ in range(2):
        ingest_all(lake())
        assert amounts(lake()) == [1.0, 2.0]
        assert rejected(lake()) == {}
        assert reconciles(lake())


@pytest.mark.usefixtures("each_writer")
@pytest.mark.parametrize("fault", ["another process", "an error after the commit"])
def test_files_are_appended_once(lake: Open, landing: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    for i in range(2):
        write(landing / f"part-{i}", float(i))
    opened = lake()
    folder = type(landing_folder(opened))
    append, calls = folder.append_to_bronze, []

    def faulty(self: Any, files: Any, number: Any) -> None:
        calls.append(number)
        if len(calls) == 1 and fault == "another process":
            other = FileSource()  # as it is where it began before there were any entries
            other.application = opened.store.identity(tables.BRONZE_FILES)
            other._ingest(opened, files[:1])
        append(self, files, number)
        if len(calls) == 1 and fault != "another process":
            raise RuntimeError("DELTA_CONCURRENT_APPEND: but it was committed")

    monkeypatch.setattr(folder, "append_to_bronze", faulty)
    ingest_all(opened)
    assert len(calls) > 1
    assert amounts(lake()) == [0.0, 1.0]
    assert reconciles(lake())
    ingest_all(lake())
    assert amounts(lake()) == [0.0, 1.0]


@pytest.mark.usefixtures("each_writer")
@LONG_BY_SPARK
def test_a_retry_that_dies_between_its_commits_ingests_nothing_twice(lake: Open, landing: Path) -> None:
    (landing / "part-0").write_bytes(b"")
    ingest_all(lake())
    write(landing / "part-0", 1.0)
    with pytest.MonkeyPatch.context() as crash:
        crash.setattr(ledger, "append", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
        with pytest.raises(RuntimeError, match="killed"):
            ingest_all(lake(), retry_rejected=True)
    assert amounts(lake()) == [1.0]
    for _ in range(2):
        ingest_all(lake(), retry_rejected=True)
        assert amounts(lake()) == [1.0]
        assert rejected(lake()) == {}
        assert reconciles(lake())


def test_files_taken_away_after_they_were_read_still_count_as_landed(lake: Open, landing: Path) -> None:
    write(landing / "part-0", 1.0)
    ingest_all(lake())
    (landing / "part-0").unlink()
    ingest_all(lake())
    write(landing / "part-1", 2.0, 3.0)
    figures = status(lake())
    assert (figures.source.landed, figures.rows.bronze) == (3, 1)
    assert (figures.source.landed_files, figures.source.unread_files) == (2, 1)


def test_an_unreadable_file_is_rejected(lake: Open, landing: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    write(landing / "part-0", 1.0)
    (landing / "part-0").chmod(0)
    ingest_all(lake())
    assert rejected(lake()) == {"part-0": "the file may not be read: permission denied"}


def test_a_limit_of_bytes_splits_micro_batches(lake: Open, landing: Path) -> None:
    for i in range(3):
        write(landing / f"part-{i}", float(i))
    opened = lake(max_bytes_per_trigger="1k")
    (done,) = stream.run(opened, ingest.streams(opened), "available-now")
    assert (done.rows, done.batches) == (3, 3)
    assert amounts(opened) == [0.0, 1.0, 2.0]


@pytest.mark.long
@pytest.mark.parametrize("kind_of_lake", ["workspace"], indirect=True)
def test_a_workspace_lists_all_that_ever_landed_once_a_day(
    lake: Open, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(landing / "part-0", 1.0)
    ingest_all(lake())
    write(landing / "part-0", 2.0, 3.0)
    opened = lake()
    monkeypatch.setattr(Volume, "sweep_seconds", 86_400.0)
    ingest_all(opened)
    assert rejected(opened) == {}
    yesterday = time.time() - 86_500
    os.utime(opened.checkpoint("ingest").folder / "swept", (yesterday, yesterday))
    ingest_all(opened)
    assert "rewritten after it was ingested" in rejected(opened)["part-0"]


@pytest.mark.long
def test_declared_columns_come_typed_into_bronze_and_silver(lake: Open, landing: Path) -> None:
    rows = {"dt": pa.array([0, 1], pa.timestamp("us")), "accountId": ["1", "2"], "amount": [1.0, 2.0]}
    pq.write_table(pa.table({**rows, "merchantId": [7, 8], "terminalId": [1.0, 1.5], "x": [1, 2]}), landing / "part-0")
    opened = lake(columns={"merchant": {"from": "merchantId", "type": "string"}, "terminalId": "bigint"})
    ingest_all(opened)
    stream.run(opened, refine.streams(opened), "available-now")
    valid = opened.read(tables.SILVER_TRANSACTIONS).select("amount", "merchant", "terminalId").collect()
    assert [tuple(row) for row in valid] == [(1.0, "7", 1)]
    rejected_rows = opened.read(tables.SILVER_QUARANTINE).select("merchant", "terminalId", "_rescued_data", "reasons")
    assert [tuple(row) for row in rejected_rows.collect()] == [
        ("8", None, '{"x": 2, "terminalId": 1.5}', ["terminalId_fits"])
    ]


def test_a_payload_of_other_names_and_units_comes_into_bronze_and_silver(lake: Open, landing: Path) -> None:
    paid = {"ts": [1_772_884_801, 1_772_884_802], "card": [{"number": "C1"}, {"number": None}], "minor": [1999, 50]}
    rows = {**paid, "is_fraud": [True, None], "merchant": [{"id": 7, "city": "Bern"}, {"id": 8, "city": None}]}
    pq.write_table(pa.table(rows), landing / "part-0")
    opened = lake(
        payload={
            "accountId": "card.number",
            "dt": {"from": "ts", "unit": "seconds"},
            "amount": {"from": "minor", "unit": "minor"},
            "alert": "is_fraud",
        },
        columns={"merchant_id": {"from": "merchant.id", "type": "bigint"}},
    )
    ingest_all(opened)
    stream.run(opened, refine.streams(opened), "available-now")
    columns = ("account_id", "amount", "label", "merchant_id", "date_format(timestamp, 'yyyy-MM-dd HH:mm:ss')")
    valid = opened.read(tables.SILVER_TRANSACTIONS).selectExpr(*columns).collect()
    assert [tuple(row) for row in valid] == [("C1", 19.99, True, 7, "2026-03-07 12:00:01")]
    rejected_rows = opened.read(tables.SILVER_QUARANTINE).select("amount", "merchant_id", "_rescued_data", "reasons")
    assert [tuple(row) for row in rejected_rows.collect()] == [(0.5, 8, None, ["account_is_named"])]
    taken = opened.read(tables.BRONZE_TRANSACTIONS).where("accountId = 'C1'").select("_rescued_data").collect()
    assert [row[0] for row in taken] == ['{"merchant": {"city": "Bern"}}']
