"""Assumptions of the package about a workspace, each with a question that checks it there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fraudlake.errors import FraudlakeError, first_line
from fraudlake.lake import session
from fraudlake.lake.checkpoint import Checkpoint
from fraudlake.process.version import __version__
from fraudlake.sources import auto_loader, landing
from fraudlake.text.sql_text import spark_literal
from fraudlake_tools.probe import worker

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from fraudlake_tools.probe.scratch import Scratch

_PARTITIONS = "spark.sql.shuffle.partitions"
_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "com.databricks.sql.streaming.state.RocksDBStateStoreProvider"
_UNIMPORTANT_SETTING = "nothing: the compute's own value is used, which may be slower"
_PROCESSES = {"task": worker.in_a_task, "micro_batch": worker.in_a_micro_batch}


@dataclass
class Probe:
    """The state that questions share: the scratch, and the reports of Spark's Python processes."""

    scratch: Scratch
    _reports: dict[str, worker.Report | Exception] = field(default_factory=dict)

    def report(self, process: str) -> worker.Report:
        """Return the report of a process, ``task`` or ``micro_batch``. Each is asked only once, even if that fails."""
        if process not in self._reports:
            try:
                self._reports[process] = _PROCESSES[process](self.scratch)
            except Exception as error:
                self._reports[process] = error
        report = self._reports[process]
        if isinstance(report, Exception):
            raise report
        return report


@dataclass(frozen=True)
class Assumption:
    """A question to the workspace.

    ``ask`` returns the observation if the assumption holds, and raises otherwise; ``remedy`` says what to do then.
    ``matters`` is False if the package works without it.
    """

    question: str
    ask: Callable[[Probe], str] = field(repr=False)
    remedy: str
    matters: bool = True


def assumptions(receiver: str | None = None) -> Iterator[Assumption]:
    """Return all assumptions; each comes after those that it depends on.

    Args:
        receiver: ``HOST:PORT`` to which micro-batches send alerts, if any.
    """
    yield Assumption("session", _session, "run it in a job of the bundle, on serverless compute")
    yield Assumption(
        "current schema", _current_schema, "deploy the bundle, and see 'fraudlake workspace check' for what to grant"
    )
    yield Assumption(
        "Arrow tables",
        _arrow,
        "use environment_version 4 or newer, or Databricks Runtime 17.3 or newer: older ones cannot read them",
    )
    yield from _setting_assumptions()
    yield Assumption("persist", _persist, "nothing: rows that are used twice are computed twice", matters=False)
    yield from _table_assumptions()
    yield from _file_assumptions()
    yield from _task_assumptions()
    yield from _micro_batch_assumptions()
    if receiver is not None:
        yield _reported(
            f"foreachBatch: the network to {receiver}",
            "micro_batch",
            "network",
            "deliver cannot send there: allow it in the network policy, or use deliver_to=file or kafka",
        )
    yield from _stream_assumptions()
    yield Assumption(
        "MLflow",
        _mlflow,
        "train cannot register a model: grant CREATE MODEL and EXECUTE, or give its full name with --model-name",
    )


def _setting_assumptions() -> Iterator[Assumption]:
    for name, value in session.COMMON_CONFIGURATION.items():
        is_vital = name == "spark.sql.session.timeZone"
        remedy = "times would be read wrongly: set it for the compute" if is_vital else _UNIMPORTANT_SETTING
        yield Assumption(f"setting {name}", _setting(name, value), remedy, matters=is_vital)
    yield Assumption(
        f"setting {_PARTITIONS}",
        _partitions,
        "set it for the compute before the first run: otherwise the detector's state may have 200 partitions",
        matters=False,
    )
    yield Assumption(
        f"setting {_STATE_STORE}",
        _state_store,
        "set it for the compute; serverless compute uses RocksDB anyway, see 'stateful stream' below",
        matters=False,
    )


def _table_assumptions() -> Iterator[Assumption]:
    yield Assumption(
        "history of a table", _history, "no step can tell what changed in a table: report it, with this line"
    )
    yield Assumption(
        "OPTIMIZE, ZORDER", _optimize, 'the job maintain will fail: set clustering = "liquid", or leave it paused'
    )
    yield Assumption("delta.targetFileSize", _target_file_size, "the job maintain will fail: leave it paused")


