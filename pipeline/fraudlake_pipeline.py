"""The lake after bronze as a declarative pipeline: the jobs' tables, through the jobs' functions, in another schema.

Lakeflow runs it in a workspace (``resources/declarative.pipeline.yml``), ``spark-pipelines`` anywhere else. It reads
the table that ``fraudlake.bronze`` names, which ``fraudlake ingest`` fills, and the lake's definition in the same
schema. Unlike the jobs it takes a producer's own ``transaction_id`` as often as it lands.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from fraudlake import settings, tables
from fraudlake.detection import alerts
from fraudlake.gold import GROUPED
from fraudlake.gold.aggregate import GroupAggregate
from fraudlake.lake.definition import Recorded
from fraudlake.silver import transactions

spark = SparkSession.active()
BRONZE = spark.conf.get("fraudlake.bronze")
DEFINITION = spark.read.table(BRONZE.removesuffix(tables.BRONZE_TRANSACTIONS.name) + tables.SILVER_DEFINITION.name)
RULES = {name: spark.conf.get(f"fraudlake.{name}", None) for name in ("small_below", "large_above", "within")}
SETTINGS = settings.load(**RULES).defined(Recorded.of(row.asDict() for row in DEFINITION.collect()).values)


# Not inside the functions below: Spark allows nothing there that asks for a frame's columns, as mapInArrow does.
CHECKED = transactions.checked(spark.readStream.option("skipChangeCommits", "true").table(BRONZE), SETTINGS)
VALID = transactions.valid(CHECKED, SETTINGS.columns)
QUARANTINED = transactions.quarantined(CHECKED)
ALERTS = alerts.alerts(alerts.detector_output(VALID, SETTINGS))


@dp.table
def silver_transactions() -> DataFrame:
    """Valid rows."""
    return VALID


@dp.table
def silver_quarantine() -> DataFrame:
    """The other rows, with their reasons."""
    return QUARANTINED


@dp.table
def silver_alerts() -> DataFrame:
    """The detector's alerts on the valid rows."""
    return ALERTS


def _view(aggregate: GroupAggregate) -> None:
    @dp.materialized_view(name=aggregate.table.name, comment=aggregate.table.row)
    def view() -> DataFrame:
        days, alerted = spark.read.table("silver_transactions"), spark.read.table("silver_alerts")
        return aggregate.compute(days, alerted, SETTINGS.active_rules)


for each in GROUPED:
    _view(each)
