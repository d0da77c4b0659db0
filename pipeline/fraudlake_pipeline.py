"""The lake after bronze as a declarative pipeline: the jobs' tables, through the jobs' functions, in another schema.

Lakeflow runs it in a workspace (``resources/declarative.pipeline.yml``), ``spark-pipelines`` anywhere else. It reads
the table that ``fraudlake.bronze`` names, which ``fraudlake ingest`` fills. Rules and the lake's definition come from
the pipeline's configuration (``fraudlake.rules``, ``fraudlake.columns``): code that defines tables collects no rows.
Unlike the jobs it takes a producer's own ``transaction_id`` as often as it lands.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from fraudlake import settings, tables
from fraudlake.detection import alerts, detector_stream
from fraudlake.errors import UsageError
from fraudlake.gold.aggregate import GroupAggregate
from fraudlake.gold.gold_tables import GROUPED
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.silver import transactions

spark = SparkSession.active()
BRONZE = spark.conf.get("fraudlake.bronze")
NAMES = ("rules", *settings.DEFINITION)
SETTINGS = settings.load(**{name: spark.conf.get(f"fraudlake.{name}", None) or None for name in NAMES})
PAIRS = [rule for rule in SETTINGS.rules if isinstance(rule, SmallThenLargeRule)]
LANDED = spark.readStream.option("skipChangeCommits", "true").table(BRONZE)

DECLARED = tables.with_declared(tables.BRONZE_TRANSACTIONS, SETTINGS.columns).column_names
if set(LANDED.columns) != set(DECLARED):
    different = ", ".join(sorted(set(LANDED.columns).symmetric_difference(DECLARED)))
    raise UsageError(f"fraudlake.columns: {BRONZE} differs in {different}: configure the columns that the lake has")

for rule in SETTINGS.rules:
    if rule.watched:
        raise UsageError(f"fraudlake.rules: {rule.name} watches a list, and this pipeline reads none: leave it out")

# Not inside the functions below: Spark allows nothing there that asks for a frame's columns, as mapInArrow does.
CHECKED = transactions.checked(LANDED, SETTINGS)
VALID = transactions.valid(CHECKED, SETTINGS.columns)
QUARANTINED = transactions.quarantined(CHECKED)
ALERTS = alerts.alerts(detector_stream.detector_output(VALID, SETTINGS))


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
        return aggregate.compute(days, alerted, PAIRS)


for each in GROUPED:
    _view(each)