def _file_assumptions() -> Iterator[Assumption]:
    yield Assumption(
        "volume of the checkpoints",
        _volume,
        "grant READ VOLUME and WRITE VOLUME on it to whom the jobs run as; see 'fraudlake workspace check'",
    )
    yield Assumption("bytes of a file", _bytes, "ingest cannot read files: grant READ VOLUME, or use source=kafka")
    yield Assumption(
        "a file that is gone",
        _missing_file,
        "ingest fails where a file is removed while it is read: keep files that landed",
    )
    yield Assumption(
        "_metadata.row_index of parquet files", _row_index, "nothing: the package numbers rows itself", matters=False
    )


def _task_assumptions() -> Iterator[Assumption]:
    yield _reported(
        "task: the wheel and its libraries",
        "task",
        "imports",
        "ingest and score need them: let the job's environment have the wheel among its dependencies",
        _starts(f"fraudlake {__version__},"),
    )
    yield _reported(
        "task: the volume of the checkpoints",
        "task",
        "volume",
        "nothing: files reach tasks as bytes that Spark has read",
        matters=False,
    )


def _micro_batch_assumptions() -> Iterator[Assumption]:
    for what, question, is_assumed, remedy in (
        (
            "its rows for each action of refine",
            "refine",
            _starts("10 rows, 10 when read again, 5 and 5 committed"),
            "the steps stop before they write: report it; a cluster (ingest_and_detect_continuous) is a remedy unless "
            "'workspace check' finds the catalog in default storage",
        ),
        ("a table by its full name", "names", _starts("10 rows"), "no step can write: report it, with this line"),
        ("views of the batch in MERGE", "merge", _starts("10 and 10"), "aggregate fails: report it, with this line"),
        ("txnAppId makes an append happen once", "append", _starts("10 rows"), "do not retry runs: report it"),
        ("a commit's metadata", "metadata", _starts("a text"), "refine cannot go on after a crash: report it"),
        (
            "the wheel and its libraries",
            "imports",
            _starts(f"fraudlake {__version__},"),
            'no step can run: let the job\'s environments have environment_version: "5"',
        ),
    ):
        yield _reported(f"foreachBatch: {what}", "micro_batch", question, remedy, is_assumed)
    for what, question, remedy in (
        ("its session", "session", "nothing: every name is given in full there"),
        ("persist", "persist", "nothing: rows that are used twice are computed twice"),
        ("the volume of the checkpoints", "volume", "nothing: no file is read or written there"),
        ("MLflow's registry", "registry", "nothing: the registry is asked before the stream starts"),
    ):
        yield _reported(f"foreachBatch: {what}", "micro_batch", question, remedy, matters=False)


def _stream_assumptions() -> Iterator[Assumption]:
    yield Assumption(
        "offset log",
        _offset_log,
        "status and optimize read it: they cannot tell what is unread, so leave maintain paused and report it",
    )
    yield Assumption(
        "stateful stream",
        _stateful,
        "detect cannot run: use environment_version 4 or newer, on a cluster Databricks Runtime 17.3 or newer",
    )
    yield Assumption("folders of the state", _state_folders, "detect stops at its second run: report it")
    yield Assumption(
        "processor of the fast lane",
        _neighbours,
        "the job realtime cannot run: leave it paused, as it is by default; the exact lane needs nothing of it",
        matters=False,
    )
    yield Assumption("Auto Loader", _auto_loader, "ingest cannot read files: see the message, or use source=kafka")
    yield Assumption(
        "cloud_files_state", _cloud_files_state, "ingest cannot tell which files Auto Loader passed over: report it"
    )
    yield Assumption(
        "Auto Loader: _metadata.row_index",
        _auto_loader_row_index,
        "nothing: Auto Loader only lists files, and the package numbers their rows",
        matters=False,
    )


def _starts(text: str) -> Callable[[str], bool]:
    return lambda answer: answer.startswith(text)


def _reported(
    question: str,
    process: str,
    name: str,
    remedy: str,
    is_assumed: Callable[[str], bool] = lambda answer: True,
    matters: bool = True,
) -> Assumption:
    """Return the assumption that a line of a worker's report answers."""

    def ask(probe: Probe) -> str:
        is_answered, answer = probe.report(process)[name]
        if not (is_answered and is_assumed(answer)):
            raise FraudlakeError(answer)
        return answer

    return Assumption(question, ask, remedy, matters)


