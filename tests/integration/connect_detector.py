"""The detector in a Spark Connect session, in event time: a workspace's process runs it for test_connect.py."""

from __future__ import annotations

from typing import Any

from fraudlake.detection import alerts, detector_stream
from fraudlake.settings import Settings

SETTINGS = Settings(ordering="event_time", max_out_of_orderness="10 seconds", buckets=2)
ROWS = [("1", 0, 0.5), ("1", 1, 600.0), ("2", 2, 0.5), ("2", 3, 20.0), ("2", 4, 600.0), ("3", 60, 20.0)]


def alert_pairs(spark: Any, folder: str) -> list[tuple[str, str]]:
    """The alerts' pairs of a stream over the rows; its tables and its checkpoint are in the folder."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.createDataFrame(
        [(f"t{i}", account, second, amount, False, "part-0", i) for i, (account, second, amount) in enumerate(ROWS)],
        "transaction_id STRING, account_id STRING, second INT, amount DOUBLE, label BOOLEAN, "
        "source STRING, position BIGINT",
    ).selectExpr("* EXCEPT (second)", "timestamp_seconds(second + 1800000000) AS timestamp").write.format("delta").save(
        f"{folder}/silver"
    )
    silver = spark.readStream.format("delta").load(f"{folder}/silver")
    query = (
        alerts.alerts(detector_stream.detector_output(silver, SETTINGS))
        .writeStream.format("delta")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/alerts")
    )
    query.awaitTermination()
    rows = spark.read.format("delta").load(f"{folder}/alerts").orderBy("timestamp").collect()
    return [tuple(part["transaction_id"] for part in row["evidence"]) for row in rows]
