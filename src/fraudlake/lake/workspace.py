"""The lake in a Databricks workspace: tables of a Unity Catalog schema, files and checkpoints in its volumes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from fraudlake import secret, tables
from fraudlake.bronze import autoloader, transactions
from fraudlake.bronze.landing import File
from fraudlake.checkpoint import Checkpoint
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import session
from fraudlake.lake.lake import Lake, layout
from fraudlake.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_FILE = "path STRING, source STRING, size BIGINT, modified BIGINT"
_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_SESSION = session.EVERYWHERE | {
    # The stateful steps need it (Databricks documentation, "Configure RocksDB state store").
    _STATE_STORE: "com.databricks.sql.streaming.state.RocksDBStateStoreProvider",
}


class WorkspaceLake(Lake):
    """A lake in ``catalog.schema``. Only what Spark Connect offers is used: it works on serverless compute too.

    Raises:
        UsageError: Spark is not installed, or the landing folder is not a path of a volume.
        FraudlakeError: the catalog or the schema does not exist, or may not be used.
    """

    def __init__(self, settings: Settings, spark: SparkSession | None = None) -> None:
        """Open the lake that the settings name, in this session or in the one that the compute offers."""
        for setting, path in (("landing", settings.landing_path), ("checkpoints", str(settings.checkpoints_path))):
            if not path.startswith("/"):
                raise UsageError(f"--{setting} {path}: in a workspace it must be a folder in a volume: /Volumes/…")
        self.settings = settings if settings.source == "files" else secret.with_kafka_options(settings)
        self.name = f"{settings.catalog}.{settings.schema_name}"
        self.log = "the log of this compute"
        self.replays = settings.checkpoints_path / "replays"
        self.spark = spark or _session()
        self._use()
        for table in tables.ALL:
            # Who only reads may not create, not even what is there.
            if not self.spark.catalog.tableExists(table.name):
                self.spark.sql(f"CREATE TABLE IF NOT EXISTS {table.name} {layout(table, self.settings.clustering)}")

    def _use(self) -> None:
        from pyspark.errors import PySparkException

        for name, value in _SESSION.items():
            # Serverless compute lets few settings be seen or changed, and has what is needed as its default.
            with contextlib.suppress(PySparkException):
                if name != _STATE_STORE or "RocksDB" not in str(self.spark.conf.get(name)):
                    self.spark.conf.set(name, value)
        try:
            self.spark.catalog.setCurrentCatalog(str(self.settings.catalog))
            self.spark.catalog.setCurrentDatabase(str(self.settings.schema_name))
        except PySparkException as error:
            raise FraudlakeError(
                f"cannot use {self.name} ({str(error).splitlines()[0][:200]}): "
                "'fraudlake workspace check' tells what is missing"
            ) from None

    @property
    def landing(self) -> str:
        """Folder in which Flink's files land."""
        return os.path.normpath(self.settings.landing_path)

    @property
    def tracking_uri(self) -> str:
        """The workspace's MLflow."""
        return "databricks"

    @property
    def registry_uri(self) -> str:
        """Unity Catalog's registry of models."""
        return "databricks-uc"

    @property
    def scratch(self) -> str:
        """A folder in the volume of the checkpoints."""
        return str(self.checkpoints / "mlflow")

    def checkpoint(self, step: str) -> Checkpoint:
        """Return a stream's checkpoint.

        Raises:
            FraudlakeError: the volume is not there, or this machine does not see it.
        """
        if not self.checkpoints.is_dir():
            raise FraudlakeError(
                f"the folder of the checkpoints {self.checkpoints} is not there: deploy the bundle, which makes its "
                "volume; outside the workspace no volume is seen: start the job with 'fraudlake workspace run'"
            )
        return super().checkpoint(step)

    def write(self, rows: pa.Table, table: tables.Table, mode: Literal["append", "overwrite"]) -> None:
        """Append rows to a table, or put them in the place of its rows; in one commit."""
        frame = self.spark.createDataFrame(rows).coalesce(1)
        frame.write.format("delta").mode(mode).saveAsTable(table.name)

    def append_files(self, files: list[File]) -> None:
        """Append landed files' rows to ``bronze_transactions``, in one commit: all of each, or none of any."""
        listed = self.spark.createDataFrame([vars(file) for file in files], _FILE).repartition(len(files))
        rows = transactions.from_files(listed, self.settings.landing_timezone)
        rows.write.format("delta").mode("append").saveAsTable(tables.BRONZE_TRANSACTIONS.name)

    def version(self, table: tables.Table) -> int:
        """Return a table's version now."""
        return int(self.spark.sql(f"DESCRIBE HISTORY {table.name} LIMIT 1").collect()[0]["version"])

    def landed(self) -> DataFrame:
        """Return the rows of landed files as Auto Loader streams them, in the columns of ``bronze_transactions``.

        Raises:
            UsageError: the folder does not exist.
        """
        if not Path(self.landing).is_dir():
            raise UsageError(
                f"landing folder {self.landing} does not exist: make the volume, or name it with --landing"
            )
        return autoloader.read_stream(self.spark, self.landing, self.settings, str(self.checkpoint("ingest").folder))

    def files_listed_by(self, step: str) -> Iterator[str]:
        """Return the paths of all files that Auto Loader has ever found for a step, read or not."""
        checkpoint = self.checkpoint(step)
        if checkpoint.is_new:
            return
        # It takes a literal only, no parameter; the path is the operator's own.
        found = self.spark.sql(f"SELECT path FROM cloud_files_state('{checkpoint.folder}')")  # noqa: S608
        for row in found.collect():
            path = autoloader.below(self.landing, row["path"])
            # Whether a blank stands for itself or as %20 is not documented.
            yield path if Path(path).exists() else unquote(path)

    @contextlib.contextmanager
    def exclusive(self, step: str) -> Iterator[None]:
        """Hold nothing: there is no lock that one cluster takes and another sees.

        The bundle's jobs run once at a time (``max_concurrent_runs: 1``). Where two runs meet all the same, Spark lets
        only one of them commit a micro-batch to a checkpoint, and Delta takes each micro-batch once.
        """
        yield


def _session() -> SparkSession:
    """Return Databricks Connect's session where it is installed, otherwise the runtime's."""
    try:
        from databricks.connect import DatabricksSession

        return DatabricksSession.builder.getOrCreate()  # type: ignore[no-any-return]
    except ImportError:
        pass
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        raise UsageError(
            "--catalog and --schema need the Spark of a Databricks workspace: run this in a job or a notebook there, "
            "or pip install databricks-connect"
        )
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()