def _session(probe: Probe) -> str:
    runtime = os.environ.get("DATABRICKS_RUNTIME_VERSION", "unknown")
    python = ".".join(str(part) for part in sys.version_info[:3])
    kind = type(probe.scratch.spark).__module__
    return f"Spark {probe.scratch.spark.version}, runtime {runtime}, Python {python}, {kind}, fraudlake {__version__}"


def _current_schema(probe: Probe) -> str:
    scratch = probe.scratch
    scratch.filled("bare")
    scratch.spark.catalog.setCurrentCatalog(str(scratch.settings.catalog))
    scratch.spark.catalog.setCurrentDatabase(str(scratch.settings.schema_name))
    return f"{scratch.spark.table(scratch.bare_name('bare')).count()} rows read by a table's bare name"


def _arrow(probe: Probe) -> str:
    import pyarrow as pa

    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    back = probe.scratch.spark.createDataFrame(rows).toArrow()
    if back.to_pydict() != rows.to_pydict():
        raise FraudlakeError(f"{rows.to_pydict()} came back as {back.to_pydict()}")
    return f"{back.num_rows} rows there and back"


def _setting(name: str, value: str) -> Callable[[Probe], str]:
    def ask(probe: Probe) -> str:
        conf = probe.scratch.spark.conf
        conf.set(name, value)
        if str(conf.get(name)) != value:
            raise FraudlakeError(f"is {conf.get(name)}, not {value}")
        return value

    return ask


def _partitions(probe: Probe) -> str:
    settings = probe.scratch.settings
    return _setting(_PARTITIONS, str(settings.shuffle_partitions or settings.buckets))(probe)


def _state_store(probe: Probe) -> str:
    provider = str(probe.scratch.spark.conf.get(_STATE_STORE))
    return provider if "RocksDB" in provider else _setting(_STATE_STORE, _ROCKSDB)(probe)


def _persist(probe: Probe) -> str:
    rows = probe.scratch.spark.range(3).persist()
    rows.count()
    rows.unpersist()
    return "persisted"


def _history(probe: Probe) -> str:
    scratch = probe.scratch
    for _ in range(2):
        table = scratch.filled("history")
    history = scratch.spark.sql(f"DESCRIBE HISTORY {table}").selectExpr(
        "version", "operation", "unix_millis(timestamp) AS timestamp", "operationParameters", "engineInfo"
    )
    newest, *_, first = sorted(history.collect(), key=lambda row: -int(row["version"]))
    oldest = first["version"]
    latest = newest["version"]
    rows = scratch.spark.read.option("versionAsOf", oldest).table(table).count()
    if (latest - oldest, rows) != (1, 10):
        raise FraudlakeError(f"versions {oldest} to {latest}, the first of {rows} rows")
    return f"version {latest}, {newest['operation']}, by {newest['engineInfo']}; older versions can be read"


def _optimize(probe: Probe) -> str:
    for _ in range(2):
        table = probe.scratch.filled("optimized")
    metrics = probe.scratch.spark.sql(f"OPTIMIZE {table} ZORDER BY (id)").select("metrics.numFilesRemoved").collect()
    return f"{metrics[0]['numFilesRemoved']} files rewritten"


def _target_file_size(probe: Probe) -> str:
    spark = probe.scratch.spark
    table = probe.scratch.filled("sized")
    name = "delta.targetFileSize"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{name}' = '524288')")
    properties = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["properties"]
    if properties.get(name) != "524288":
        raise FraudlakeError(f"the table's properties are {properties}")
    return "can be set, and DESCRIBE DETAIL shows it"


def _volume(probe: Probe) -> str:
    folder = probe.scratch.folder
    folder.mkdir()
    draft = folder / "driver.tmp"
    draft.write_text("written by the command\n")
    draft.replace(folder / "driver")
    if [path.name for path in folder.iterdir()] != ["driver"]:
        raise FraudlakeError(f"a renamed file is not alone in {folder}")
    return f"a file was written, renamed and read in {folder}"


