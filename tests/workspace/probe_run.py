"""Run by test_probe.py in a process of its own: the probe as its job runs it, in a local Spark Connect session.

usage: probe_run.py FOLDER; FOLDER/checkpoints is the volume. Prints what the command prints, then as its last line a
JSON object: what of the probe is left.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from fraudlake.cli import main
from fraudlake.lake import session
from fraudlake.settings import Settings

folder = Path(sys.argv[1])
os.environ |= {"PYSPARK_PYTHON": sys.executable, "DATABRICKS_RUNTIME_VERSION": "client.4.9", "HOME": str(folder)}
os.environ["SPARK_TESTING"] = "yes"  # the session's server takes any free port
builder = SparkSession.builder.remote("local[2]")
for name, value in session.configuration(Settings(lake=folder, shuffle_partitions=2)).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sql(f"CREATE DATABASE fraud LOCATION '{folder}/tables'")

sys.argv = ["fraudlake", "--catalog", "spark_catalog", "--schema", "fraud", "--json", "workspace", "probe"]
sys.argv += ["--checkpoints", str(folder / "checkpoints")]
try:
    main()
    code = 0
except SystemExit as end:
    code = int(str(end.code))
left = {
    "code": code,
    "tables": [row["tableName"] for row in spark.sql("SHOW TABLES IN fraud").collect()],
    "files": [str(path) for path in (folder / "checkpoints").rglob("*")],
}
print(json.dumps(left))
spark.stop()
