"""The checkpoints that a stream refuses; each test breaks something that a person could break."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.detection.state import state
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake.checkpoint import Checkpoint
from fraudlake.lake.definition import Change
from fraudlake.streams import detect, stream
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected, land

pytestmark = pytest.mark.stream

PAIR = [Row("1", MARCH_7, 0.5, position=0), Row("1", MARCH_7 + SECOND, 600.0, position=1)]
NEXT = [Row("1", MARCH_7 + 2 * SECOND, 0.7, position=2), Row("1", MARCH_7 + 3 * SECOND, 700.0, position=3)]


@pytest.fixture(scope="module")
def begun(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose detector has run one micro-batch and has rows for another one."""
    from fraudlake.lake import open_lake
    from fraudlake.settings import Settings

    root = tmp_path_factory.mktemp("begun") / "lake"
    lake = open_lake(Settings(lake=root))
    detected(lake, PAIR)
    land(lake, NEXT)
    return root


@pytest.fixture
def copy(begun: Path, lake: Any, tmp_path: Path) -> Any:
    shutil.copytree(begun, tmp_path / "lake")
    return lake


def refused(lake: Any) -> str:
    """The message with which the detector is refused; it must have written nothing."""
    before = lake.store.count(tables.SILVER_ALERTS)
    with pytest.raises(FraudlakeError) as error:
        stream.run(lake, detect.streams(lake), "available-now")
    assert lake.store.count(tables.SILVER_ALERTS) == before
    assert "\n" not in str(error.value)
    return str(error.value)


def test_rules_of_the_settings_do_not_change_those_that_the_lake_has(copy: Any) -> None:
    rule = {"name": "small_then_large", "small_below": 1, "large_above": 650, "within": "60 seconds"}
    opened = copy(rules=[rule])
    stream.run(opened, detect.streams(opened), "available-now")
    assert sorted(row["amount"] for row in opened.read(tables.SILVER_ALERTS).collect()) == [600.0, 700.0]


@pytest.mark.parametrize(("name", "before", "after"), [("buckets", 16, 5), ("ordering", "arrival", "event_time")])
def test_a_state_keeps_its_buckets_and_its_order(copy: Any, tmp_path: Path, name: str, before: Any, after: Any) -> None:
    with pytest.raises(UsageError) as refused:
        copy(**{name: after})
    assert f"{name} contradicts {tmp_path}/lake in {name} ({after} instead of {before}): leave it out" in str(
        refused.value
    )
    with pytest.raises(
        FraudlakeError, match=f"detect: its state was begun with {name} = {before} and cannot change to"
    ):
        copy(**{name: after}, change=Change("me"))
    assert copy().settings.definition[name] == before


def test_a_stream_refuses_other_buckets_than_its_own(copy: Any) -> None:
    with pytest.raises(FraudlakeError) as refused:
        copy().checkpoint("detect").require({"buckets": 5}, {}, {})
    assert "begun with buckets = 16 and cannot change to 5: set buckets = 16, or start over" in str(refused.value)


@pytest.mark.parametrize("file", ["offsets/0", "commits/0", "metadata", "fraudlake.json"])
def test_a_damaged_file_of_the_checkpoint_is_named(copy: Any, file: str) -> None:
    opened = copy()
    damaged = opened.checkpoint("detect").folder / file
    damaged.write_bytes(damaged.read_bytes()[:9] + b"\0{")
    assert f"{damaged} is damaged" in refused(opened)


def test_a_missing_state_directory_is_named(copy: Any) -> None:
    opened = copy()
    shutil.rmtree(opened.checkpoint("detect").state)
    assert f"{opened.checkpoint('detect').state}/0/0 is damaged or missing" in refused(opened)


