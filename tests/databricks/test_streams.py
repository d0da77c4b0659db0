"""The streams as databricks-connect starts them: their Python functions travel to another process, and work there."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

import pytest
from google.protobuf.message import Message
from pyspark.errors import PySparkPicklingError
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.connect import proto
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.session import SparkSession

from fraudlake import streams
from fraudlake.lake import change_log, open_lake
from fraudlake.model.registry import Registry
from fraudlake.settings import Settings
from fraudlake.streams import aggregate, deliver, detect, ingest, refine, score, stream
from tests.databricks.empty_workspace import Workspace, empty_workspace
from tests.databricks.package import ROOT

KAFKA = {"source": "kafka", "bootstrap_servers": "broker:9092", "topic": "fraud-events"}
IN_TIME = {"ordering": "event_time", "max_out_of_orderness": "10 seconds"}

# What is started: a step, the lake's settings, and the step's own arguments.
CASES: dict[str, tuple[Callable[..., list[stream.Stream]], dict[str, Any], dict[str, Any]]] = {
    "ingest from files": (ingest.streams, {}, {}),
    "ingest from Kafka": (ingest.streams, KAFKA, {}),
    "ingest from Kafka with gaps": (ingest.streams, {**KAFKA, "fail_on_data_loss": False}, {}),
    "refine": (refine.streams, {}, {}),
    "detect as rows arrive": (detect.streams, {}, {}),
    "detect in event time": (detect.streams, IN_TIME, {}),
    "deliver to the log": (deliver.streams, {}, {"to": "log"}),
    "deliver to a volume": (deliver.streams, {"delivery_folder": "/Volumes/main/fraud/out"}, {"to": "file"}),
    "deliver to Kafka": (deliver.streams, {**KAFKA, "delivery_topic": "fraud-alerts"}, {"to": "kafka"}),
    "deliver to a webhook": (deliver.streams, {"webhook_url": "https://alerts.example.com"}, {"to": "webhook"}),
    "aggregate": (aggregate.streams, {}, {}),
    "aggregate beside a fast lane": (aggregate.streams, {**KAFKA, "fast_alerts_topic": "fast-alerts"}, {}),
    "score": (score.streams, {}, {}),
    "score from Kafka": (score.streams, KAFKA, {"from_topic": True}),
}


class Version(NamedTuple):
    number: str

    def threshold(self, setting: object) -> object:
        return setting


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with empty_workspace() as workspace:
        yield workspace


@pytest.fixture(scope="module", params=CASES)
def started(
    request: pytest.FixtureRequest, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> list[proto.WriteStreamOperationStart]:
    """The streams of a step, as the client asks the workspace to start them."""
    step, settings, arguments = CASES[request.param]
    volumes = tmp_path_factory.mktemp("volumes")
    shutil.copytree(ROOT / "fixtures" / "flink" / "tutorial" / "int96", volumes / "landing")
    (volumes / "checkpoints").mkdir()
    folders = {name: str(volumes / name) for name in ("landing", "checkpoints")}
    before = len(workspace.started)
    with pytest.MonkeyPatch.context() as patch:
        # The store of models is not Spark's. There is a champion in it.
        patch.setattr(Registry, "required_champion", lambda registry: Version("1"))
        patch.setattr(Registry, "load", lambda registry, number: Version(number))
        # Nor does an empty workspace keep what it is.
        patch.setattr(change_log, "write", lambda *change: True)
        lake = open_lake(Settings(catalog="main", schema_name="fraud", **folders, **settings), workspace.session)
        # What is done around the micro-batches asks more of a workspace, and is not sent anywhere.
        streams = [replace(stream, before=_nothing, after=_nothing) for stream in step(lake, **arguments)]
        stream.run(lake, streams, "available-now")
    return [query for query in workspace.started[before:] if query.HasField("foreach_batch")]


def _nothing() -> None:
    pass


@pytest.fixture
def functions(started: list[proto.WriteStreamOperationStart]) -> list[bytes]:
    """The pickled functions of a step's streams: those of its micro-batches, and those that Spark's tasks call."""
    return [pickled for query in started for pickled in _pickled(query)]


def _pickled(message: Message) -> Iterator[bytes]:
    """Return every pickled function in a message of the client."""
    if isinstance(message, proto.PythonUDF):
        yield message.command
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if isinstance(value, list) or hasattr(value, "add") else [value]:
                yield from _pickled(part)


def test_every_step_that_is_a_stream_is_tried() -> None:
    modules = (import_module(f"{streams.__name__}.{module.name}") for module in iter_modules(streams.__path__))
    streaming = {module.streams for module in modules if hasattr(module, "streams")}
    assert {step for step, _, _ in CASES.values()} == streaming


def test_a_stream_names_its_checkpoint_and_ends_by_itself(started: list[proto.WriteStreamOperationStart]) -> None:
    assert started
    for query in started:
        assert query.available_now
        assert Path(query.options["checkpointLocation"]).name == query.query_name.rpartition("-")[0]


def test_a_function_reaches_no_session_and_no_frame(functions: list[bytes]) -> None:
    # A micro-batch has a separate session, whose frames do not mix with those of another.
    assert [path for pickled in functions for path in session_paths(CloudPickleSerializer().loads(pickled))] == []


def test_a_function_arrives_in_another_process(functions: list[bytes]) -> None:
    program = (
        "import json, sys; from pyspark.serializers import CloudPickleSerializer\n"
        "for pickled in json.load(sys.stdin): CloudPickleSerializer().loads(bytes.fromhex(pickled)); print('arrived')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([pickled.hex() for pickled in functions]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stdout.split() == ["arrived"] * len(functions), ended.stderr[-2000:]


@pytest.mark.parametrize("kind", ["session", "frame", "reader"])
def test_a_session_in_a_function_is_noticed(workspace: Workspace, kind: str) -> None:
    session = workspace.session
    outer = {"session": session, "frame": session.table("silver_alerts"), "reader": session.read}[kind]

    def write(batch: DataFrame, batch_id: int) -> None:
        print(outer, batch, batch_id)

    (path,) = session_paths(write)
    assert path.startswith("write.outer")


def test_what_cannot_be_pickled_is_refused_before_anything_starts(workspace: Workspace) -> None:
    lock = threading.Lock()
    writer = workspace.session.readStream.table("silver_alerts").writeStream
    with pytest.raises(PySparkPicklingError, match="STREAMING_CONNECT_SERIALIZATION_ERROR"):
        writer.foreachBatch(lambda batch, batch_id: lock.acquire())


def session_paths(thing: Any, path: str = "", seen: set[int] | None = None) -> list[str]:
    """Return the paths on which a function, through closures and attributes, reaches a session or a frame.

    It names the culprit; what it misses cannot be loaded in another process.
    """
    path, seen = path or getattr(thing, "__name__", type(thing).__name__), set() if seen is None else seen
    if id(thing) in seen:
        return []
    seen.add(id(thing))
    if isinstance(thing, SparkSession | DataFrame):
        return [f"{path} ({type(thing).__name__})"]
    return [longer for name, part in _parts(thing) for longer in session_paths(part, f"{path}.{name}", seen)]


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """Return what a thing refers to, by name."""
    if isinstance(thing, types.FunctionType):
        cells = (cell.cell_contents for cell in thing.__closure__ or ())
        yield from zip(thing.__code__.co_freevars, cells, strict=True)
    elif isinstance(thing, types.MethodType):
        yield "__self__", thing.__self__
    elif isinstance(thing, functools.partial):
        yield from _parts([thing.func, *thing.args, *thing.keywords.values()])
    elif isinstance(thing, dict):
        yield from ((str(key), value) for key, value in thing.items())
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((str(at), part) for at, part in enumerate(thing))
    elif not isinstance(thing, type | types.ModuleType):
        yield from getattr(thing, "__dict__", {}).items()
