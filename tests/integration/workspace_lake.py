"""Run by test_workspace_lake.py in a process of its own: a lake in a schema, over a local Spark Connect session.

usage: workspace_lake.py FOLDER; FOLDER/landing has landed, FOLDER/checkpoints is the volume. Takes the files, ingests
once more, and prints what the tables then hold as JSON. Only Auto Loader itself is not there: Spark's own parquet
stream, with the same options, stands in for it, and a listing of the folder for its list of files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fraudlake import steps, stream, tables
from fraudlake.bronze import autoloader, landing
from fraudlake.lake import Lake, session
from fraudlake.lake.workspace import WorkspaceLake
from fraudlake.settings import Settings
from fraudlake.status import status
from fraudlake.stream import Stream

folder = Path(sys.argv[1])
os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.remote("local[2]")
for name, value in session.configuration(Settings(lake=folder, shuffle_partitions=2)).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sql(f"CREATE DATABASE fraud LOCATION '{folder}/tables'")


def parquet_stream(spark: SparkSession, folder: str, settings: Settings, schema_location: str) -> DataFrame:
    chosen = autoloader.options(settings, schema_location)
    known = {name: value for name, value in chosen.items() if not name.startswith("cloudFiles.")}
    files = spark.readStream.schema(autoloader.SCHEMA_HINTS).options(**known).parquet(folder)
    rescued = F.lit(None).cast("string").alias("_rescued_data")
    return autoloader.transactions(files.select("*", rescued, "_metadata"), folder, settings.landing_timezone)


def listed(lake: WorkspaceLake, step: str) -> Iterator[str]:
    return (file.path for file in landing.files(lake.landing))


autoloader.read_stream = parquet_stream
WorkspaceLake.files_listed_by = listed  # type: ignore[method-assign]

settings = Settings(
    catalog="spark_catalog",
    schema_name="fraud",
    landing=str(folder / "landing"),
    checkpoints=str(folder / "checkpoints"),
    shuffle_partitions=2,
    buckets=2,
)


def take(lake: Lake, one: Stream) -> None:
    for attempt in range(5):
        try:
            stream.run(lake, [one], "available-now")
            return
        except PySparkException as error:
            # Spark gives the process of a stream's micro-batches ten seconds to start: a busy machine needs more.
            if "failed to connect back" not in str(error) or attempt == 4:
                raise


lake = Lake(settings, spark)
for step in (steps.ingest, steps.refine, steps.detect, steps.aggregate):
    take(lake, step(lake)[0])
told: dict[str, Any] = {"session": type(spark).__module__, "status": status(lake).as_dict()}
take(lake, steps.ingest(lake)[0])
told["bronze_after_another_run"] = lake.read(tables.BRONZE_TRANSACTIONS).count()
daily = spark.table("spark_catalog.fraud.gold_account_daily").orderBy("account_id").collect()
told["daily"] = [[row["account_id"], row["transactions"], row["alerts"]] for row in daily]
alerts = spark.table("spark_catalog.fraud.silver_alerts").orderBy("timestamp").collect()
told["alerts"] = [row["account_id"] for row in alerts]
rejected = spark.table("spark_catalog.fraud.bronze_rejected_files").orderBy("path").collect()
told["rejected"] = [[Path(row["path"]).name, row["error"]] for row in rejected]
accepted = spark.table("spark_catalog.fraud.bronze_files").where("status = 'accepted'").collect()
told["accepted"] = [[row["_source_file"], row["rows"]] for row in accepted]
print(json.dumps(told, default=str))
spark.stop()
