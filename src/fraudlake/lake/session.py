"""The local Spark session: delta-spark on this machine's cores or a cluster's, with its output in a log file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fraudlake.errors import FraudlakeError, UsageError, first_line
from fraudlake.lake import jars, java, spark_home
from fraudlake.process import host, stop
from fraudlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
COMMON_CONFIGURATION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500000",
    # Spark checks any other limit row by row, which takes as long as writing the row (seen in Spark 4.2).
    _BATCH_BYTES: str(2**31 - 1),
}
"""Spark configuration of every session, local or in a workspace."""

JAVA_OPTIONS = (
    # A micro-batch's rows are few, large arrays: the parallel collector takes a seventh of G1's time for them.
    "-XX:+UseParallelGC",
    # Otherwise only the thread that has no memory left ends, and the command waits for its result for ever.
    "-XX:+ExitOnOutOfMemoryError",
    # Without it, Java 17 and later log a line when Arrow accesses the internals of java.nio.
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "-Duser.timezone=UTC",
)
"""Java's options."""

_FEW = "spark.fraudlake.fewRows"
FEW_ROWS = {
    _FEW: "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""The configuration of a session whose queries have few rows: a mark, no generated code and no adaptive plans."""

BRIEF_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""Java's options for a process of a few queries of few rows: the second compiler takes 40 % of its processor time.

Without it Java reserves 48 MB for compiled code, which Spark fills in two minutes (seen in Java 17).
"""

SELECTIVE_JAVA_OPTIONS = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Java's options for a process of a few queries of many rows: code must run ten times as often as by default before the
second compiler takes it. That saves a third of its time, and none of the code that counts (seen in Java 17)."""

_LARGE_BATCH = 128 << 20
"""Bytes of an Arrow batch whose rows are few and large."""
_STREAMING = "org.apache.spark.sql.execution.streaming"
_ROCKSDB = f"{_STREAMING}.state.RocksDBStateStoreProvider"
_MODES = ("spark.master", "spark.remote", "spark.api.mode", "spark.submit.deployMode")
"""The options that decide how and where Spark starts."""
_END_SECONDS = 5
"""How long Java may take to end after a signal, before it is killed: it may be archiving its classes."""
_CLUSTER_SECONDS = 10
"""How long the master of a cluster may take to answer."""
CHECKPOINT_FILES = f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's class that writes and renames the files of checkpoints."""


def start(settings: Settings, log: Path, further_java_options: Sequence[str] = ()) -> SparkSession:
    """Return this process's Spark session, starting Spark on first use; the JVM's output goes to ``log``.

    Args:
        settings: the settings.
        log: the file for the JVM's output.
        further_java_options: Java's options for what the process does.

    Raises:
        UsageError: pyspark is not installed.
        FraudlakeError: Java or the jars are missing, there is no cluster, or Spark does not start.
    """
    java.require()
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise UsageError("Spark is not installed: pip install 'fraudlake[local]'") from None
    wanted = configuration(settings, further_java_options)
    address = wanted["spark.driver.host"]
    return launch(settings.spark_master, wanted, log, {**environment(), "SPARK_LOCAL_IP": address})


def reads_few_rows(spark: SparkSession) -> bool:
    """Return whether a session has the configuration :data:`FEW_ROWS`."""
    return spark.conf.get(_FEW, None) == "true"


@contextmanager
def large_rows(spark: SparkSession) -> Iterator[None]:
    """Limit the bytes of Arrow batches for queries that are planned in the block, whose rows are few and large.

    Java has a whole batch in memory, and two copies when its buffers grow. Serverless compute has a fixed limit.
    """
    from pyspark.errors import PySparkException

    try:
        spark.conf.set(_BATCH_BYTES, str(_LARGE_BATCH))
    except PySparkException:
        yield
        return
    try:
        yield
    finally:
        spark.conf.set(_BATCH_BYTES, COMMON_CONFIGURATION[_BATCH_BYTES])


def launch(
    master: str, configuration: Mapping[str, str], log: Path, environment: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, or return the session that it has.

    Args:
        master: the master.
        configuration: Spark's configuration.
        log: the file for the JVM's output.
        environment: the environment variables that it starts with; by default those of the host.

    Raises:
        UsageError: Python does not read file names as UTF-8.
        FraudlakeError: Spark does not start, or Java does not read file names as UTF-8.
    """
    host.require_utf8()
    host.isolate()
    variables = host.environment() if environment is None else environment
    os.environ |= {name: value for name, value in variables.items() if name not in host.OF_WORKERS}

    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext, accumulators
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # Once the JVM has ended, the server of PySpark's accumulators prints a stack trace (seen in PySpark 4.2).
    accumulators.AccumulatorTCPServer.handle_error = _ignore  # type: ignore[assignment, method-assign]
    accumulators.AccumulatorUnixServer.handle_error = _ignore  # type: ignore[assignment, method-assign]
    printed_before = log.stat().st_size if log.exists() else 0
    conf = SparkConf().setAppName("fraudlake").setMaster(master).setAll([*configuration.items()])
    try:
        with _output_to(log), stop.restore_handlers(_reconnect):
            with _in_environment(variables), stop.deferred():  # Java that loses its Python while it starts does not end
                SparkContext._ensure_initialized(conf=conf)
            stop.check()
            jvm: Any = SparkContext._jvm
            _name_the_user(jvm)
            spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise FraudlakeError(f"Spark did not start ({_cause(log, printed_before, error)}): see {log}") from error
    encoding = jvm.java.lang.System.getProperty("sun.jnu.encoding")
    if encoding != "UTF-8":
        raise FraudlakeError(f"Java reads file names as {encoding}: install the locale C.UTF-8")
    return spark


@contextmanager
def _in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while Java starts: Spark's workers inherit them, this process's own programs do not."""
    before = {name: os.environ.get(name) for name in host.OF_WORKERS}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def end() -> None:
    """End Java, if this process has started one, and wait for it; its work continues until then."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        java_process: subprocess.Popen[bytes] = gateway.proc
        if java_process.stdin is not None:
            java_process.stdin.close()
        try:
            java_process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            java_process.kill()
            java_process.wait()


def _reconnect() -> None:
    """Give this thread a new connection to Java: the old one will still receive the answer to an interrupted call."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    with suppress(AttributeError):  # there is none
        del gateway._gateway_client.thread_connection.connection


def environment() -> dict[str, str]:
    """Return the environment variables that a local Spark is started with."""
    return {"SPARK_HOME": str(spark_home.folder()), **host.environment()}


def _cause(log: Path, begin: int, error: Exception) -> str:
    """Return the first line that Java printed before it ended, such as a wrong option, or the error's line."""
    if isinstance(error, OSError) or "JAVA_GATEWAY_EXITED" not in str(error):
        _, _, of_java = str(error).partition("\n: ")  # py4j first says what it has called
        return first_line(of_java or error)
    printed = log.read_bytes()[begin:].decode(errors="replace").splitlines()
    telling = (line for line in printed if "WARN" not in line and "during initialization of VM" not in line)
    return first_line("\n".join(telling)) or first_line(error)


def _name_the_user(jvm: Any) -> None:
    """Set a user name for Hadoop if the user has none; its login fails (`invalid null input: name`, seen in 3.4)."""
    if not host.has_name():
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(host.user_name()))


def _ignore(*_: object) -> None:
    pass


def configuration(settings: Settings, further_java_options: Sequence[str] = ()) -> dict[str, str]:
    """Return the Spark configuration of a local session.

    Raises:
        UsageError: the settings have another value for an option that is set here.
        FraudlakeError: there is no cluster at the master's address.
    """
    partitions = str(settings.shuffle_partitions or min(os.cpu_count() or 2, 8))
    java = (*JAVA_OPTIONS, *further_java_options)
    own = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Delta's own store checks whether a commit exists, then renames: another process's commit in between is lost.
        "spark.delta.logStore.file.impl": "fraudlake.HardLinkLogStore",
        "spark.driver.memory": settings.driver_memory,
        # A model's training rows are larger than the default of 1 GB: docs/explanation/sizing.md has the limits of all
        # data that reaches this process.
        "spark.driver.maxResultSize": "0",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The UI's history, by default of a thousand queries with their plans, fills the heap.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "10",
        # Spark renders each query's plan for its UI, even if the UI is off; the short form takes less time.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.warehouse.dir": str(settings.lake.absolute() / "tables"),
        **COMMON_CONFIGURATION,
        "spark.sql.shuffle.partitions": partitions,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # delta-rs reads the default, INT96, in nanoseconds, which overflow after 2262.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # A micro-batch needs some dozen classes of generated code. With the default of 100 the streams of a process
        # evict each other's classes, and every micro-batch compiles its own again.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # The first of two maps, which Spark fills with 65,536 groups, only costs time once there are more of them.
        "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
        # Rows are persisted only briefly: choosing a compression takes longer than computing them.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # A micro-batch has few dates: with an open file for each, Spark need not sort its rows by partition.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        # Delta reads a table's log before each commit, by default in 50 tasks, too many for tables of this size.
        "spark.databricks.delta.snapshotPartitions": "1",
        # Otherwise auto compaction merges the small files that optimize made for data skipping.
        "spark.databricks.delta.autoCompact.maxFileSize": str(settings.target_file_bytes),
        # VACUUM lists a table's folder in this many tasks; the default of 10,000 takes half a minute on few cores.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": partitions,
        # The default renames files through Hadoop's class FileContext. Without Hadoop's native library, that starts a
        # `readlink` process for every file, some dozens a micro-batch.
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.driver.extraJavaOptions": java_options(settings, *java, *spark_home.java_options()),
        **_configure_master(settings.spark_master),
    }
    return with_options(own, settings)