def test_the_number_of_state_partitions_does_not_come_from_the_settings(copy: Any) -> None:
    checkpoint = copy().checkpoint("detect")
    offsets = checkpoint.folder / "offsets" / "0"
    number = f'"spark.sql.shuffle.partitions":"{len(list((checkpoint.state / "0").glob("[0-9]*")))}"'
    assert number in offsets.read_text()
    # As serverless compute has it by default.
    offsets.write_text(offsets.read_text().replace(number, '"spark.sql.shuffle.partitions":"auto"'))
    checkpoint.require({"buckets": 16, "ordering": "arrival"}, {}, {})
    shutil.rmtree(checkpoint.state / "0" / "0")
    with pytest.raises(FraudlakeError, match="state/0/0 is damaged or missing"):
        checkpoint.require({"buckets": 16, "ordering": "arrival"}, {}, {})


def test_a_checkpoint_that_is_gone_does_not_make_the_stream_write_everything_again(copy: Any) -> None:
    opened = copy()
    shutil.rmtree(opened.checkpoint("detect").folder)
    assert "silver_alerts has rows, but the checkpoint" in refused(opened)


def test_a_table_replaced_under_the_stream_is_refused(copy: Any, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "lake" / "tables" / "silver_transactions")
    opened = copy()
    land(opened, NEXT)
    assert "silver_transactions is not the table that this stream has read so far" in refused(opened)


def test_a_stream_begins_that_was_killed_before_its_first_micro_batch(lake: Any) -> None:
    opened = lake()
    for folder in ("offsets", "state/0"):
        (opened.checkpoint("detect").folder / folder).mkdir(parents=True)
        (opened.checkpoint("detect").folder / folder / ".0.5198b3c6.tmp").touch()
    pair = [Row("1", MARCH_7, 0.5, position=0), Row("1", MARCH_7 + SECOND, 600.0, position=1)]
    assert detected(opened, pair) == [("part-0-0", "part-0-1")]


@pytest.mark.parametrize("original", [pytest.param("is gone", marks=pytest.mark.long), "is another lake by now"])
def test_a_lake_in_another_place_goes_on_and_leaves_the_place_it_came_from_alone(
    copy: Any, lake: Any, tmp_path: Path, original: str
) -> None:
    Checkpoint("detect", tmp_path / "lake" / "checkpoints" / "detect").correct_paths()  # as if the lake had begun there
    shutil.copytree(tmp_path / "lake", tmp_path / "ein See #2")
    shutil.rmtree(tmp_path / "lake")
    if original == "is another lake by now":
        (tmp_path / "lake").write_text("no folder any more")
    opened = lake("ein See #2")
    assert state(opened).open_flags == 0
    stream.run(opened, detect.streams(opened), "available-now")
    assert sorted(row["amount"] for row in opened.read(tables.SILVER_ALERTS).collect()) == [600.0, 700.0]
    assert (tmp_path / "lake").is_file() == (original == "is another lake by now")
    assert not (tmp_path / "lake").is_dir()


def test_the_metadata_of_the_state_names_the_schemas_in_its_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "0" / "_metadata" / "v2"
    folder.mkdir(parents=True)
    names = {
        "file:/old place/state/checkpoints/x/state/0/_stateSchema/default/3_a b": f"file:{tmp_path}",
        "dbfs:/Volumes/c/s/v/x/state/0/_stateSchema/default/3_a b": f"dbfs:{tmp_path}",
        "/Volumes/c/s/v/x/state/0/_stateSchema/default/3_a b": str(tmp_path),
    }
    for number, path in enumerate(names):
        metadata = {"stateStoreInfo": [{"stateSchemaFilePaths": [path]}], "operatorPropertiesJson": "{}"}
        (folder / str(number)).write_text(f"v2\n{json.dumps(metadata)}")
        (folder / f".{number}.crc").write_bytes(b"checksum of the text before")
    (folder / "9").write_text("v2\n{")  # half of it: Spark says so
    Checkpoint("x", tmp_path).correct_paths()
    for number, place in enumerate(names.values()):
        version, content = (folder / str(number)).read_text().split("\n")
        paths = json.loads(content)["stateStoreInfo"][0]["stateSchemaFilePaths"]
        assert (version, paths) == ("v2", [f"{place}/state/0/_stateSchema/default/3_a b"])
    assert sorted(file.name for file in folder.iterdir()) == ["0", "1", "2", "9"]