def _parquet(probe: Probe) -> Path:
    """Write a landed file of two rows, with a space and a bracket in its name; return its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = probe.scratch.folder / "landing"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"accountId": ["1", "2"], "amount": [1.0, 2.0]}), folder / "part-0 [1].parquet")
    return folder / "part-0 [1].parquet"


def _bytes(probe: Probe) -> str:
    """Read a landed file as ``ingest`` does: by its path, which must come back as the same path."""
    file = _parquet(probe)
    reader = probe.scratch.spark.read.format("binaryFile").load([landing.literal(str(file))])
    [row] = reader.selectExpr("path", "length", "octet_length(content) AS bytes").collect()
    path = auto_loader.posix_path(str(file.parent), row["path"])
    size = file.stat().st_size
    if (path, row["length"], row["bytes"]) != (str(file), size, size):
        raise FraudlakeError(f"{file} of {size} bytes is {row['path']} with {row['bytes']} of {row['length']} bytes")
    return f"{size} bytes of {row['path']}"


def _missing_file(probe: Probe) -> str:
    """Read a file that does not exist: the failure must name it, so that ``ingest`` can skip it."""
    from pyspark.errors import AnalysisException

    path = f"{_parquet(probe)}.gone"
    reader = probe.scratch.spark.read.format("binaryFile")
    try:
        reader.load([landing.literal(path)]).collect()
    except AnalysisException as error:
        if landing.literal(path) not in str(error):
            raise FraudlakeError(f"the failure does not name it: {first_line(error)}") from error
        return "the failure names it"
    raise FraudlakeError("reading it does not fail")


def _row_index(probe: Probe) -> str:
    files = probe.scratch.spark.read.parquet(landing.literal(str(_parquet(probe)))).select("_metadata.row_index")
    return _numbered([row["row_index"] for row in files.collect()])


def _numbered(numbers: list[int | None]) -> str:
    if sorted(number for number in numbers if number is not None) != [0, 1]:
        raise FraudlakeError(f"the rows of a file are numbered {numbers}")
    return "the rows of a file are numbered 0 and 1"


def _offset_log(probe: Probe) -> str:
    """Read the offset log of a stream from a Delta table as the package does."""
    probe.report("micro_batch")
    scratch = probe.scratch
    checkpoint = Checkpoint("probe", scratch.checkpoint("micro_batch"))
    identity = str(scratch.spark.sql(f"DESCRIBE DETAIL {scratch.table('source')}").collect()[0]["id"])
    unread = checkpoint.unread_versions()
    pending = checkpoint.pending_batch()
    watermark = checkpoint.watermark_milliseconds()
    lines = (checkpoint.folder / "offsets" / "0").read_text().splitlines()
    partitions = json.loads(lines[1]).get("conf", {}).get(_PARTITIONS)
    state = f"{_PARTITIONS} {partitions!r}, watermark {watermark}, sources {unread}, micro-batch under way {pending}"
    if set(unread) != {identity} or pending is not None:
        raise FraudlakeError(f"{state}; the table's id is {identity}")
    return state


def _stateful(probe: Probe) -> str:
    """Count rows by a key over two runs of a stream: the second run must continue with the state of the first."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Sum(StatefulProcessor):  # nested, so that it is pickled by value
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._total = handle.getValueState("total", "total BIGINT")

        def handleInputRows(  # noqa: N802 - Spark's name
            self,
            key: Any,
            rows: Any,
            timerValues: Any,  # noqa: N803
        ) -> Iterator[pd.DataFrame]:
            import pandas as pd

            before = self._total.get()
            total = (before[0] if before else 0) + sum(len(frame) for frame in rows)
            self._total.update((int(total),))
            yield pd.DataFrame({"total": [int(total)]})

        def close(self) -> None:
            pass

    scratch = probe.scratch
    totals = probe.scratch.table("totals")
    for _ in range(2):
        rows = scratch.stream(scratch.filled("states")).selectExpr("id % 1 AS bucket", "id").groupBy("bucket")
        summed = rows.transformWithStateInPandas(Sum(), "total BIGINT", "Append", "None")
        scratch.run("stateful", summed.writeStream.format("delta"), totals)
    sums = sorted(row["total"] for row in scratch.spark.table(totals).collect())
    if sums != [10, 20]:
        raise FraudlakeError(f"two runs over 10 rows each gave the totals {sums}")
    return "the second run continued with the state of the first"