def _configure_master(master: str) -> dict[str, str]:
    """Return the driver's address; on a cluster also the connectors' jars and Java's options, for executors."""
    if master.startswith("local"):
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    at = urlsplit(master)
    try:
        with socket.create_connection((at.hostname, at.port), timeout=_CLUSTER_SECONDS) as connection:
            address = connection.getsockname()[0]
    except (OSError, ValueError) as error:
        reason = first_line(error)
        raise FraudlakeError(
            f"no Spark master answers at {master} ({reason}): start it, or set another spark_master"
        ) from None
    return {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.jars": ",".join(map(str, sorted(jars.folder().glob("*.jar")))),
        "spark.executor.extraJavaOptions": " ".join(JAVA_OPTIONS),
    }


def java_options(settings: Settings, *options: str) -> str:
    """Return the options of the local Spark's Java: the given ones, this machine's and the settings'."""
    of_host = (
        f"-Djava.io.tmpdir={host.temporary_programs()}",
        # Java finds neither name nor home of a user id without a name.
        f"-Duser.name={host.user_name()}",
        f"-Duser.home={host.cache_folder()}",
    )
    words = (f'"{option}"' if " " in option else option for option in (*options, *of_host))
    return " ".join((*words, settings.java_options)).strip()


def with_options(own: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Add the folder of temporary files and the options of the settings to Spark's configuration.

    Raises:
        UsageError: the settings have another value for an option that is set here.
    """
    own = {**own, "spark.local.dir": str(host.temporary()), "spark.hadoop.fs.defaultFS": "file:///"}
    option = next((name for name in settings.spark_options if name in own or name in _MODES), None)
    if option is not None:
        raise UsageError(f"spark_options: {option} cannot be set, since fraudlake decides it")
    return own | settings.spark_options


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Send the output of the JVM, which starts in the block, to ``log``: VACUUM prints on standard output."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("ab") as file:
            for number in saved:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, duplicate in saved.items():
            os.dup2(duplicate, number)
            os.close(duplicate)
