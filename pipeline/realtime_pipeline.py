"""The fast lane as a declarative pipeline: from topic to topic in the real-time mode of Lakeflow, serverless too.

Lakeflow runs it in a workspace (``resources/continuous/realtime_pipeline.pipeline.yml``). Everything comes from the
pipeline's configuration, the rules too (``fraudlake.rules``): code that defines a flow collects no rows, so it cannot
read the lake's.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fraudlake import settings
from fraudlake.errors import UsageError
from fraudlake.kafka import client
from fraudlake.settings import secret
from fraudlake_lane import alerts, messages, neighbours, rules, session

spark = SparkSession.active()
NAMES = (
    *("catalog", "schema", "bootstrap_servers", "topic", "fast_alerts_topic", "kafka_secret", "realtime_batch"),
    *("rules", "payload", "columns", "shuffle_partitions"),
)
SETTINGS = secret.with_kafka_options(
    settings.load(**{name: spark.conf.get(f"fraudlake.{name}", None) or None for name in NAMES})
)
if SETTINGS.bootstrap_servers is None or SETTINGS.fast_alerts_topic is None:
    raise UsageError("the fast lane needs brokers and a topic for its alerts: deploy with --var fast_alerts_topic=NAME")
messages.require_flinks(SETTINGS)
RULES = rules.choose((rule, "live", None) for rule in SETTINGS.rules)
for name, reason in RULES.refused.items():
    print(f"{name} runs in 'fraudlake detect' only: {reason}")

# Serverless compute documents Python's functions, and not Java's methods, which the cluster's lane asks for the time.
NOW = F.udf(lambda: datetime.now(UTC), "timestamp").asNondeterministic()

dp.create_sink("fast_alerts", "kafka", {**client.options(SETTINGS), "topic": SETTINGS.fast_alerts_topic})


@dp.update_flow(
    name="realtime",
    target="fast_alerts",
    spark_conf={
        "pipelines.trigger": "RealTime",
        "pipelines.trigger.interval": f"{SETTINGS.realtime_batch.total_seconds():.0f} seconds",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(session.state_partitions(SETTINGS)),
    },
)
def realtime() -> DataFrame:
    """Alerts of the topic's transactions, from its first message on."""
    # A flow cannot be started again when a backlog has been read, so it keeps as many rows as a backlog needs.
    taken = messages.read(spark, SETTINGS)
    return alerts.events(taken, SETTINGS, RULES, neighbours.by_processor, is_catching_up=True, clock=NOW)