def _state_folders(probe: Probe) -> str:
    """Check the folders of the state as a step does before it continues a checkpoint."""
    checkpoint = Checkpoint("probe", probe.scratch.checkpoint("stateful"))
    if checkpoint.is_new:
        raise FraudlakeError("unknown: the stateful stream did not run")
    checkpoint.require({"buckets": 1}, {}, {})
    folders = [path.name for path in (checkpoint.state / "0").iterdir() if path.name.isdigit()]
    return f"{len(folders)} partitions, each with files"


def _neighbours(probe: Probe) -> str:
    """Find the neighbours of ten rows of an account with the processor of the fast lane, which has timers.

    Real-time mode itself, for which a cluster must be set up, is asked for by ``realtime`` when it starts.
    """
    from pyspark.sql import functions as F

    from fraudlake_lane import neighbours

    scratch = probe.scratch
    pairs = probe.scratch.table("neighbours")

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("delta").mode("append").saveAsTable(pairs)

    def read_pairs() -> list[tuple[int | None, int]]:
        if not scratch.spark.catalog.tableExists(pairs):
            return []
        return sorted((row["current"], row["before"]) for row in scratch.spark.table(pairs).collect())

    values = {name: F.lit(0).cast(kind) for name, kind in neighbours.ROW.items()}
    values |= {"offset": F.col("id"), "transaction_id": F.col("id").cast("string"), "amount": F.lit(1.0)}
    row = F.struct(*(value.alias(name) for name, value in values.items()))
    rows = scratch.stream(scratch.filled("fast_lane")).select(F.lit("1").alias("account_id"), row.alias("row"))
    beside = neighbours.by_processor(rows, timedelta(minutes=1), 64).select(
        F.col("current.offset").alias("current"), F.col("before.offset").alias("before")
    )
    # A stream whose processor has timers does not end by itself.
    scratch.run(
        "fast_lane", beside.writeStream.outputMode("update").foreachBatch(write), is_done=lambda: bool(read_pairs())
    )
    expected = [(0, None), *((number, number - 1) for number in range(1, 10))]
    if read_pairs() != expected:
        raise FraudlakeError(f"rows with those before them are {read_pairs()}")
    return "ten rows of an account, each with the one before it"


def _auto_loader(probe: Probe) -> str:
    """Stream the landed file as ``ingest`` does, and compare Auto Loader's listing of it with Spark's."""
    scratch = probe.scratch
    file = _parquet(probe)
    table = probe.scratch.table("landed")
    stream = auto_loader.read_stream(scratch.spark, str(file.parent), scratch.settings)
    scratch.run("auto_loader", stream.writeStream.format("delta"), table)
    columns = ("path", "unix_micros(modificationTime) AS modified", "length")
    listed = [tuple(row) for row in scratch.spark.table(table).selectExpr(*columns).collect()]
    reader = scratch.spark.read.format("binaryFile").load([landing.literal(str(file))])
    read = [tuple(row) for row in reader.selectExpr(*columns).collect()]
    if listed != read:
        raise FraudlakeError(f"it lists {listed}, where Spark reads {read}")
    return f"it lists {listed[0][0]} as Spark does"


def _cloud_files_state(probe: Probe) -> str:
    checkpoint = probe.scratch.checkpoint("auto_loader")
    if Checkpoint("probe", checkpoint).is_new:
        raise FraudlakeError("unknown: Auto Loader did not run")
    # cloud_files_state takes a literal only, no parameter.
    state = f"cloud_files_state({spark_literal(str(checkpoint))})"
    paths = probe.scratch.spark.sql(f"SELECT path FROM {state}").collect()
    if len(paths) != 1:
        raise FraudlakeError(f"{len(paths)} files, not 1")
    return str(paths[0]["path"])


def _auto_loader_row_index(probe: Probe) -> str:
    """Ask whether Auto Loader has the field. Checking its values would take another stream."""
    reader = probe.scratch.spark.readStream.format("cloudFiles").option("cloudFiles.format", "parquet")
    files = reader.schema("accountId STRING").load(str(_parquet(probe).parent)).select("_metadata.row_index")
    return f"can be selected, as {files.schema['row_index'].dataType.simpleString()}"


def _mlflow(probe: Probe) -> str:
    import mlflow

    model = probe.scratch.settings.model_name
    mlflow.set_tracking_uri("databricks")
    mlflow.set_registry_uri("databricks-uc")
    registered = mlflow.MlflowClient().get_registered_model(model)
    mlflow.search_experiments(max_results=1)
    return f"{registered.name} is registered, and experiments can be listed"
