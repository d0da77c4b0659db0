"""Serverless compute over Spark Connect: the client's calls are refused as Databricks' server refuses them.

Names and texts of the refusals are those that users report (databricks-sdk-py#1112, graphframes#899, datacompy#407,
lakebridge#2218); the settings are the six of Databricks' page "Set Spark configuration properties".
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from pyspark.errors.exceptions.connect import AnalysisException
from pyspark.sql.connect.catalog import Catalog
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.conf import RuntimeConf
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.plan import CachedRemoteRelation
from pyspark.sql.connect.proto import relations_pb2 as proto
from pyspark.sql.connect.readwriter import DataFrameWriter
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect.streaming.readwriter import DataStreamReader, DataStreamWriter
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tests.standin import auto_loader

SETTINGS = {
    "spark.databricks.execution.timeout",
    "spark.sql.ansi.enabled",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
}
OTHER_CATALOG = "workspace"
"""The catalog that a session begins in, and that the session of a micro-batch falls back to."""
CRASH = "STANDIN_CRASH"
"""Names the file with the number of commits after which a process ends; it is removed then."""

ONE_SHOT = "STANDIN_ONE_SHOT"
"""Names a file; while it is there, a micro-batch gives its rows to one action only, and none to those after it."""

_COUNTING = threading.Lock()
"""Commits are made in several threads."""
_REFUSED_SQL = re.compile(r"\s*(SET\s+(?!TIME ZONE)|CACHE\b|UNCACHE\b|REFRESH\b|CLEAR CACHE)", re.IGNORECASE)


def refuse(condition: str, message: str, state: str) -> NoReturn:
    raise AnalysisException(f"[{condition}] {message} SQLSTATE: {state}", errorClass=condition, sql_state=state)


def _unsupported(what: str) -> Callable[..., NoReturn]:
    def call(*arguments: Any, **options: Any) -> NoReturn:
        refuse("NOT_SUPPORTED_WITH_SERVERLESS", f"{what} is not supported on serverless compute.", "0A000")

    return call


def _known(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, key: str, *arguments: Any) -> Any:
        # The client itself reads settings of its own release.
        is_clients = sys._getframe(1).f_globals.get("__name__", "").startswith("pyspark.")
        if key not in SETTINGS and not is_clients:
            refuse("CONFIG_NOT_AVAILABLE", f"Configuration {key} is not available.", "42K0I")
        return method(self, key, *arguments)

    return call


def _start(plain: Callable[..., Any]) -> Callable[..., Any]:
    def start(self: Any, *arguments: Any, **options: Any) -> Any:
        given = self._write_proto
        if "checkpointLocation" not in given.options:
            refuse(
                "TEMP_CHECKPOINT_LOCATION_NOT_SUPPORTED",
                "Implicit temporary streaming checkpoint locations are not supported in the current workspace, please "
                "specify a checkpoint location explicitly.",
                "0A000",
            )
        if not (given.available_now or given.once):
            refuse(
                "INFINITE_STREAMING_TRIGGER_NOT_SUPPORTED",
                "Trigger type ProcessingTime is not supported for this cluster type. Use a different trigger type e.g. "
                "AvailableNow, Once.",
                "0A000",
            )
        return plain(self, *arguments, **options)

    return start


def _sql(plain: Callable[..., Any]) -> Callable[..., Any]:
    def sql(self: Any, query: str, *arguments: Any, **options: Any) -> Any:
        if _REFUSED_SQL.match(query):
            refuse(
                "NOT_SUPPORTED_WITH_SERVERLESS", f"{query.split()[0]} is not supported on serverless compute.", "0A000"
            )
        with _ended_behind_a_commit():
            return plain(self, query, *arguments, **options)

    return sql


def _save(plain: Callable[..., Any]) -> Callable[..., Any]:
    def save(self: Any, *arguments: Any, **options: Any) -> None:
        with _ended_behind_a_commit():
            plain(self, *arguments, **options)

    return save


class EndedError(BaseException):
    """The process is over: nothing that handles errors may continue."""


@contextmanager
def _ended_behind_a_commit() -> Iterator[None]:
    """End the process if the block makes the commit after which it is to end."""
    file = Path(os.environ[CRASH])
    before = _commits() if file.exists() else None
    yield
    with _COUNTING:
        if before is not None and file.exists() and _commits() > before:
            left = int(file.read_text()) - 1
            if not left:
                file.unlink()
                raise EndedError("the process ended behind a commit")
            file.write_text(str(left))


def _commits() -> int:
    return sum(1 for _ in Path(os.environ[CRASH]).parent.glob("tables/*/_delta_log/*.json"))


def install() -> None:
    """Make the Spark Connect client of this process serverless compute's."""
    RuntimeConf.set, RuntimeConf.get = _known(RuntimeConf.set), _known(RuntimeConf.get)  # type: ignore[method-assign]
    RuntimeConf.unset = _known(RuntimeConf.unset)  # type: ignore[method-assign]
    for name in ("persist", "cache", "checkpoint", "localCheckpoint", "unpersist"):
        setattr(DataFrame, name, _unsupported("PERSIST TABLE"))
    for name in ("createGlobalTempView", "createOrReplaceGlobalTempView"):
        setattr(DataFrame, name, _unsupported("GLOBAL TEMPORARY VIEW"))
    for name in ("cacheTable", "uncacheTable", "clearCache", "refreshTable", "refreshByPath"):
        setattr(Catalog, name, _unsupported("CACHE TABLE"))
    DataStreamWriter._start_internal = _start(DataStreamWriter._start_internal)  # type: ignore[method-assign]
    DataFrameWriter.saveAsTable = _save(DataFrameWriter.saveAsTable)  # type: ignore[method-assign]
    SparkSession.sql = _sql(SparkSession.sql)  # type: ignore[method-assign]
    # Reported of foreachBatch on serverless compute.
    StreamingQueryProgress.numInputRows = property(lambda progress: 0)  # type: ignore[assignment,method-assign]
    auto_loader.install(DataStreamReader, SparkSession)


def fall_back_in_micro_batches() -> None:
    """Let the session of each micro-batch begin in another catalog, as the clone does that Databricks makes of it.

    A clone itself will not do: open-source Spark does not find the micro-batch's rows in it (seen in 4.2).
    """
    plain = SparkSession._create_remote_dataframe

    def create(self: Any, remote_id: str) -> Any:
        rows = plain(self, remote_id)
        self.catalog.setCurrentCatalog(OTHER_CATALOG)
        return rows

    SparkSession._create_remote_dataframe = create  # type: ignore[method-assign]


def give_micro_batches_once() -> None:
    """Let a micro-batch's rows be gone after the first action on them, if :data:`ONE_SHOT` says so.

    A public project saw it on serverless compute: the second action on a micro-batch found no rows, and no error.
    """
    plain_plan, plain_execute = CachedRemoteRelation.plan, SparkConnectClient._execute_and_fetch_as_iterator
    read: set[str] = set()

    def plan(self: Any, session: Any) -> Any:
        rows = plain_plan(self, session)
        if self._relation_id in read:
            none = self._create_proto_relation()
            none.limit.CopyFrom(proto.Limit(input=rows, limit=0))
            return none
        return rows

    def execute(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        yield from plain_execute(self, request, *arguments, **options)
        if Path(os.environ[ONE_SHOT]).exists() and not request.plan.command.HasField("create_dataframe_view"):
            read.update(re.findall(r'relation_id: "([^"]+)"', str(request.plan)))

    CachedRemoteRelation.plan = plan  # type: ignore[method-assign]
    SparkConnectClient._execute_and_fetch_as_iterator = execute  # type: ignore[method-assign]
