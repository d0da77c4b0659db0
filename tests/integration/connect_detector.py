"""Run by test_connect.py in a process of its own: the detector in a local Spark Connect session.

usage: connect_detector.py FOLDER; prints the alerts' pairs as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from fraudlake.detection import alerts
from fraudlake.lake import session
from fraudlake.settings import Settings

folder = Path(sys.argv[1])
settings = Settings(lake=folder, ordering="event_time", max_out_of_orderness="10 seconds")
os.environ |= session.environment()
builder = SparkSession.builder.remote("local[2]")
for name, value in session.configuration(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

ROWS = [("1", 0, 0.5), ("1", 1, 600.0), ("2", 2, 0.5), ("2", 3, 20.0), ("2", 4, 600.0), ("3", 60, 20.0)]
spark.createDataFrame(
    [(f"t{i}", account, second, amount, False, "part-0", i) for i, (account, second, amount) in enumerate(ROWS)],
    "transaction_id STRING, account_id STRING, second INT, amount DOUBLE, label BOOLEAN, "
    "source STRING, position BIGINT",
).selectExpr("* EXCEPT (second)", "timestamp_seconds(second + 1800000000) AS timestamp").write.format("delta").save(
    f"{folder}/silver"
)

silver = spark.readStream.format("delta").load(f"{folder}/silver")
alert_rows = alerts.alerts(alerts.detector_output(silver, settings))
query = (
    alert_rows.writeStream.format("delta")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{folder}/alerts")
)
query.awaitTermination()
rows = spark.read.format("delta").load(f"{folder}/alerts").orderBy("timestamp").collect()
print(json.dumps([[type(spark).__module__], *([r["small_transaction_id"], r["transaction_id"]] for r in rows)]))
spark.stop()
