"""Run by test_pipeline.py in a separate process: the declarative pipeline in a local Spark Connect session.

usage: pipeline_run.py FOLDER COLUMNS; the tables are FOLDER/tables/<name>, the configuration declares COLUMNS.
Spark refuses to collect rows while the tables are defined, as Lakeflow may.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import yaml
from pyspark.pipelines import cli
from pyspark.sql import DataFrame, SparkSession

from fraudlake import tables
from fraudlake.lake import session
from fraudlake.settings import Settings, load

folder = Path(sys.argv[1])
os.environ |= session.environment()
os.environ["SPARK_TESTING"] = "yes"  # the session's server takes any free port
builder = SparkSession.builder.remote("local[2]").config("spark.sql.sources.default", "delta")
for name, value in session.configuration(Settings(lake=folder, shuffle_partitions=1)).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

# The ten transactions of Flink's tutorial, and an eleventh that breaks a rule.
ROWS = """('1', 188.23D, false), ('2', 0.5D, false), ('2', 600D, true), ('3', 42D, false), ('1', 0.89D, false),
    ('1', 300D, false), ('4', 0.1D, false), ('4', 520D, true), ('3', 0.75D, false), ('3', 800D, true),
    ('5', -1D, false)"""
landed = spark.sql(f"SELECT * FROM VALUES {ROWS} AS landed(accountId, amount, alert)").toPandas()
landed["_source_row"] = range(len(landed))
place = {
    "dt": "timestamp_millis(1000 + _source_row)",
    "_source_file": "'part-0'",
    "_ingested_at": "current_timestamp()",
}
place |= {"date": "DATE'1970-01-01'"}
place |= {"kind": "'chip'"}
COLUMNS = '{"kind": "string"}'
bronze = tables.with_declared(tables.BRONZE_TRANSACTIONS, load(columns=COLUMNS).columns)
types = dict(line.strip().rstrip(",").split(" ", 1) for line in bronze.columns.strip().splitlines())
columns = [f"{place.get(n, n if n in landed else 'NULL')}::{kind} AS {n}" for n, kind in types.items()]
spark.createDataFrame(landed).selectExpr(*columns).write.saveAsTable(bronze.name)

shutil.copy(Path(__file__).parents[2] / "pipeline" / "fraudlake_pipeline.py", folder)
spec = {
    "name": "fraudlake",
    "storage": (folder / "storage").as_uri(),
    "configuration": {
        "fraudlake.bronze": bronze.name,
        "fraudlake.within": "60 seconds",
        "fraudlake.payload": '{"dt": {"from": "ts", "unit": "seconds"}}',
        "fraudlake.columns": sys.argv[2],
        "fraudlake.buckets": "2",
    },
    "libraries": [{"glob": {"include": "fraudlake_pipeline.py"}}],
}
(folder / "spark-pipeline.yml").write_text(yaml.safe_dump(spec))


def refuse(frame: DataFrame, *given: object) -> NoReturn:
    raise AssertionError("the pipeline collects rows while it defines its tables")


for frames in (DataFrame, spark.range(1).__class__):
    for name in ("collect", "first", "head", "take", "tail", "toArrow", "toLocalIterator", "toPandas"):
        setattr(frames, name, refuse)
cli.run(folder / "spark-pipeline.yml", full_refresh=[], full_refresh_all=False, refresh=[], dry=False)
