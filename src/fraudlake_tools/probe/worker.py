"""Worker: asks the probe's questions in Python processes of Spark, and collects their answers.

The functions that are sent there are nested, so they are pickled by value. Functions of a module are pickled by name,
so all of them would fail if the wheel could not be imported, which is itself a question.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fraudlake.errors import FraudlakeError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fraudlake_tools.probe.scratch import Scratch

LIBRARIES = ("fraudlake", "numpy", "pandas", "pyarrow", "pydantic")
_REPORT_MARKER = "fraudlake-probe-report:"
Report = dict[str, tuple[bool, str]]
"""By question: whether it was answered, and the observation or the first line of the error."""
Questions = Callable[["DataFrame", int], dict[str, Callable[[], str]]]
"""Returns the questions, by name, that are asked of a micro-batch with its number."""


def in_a_task(scratch: Scratch) -> Report:
    """Ask the Python process of a task (``mapInArrow``)."""
    ask = _ask()
    questions = _ask_process(str(scratch.folder))

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"report": [json.dumps(ask(questions))]})

    answered = scratch.spark.range(1).mapInArrow(rows, "report STRING").collect()
    return _parsed(answered[0]["report"])


def in_a_micro_batch(scratch: Scratch) -> Report:
    """Ask the process that runs the function of ``foreachBatch``, on a micro-batch of ten rows ``id BIGINT``.

    The report comes back as a row of a table; if the table cannot be written, in the message of an error.
    """
    source = scratch.filled("source")
    reports = scratch.table("reports")
    ask = _ask()
    marker = _REPORT_MARKER
    of_any_process = _ask_process(str(scratch.folder))
    network = {} if scratch.receiver is None else _network(scratch.receiver)
    # On compute that returns a batch's rows only once, the first question gets them.
    of_micro_batch = (
        _ask_refine(scratch.filled("even", 0), scratch.filled("odd", 0), scratch.id),
        _ask_session(source, getattr(scratch.spark, "session_id", None)),
        _ask_merges(
            (scratch.filled("merged", 3), scratch.filled("merged_too", 3)),
            (scratch.bare_name("batch"), scratch.bare_name("batch_too")),
        ),
        _ask_appends(scratch.filled("appended", 0), scratch.id),
        _ask_model(scratch.settings.model_name),
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        questions = dict(of_any_process)
        for questions_on in of_micro_batch:
            questions |= questions_on(batch, batch_id)
        report = json.dumps(ask({**questions, **network}))
        try:
            row = batch.sparkSession.createDataFrame([(report,)], "report STRING")
            row.write.format("delta").mode("append").saveAsTable(reports)
        except Exception as error:
            raise RuntimeError(f"{marker}{report}{marker}") from error

    try:
        scratch.run("micro_batch", scratch.stream(source).writeStream.foreachBatch(write))
    except Exception as error:
        parts = str(error).split(_REPORT_MARKER)
        if len(parts) < 3:
            raise
        return _parsed(parts[1])
    return _parsed(scratch.spark.table(reports).collect()[0]["report"])


def _ask_refine(even: str, odd: str, application: str) -> Questions:
    """Return the question whether a micro-batch can be refined into two tables."""

    def questions(batch: DataFrame, batch_id: int) -> dict[str, Callable[[], str]]:
        spark = batch.sparkSession

        def refine() -> str:
            """Act on the batch as ``refine`` does: a summary, a second reading, and appends to two tables."""
            counts = batch.selectExpr("id % 2 AS part").groupBy("part").count().collect()
            again = batch.count()
            written = []
            for part, table in enumerate((even, odd)):
                writer = batch.where(f"id % 2 = {part}").write.format("delta").mode("append")
                writer.option("txnAppId", application).option("txnVersion", batch_id).saveAsTable(table)
                latest = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").select("operationMetrics").collect()[0]
                written.append(latest["operationMetrics"]["numOutputRows"])
            summed = sum(row["count"] for row in counts)
            return f"{summed} rows, {again} when read again, {' and '.join(written)} committed"

        return {"refine": refine}

    return questions


def _ask_session(source: str, command_id: str | None) -> Questions:
    """Return questions on the session of a micro-batch, and whether it knows the names of tables."""

    def questions(batch: DataFrame, batch_id: int) -> dict[str, Callable[[], str]]:
        spark = batch.sparkSession

        def session() -> str:
            own_id = getattr(spark, "session_id", None)
            current = spark.sql("SELECT current_catalog(), current_database()").collect()[0]
            which = f"another session ({own_id}, not {command_id})"
            which = "the session of the command" if own_id == command_id else which
            which = which if own_id else "a session without an id"
            return f"{which}, whose current schema is {current[0]}.{current[1]}"

        def names() -> str:
            return f"{spark.table(source).count()} rows read"

        return {"session": session, "names": names}

    return questions


def _ask_merges(merged: tuple[str, str], views: tuple[str, str]) -> Questions:
    """Return the question whether two threads can merge a micro-batch at the same time."""

    def questions(batch: DataFrame, batch_id: int) -> dict[str, Callable[[], str]]:
        spark = batch.sparkSession

        def merge() -> str:
            """Merge views of the batch into two tables at the same time, as ``aggregate`` does."""

            def into(table: str, view: str) -> int:
                batch.createOrReplaceTempView(view)
                on = f"MERGE INTO {table} AS t USING {view} AS s ON t.id = s.id"
                spark.sql(f"{on} WHEN NOT MATCHED THEN INSERT *").collect()
                spark.catalog.dropTempView(view)
                return spark.table(table).count()

            with ThreadPoolExecutor(len(merged)) as pool:
                rows = list(pool.map(into, merged, views))
            return f"{' and '.join(map(str, rows))} rows after two MERGE at the same time"

        return {"merge": merge}

    return questions


def _ask_appends(appended: str, application: str) -> Questions:
    """Return questions on appends that are marked with their micro-batch."""

    def questions(batch: DataFrame, batch_id: int) -> dict[str, Callable[[], str]]:
        spark = batch.sparkSession

        def append() -> str:
            for _ in range(2):
                writer = batch.write.format("delta").mode("append").option("txnAppId", application)
                writer.option("txnVersion", batch_id).option("userMetadata", application).saveAsTable(appended)
            return f"{spark.table(appended).count()} rows after two appends of the same micro-batch"

        def metadata() -> str:
            commits = spark.sql(f"DESCRIBE HISTORY {appended}").select("userMetadata").collect()
            texts = [commit["userMetadata"] for commit in commits]
            return "a text, as it was given" if texts == [application, None] else f"the commits' texts are {texts}"

        return {"append": append, "metadata": metadata}

    return questions


def _ask_model(model: str) -> Questions:
    """Return the questions whether a micro-batch can be persisted, and whether MLflow finds a model."""

    def questions(batch: DataFrame, batch_id: int) -> dict[str, Callable[[], str]]:
        def persist() -> str:
            batch.persist()
            batch.unpersist()
            return "persisted"

        def registry() -> str:
            import mlflow

            uris = f"tracking at {mlflow.get_tracking_uri()}, registry at {mlflow.get_registry_uri()}"
            try:
                client = mlflow.MlflowClient("databricks", registry_uri="databricks-uc")
                client.get_registered_model(model)
            except Exception as error:
                raise RuntimeError(f"{uris}; {model} cannot be asked for: {error}") from error
            return f"{uris}; {model} is registered"

        return {"persist": persist, "registry": registry}

    return questions


def _ask() -> Callable[[dict[str, Callable[[], str]]], Report]:
    def ask(questions: dict[str, Callable[[], str]]) -> Report:
        report: Report = {}
        for name, question in questions.items():
            try:
                report[name] = True, question()
            except Exception as error:
                lines = [line.strip() for line in str(error).splitlines() if line.strip()]
                report[name] = False, f"{type(error).__name__}: {(lines or [''])[0]}"[:300]
        return report

    return ask


def _ask_process(folder: str) -> dict[str, Callable[[], str]]:
    libraries = LIBRARIES

    def imports() -> str:
        modules = [importlib.import_module(name) for name in libraries]
        return ", ".join(f"{module.__name__} {getattr(module, '__version__', '')}".strip() for module in modules)

    def volume() -> str:
        import os
        import uuid

        file = Path(folder) / f"worker-{uuid.uuid4().hex}"
        file.write_text("written in a worker\n")
        text = file.read_text()
        file.unlink()
        return f"{len(text)} bytes written and read by process {os.getpid()}"

    return {"imports": imports, "volume": volume}


def _network(receiver: str) -> dict[str, Callable[[], str]]:
    host, _, port = receiver.rpartition(":")

    def network() -> str:
        import socket

        with socket.create_connection((host.strip("[]"), int(port)), timeout=10):
            return f"{host}:{port} takes connections"

    return {"network": network}


def _parsed(text: str) -> Report:
    report: dict[str, Any] = json.loads(text)
    if not report:
        raise FraudlakeError("the worker gave no report")
    return {name: (bool(is_answered), str(answer)) for name, (is_answered, answer) in report.items()}
