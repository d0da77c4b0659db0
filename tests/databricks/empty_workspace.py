"""A Spark Connect server without Spark: all tables are empty; streams are recorded, and end at once.

It answers what a lake asks while its streams are made and started, and refuses the rest.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pyarrow as pa
from pyspark.sql.connect import proto
from pyspark.sql.connect.proto import base_pb2_grpc
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect.types import pyspark_types_to_proto_types
from pyspark.sql.pandas.types import from_arrow_schema

from fraudlake.lake import contents

_TYPES = {column.type: table.schema.field(column.name).type for table in contents.TABLES for column in table.fields}
_SOURCES = {
    "binaryFile": "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY",
    "kafka": "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP",
    "parquet": "dt TIMESTAMP, accountId STRING, amount DOUBLE, alert BOOLEAN, _rescued_data STRING",
}
_STATEMENTS = {
    "DESCRIBE DETAIL": {
        "id": "the table's identity",
        "partitionColumns": ["date"],
        "clusteringColumns": ["date"],
        "properties": None,
        "numFiles": 0,
    },
    "DESCRIBE HISTORY": {"version": 0, "operation": "CREATE TABLE", "timestamp": 0, "operationParameters": None},
}
_CONFIGURATION = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "auto"}


class Workspace(NamedTuple):
    """A session of the client, and the streams that were started in it."""

    session: SparkSession
    started: list[proto.WriteStreamOperationStart]


@contextmanager
def empty_workspace() -> Iterator[Workspace]:
    """Serve a workspace for the length of the block."""
    service = _Service()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    base_pb2_grpc.add_SparkConnectServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    try:
        yield Workspace(session, service.started)
    finally:
        session.stop()
        server.stop(grace=None)


class _Service(base_pb2_grpc.SparkConnectServiceServicer):
    def __init__(self) -> None:
        self.started: list[proto.WriteStreamOperationStart] = []

    def Config(self, request: proto.ConfigRequest, context: grpc.ServicerContext) -> proto.ConfigResponse:  # noqa: N802
        kind = request.operation.WhichOneof("op_type")
        pairs = list(getattr(request.operation, kind).pairs) if kind in ("set", "get_with_default") else []
        for name in request.operation.get.keys:
            if name not in _CONFIGURATION:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"Configuration {name} is not available.")
            pairs.append(proto.KeyValue(key=name, value=_CONFIGURATION[name]))
        return proto.ConfigResponse(session_id=request.session_id, pairs=pairs)

    def AnalyzePlan(  # noqa: N802
        self, request: proto.AnalyzePlanRequest, context: grpc.ServicerContext
    ) -> proto.AnalyzePlanResponse:
        kind = request.WhichOneof("analyze")
        answer = proto.AnalyzePlanResponse(session_id=request.session_id)
        if kind == "schema":
            answer.schema.schema.CopyFrom(_schema(_evaluate(request.schema.plan.root)))
        elif kind == "ddl_parse":
            answer.ddl_parse.parsed.CopyFrom(_schema(_empty(request.ddl_parse.ddl_string)))
        else:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no answer to {kind}")
        return answer

    def ExecutePlan(  # noqa: N802
        self, request: proto.ExecutePlanRequest, context: grpc.ServicerContext
    ) -> Iterator[proto.ExecutePlanResponse]:
        try:
            plan = request.plan
            answer = _rows(_evaluate(plan.root)) if plan.HasField("root") else self._run(plan.command)
        except NotImplementedError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        done = {"result_complete": proto.ExecutePlanResponse.ResultComplete()}
        for fields in ([answer] if answer else []) + [done]:
            yield proto.ExecutePlanResponse(
                session_id=request.session_id,
                operation_id=request.operation_id,
                response_id=str(uuid.uuid4()),
                **fields,
            )

    def ReleaseExecute(  # noqa: N802
        self, request: proto.ReleaseExecuteRequest, context: grpc.ServicerContext
    ) -> proto.ReleaseExecuteResponse:
        return proto.ReleaseExecuteResponse(session_id=request.session_id, operation_id=request.operation_id)

    def ReleaseSession(  # noqa: N802
        self, request: proto.ReleaseSessionRequest, context: grpc.ServicerContext
    ) -> proto.ReleaseSessionResponse:
        return proto.ReleaseSessionResponse(session_id=request.session_id)

    def _run(self, command: proto.Command) -> dict[str, Any]:
        kind = command.WhichOneof("command_type")
        if kind == "sql_command":
            result = proto.ExecutePlanResponse.SqlCommandResult(relation=command.sql_command.input)
            return {"sql_command_result": result}
        if kind == "write_stream_operation_start":
            self.started.append(command.write_stream_operation_start)
            name = proto.StreamingQueryInstanceId(id=str(len(self.started) - 1), run_id=str(uuid.uuid4()))
            return {"write_stream_operation_start_result": proto.WriteStreamOperationStartResult(query_id=name)}
        if kind == "streaming_query_command":
            return {"streaming_query_command_result": self._query_state(command.streaming_query_command)}
        return {}

    def _query_state(self, command: proto.StreamingQueryCommand) -> proto.StreamingQueryCommandResult:
        """Report that a query has ended, without a row and without an error."""
        answer = proto.StreamingQueryCommandResult(query_id=command.query_id)
        match command.WhichOneof("command"):
            case "await_termination":
                answer.await_termination.terminated = True
            case "last_progress":
                answer.recent_progress.recent_progress_json.append(
                    _progress(self.started[int(command.query_id.id)].input)
                )
            case "recent_progress":
                answer.recent_progress.SetInParent()
            case "status":
                answer.status.status_message = "Stopped"
            case "exception":
                answer.exception.SetInParent()
        return answer


def _progress(stream: proto.Relation) -> str:
    """Report a micro-batch without rows, of a topic with one partition that is empty."""
    offsets = json.dumps({stream.read.data_source.options.get("subscribe", ""): {"0": 0}})
    rates = {"numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    ends = dict.fromkeys(("startOffset", "endOffset", "latestOffset"), offsets)
    report = {
        "id": str(uuid.uuid4()),
        "runId": str(uuid.uuid4()),
        "name": None,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 0,
        "batchDuration": 0,
        "durationMs": {},
        "stateOperators": [],
        "sources": [{"description": "", **ends, **rates}],
        "sink": {"description": "", "numOutputRows": 0},
    }
    return json.dumps(report | rates)


def _evaluate(relation: proto.Relation) -> pa.Table:
    """Return what a plan gives on empty tables, as far as that is known without Spark."""
    kind = relation.WhichOneof("rel_type")
    plan = getattr(relation, kind)
    if kind == "catalog":
        return pa.table({"answer": [True]})
    if kind == "sql":
        statement = " ".join(plan.query.split()[:2])
        return pa.Table.from_pylist([_STATEMENTS[statement]] if statement in _STATEMENTS else [])
    if kind == "read" and plan.HasField("named_table"):
        name = plan.named_table.unparsed_identifier.replace("`", "").rpartition(".")[2]
        return _empty({table.name: table.columns for table in contents.TABLES}[name])
    if kind == "read" and plan.data_source.format == "binaryFile" and not plan.is_streaming:
        return pa.Table.from_pylist([{"path": str(file)} for path in plan.data_source.paths for file in _files(path)])
    if kind == "read":
        return _empty(_SOURCES[plan.data_source.options.get("cloudFiles.format", plan.data_source.format)])
    if kind == "project":
        return _projected(_evaluate(plan.input), plan.expressions)
    if kind == "join":
        return _evaluate(plan.left)
    if "input" in plan.DESCRIPTOR.fields_by_name:
        return _evaluate(plan.input)
    raise NotImplementedError(f"the empty workspace does not know what '{kind}' gives")


def _files(folder: str) -> list[Path]:
    return [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]


def _empty(columns: str) -> pa.Table:
    given = [column.split() for column in re.split(r",\s*(?![^<]*>)", columns.strip())]
    return pa.schema([(name, _TYPES[kind]) for name, kind, *_ in given]).empty_table()


def _projected(rows: pa.Table, expressions: list[proto.Expression]) -> pa.Table:
    """Select columns by name; those that Spark would compute are null."""
    columns: dict[str, Any] = {}
    for expression in expressions:
        if expression.HasField("unresolved_star"):
            columns |= {name: rows[name] for name in rows.column_names}
        else:
            name = _name(expression)
            columns[name] = rows[name] if name in rows.column_names else pa.nulls(len(rows), pa.string())
    return pa.table(columns)


def _name(expression: proto.Expression) -> str:
    if expression.HasField("unresolved_attribute"):
        return expression.unresolved_attribute.unparsed_identifier.rpartition(".")[2]
    if expression.HasField("expression_string"):
        return expression.expression_string.expression.split()[-1]
    return "".join(expression.alias.name)


def _schema(rows: pa.Table) -> proto.DataType:
    return pyspark_types_to_proto_types(from_arrow_schema(rows.schema))


def _rows(rows: pa.Table) -> dict[str, Any]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]:
            writer.write_batch(batch)
    answer = proto.ExecutePlanResponse.ArrowBatch(row_count=len(rows), data=sink.getvalue().to_pybytes())
    return {"arrow_batch": answer, "schema": _schema(rows)}
