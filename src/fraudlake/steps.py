"""Steps: where the pure functions of the layers meet the lake's tables; each step is what one scheduled task calls."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from fraudlake import file_source, judgement, kafka, tables
from fraudlake.bronze import messages
from fraudlake.errors import FraudlakeError
from fraudlake.gold import account_daily, detector_agreement, features, model, prediction_quality, refresh
from fraudlake.kept import kept
from fraudlake.silver import alerts as silver_alerts
from fraudlake.silver import duplicates
from fraudlake.silver import transactions as silver
from fraudlake.stream import Appender, Stream

if TYPE_CHECKING:
    from datetime import date, datetime

    from pyspark.sql import DataFrame, SparkSession

    from fraudlake.lake import Lake

log = logging.getLogger(__name__)


def ingest(lake: Lake, retry_rejected: bool = False) -> list[Stream]:
    """What landed, in files or in a Kafka topic → ``bronze_transactions``, each source on a checkpoint of its own.

    Every file's fate → ``bronze_files``, ``bronze_rejected_files``.
    """
    return [_from_kafka(lake) if lake.settings.source == "kafka" else file_source.stream(lake, retry_rejected)]


def _from_kafka(lake: Lake) -> Stream:
    settings, step = lake.settings, "ingest_kafka"
    appender = Appender.of(lake.checkpoint(step))
    topic = kafka.Topic(lake.spark, settings, lake.checkpoint(step).folder)
    rows = messages.from_messages(topic.read_stream())
    # Where the stream stops at a gap, there is none to tell of.
    held = {} if settings.fail_on_data_loss else kafka.places(lake.read(tables.BRONZE_TRANSACTIONS), settings.topic)
    gaps = kafka.Gaps(settings.topic, held)

    def write(batch: DataFrame, batch_id: int) -> None:
        for gap in [] if settings.fail_on_data_loss else gaps.before(batch):
            log.warning(gap)
        appender.append(batch, tables.BRONZE_TRANSACTIONS, batch_id)

    written = lake.read(tables.BRONZE_TRANSACTIONS).where("_topic IS NOT NULL")
    return Stream(step, rows, write, writes={tables.BRONZE_TRANSACTIONS.name: written}, explain=topic.explain)


def refine(lake: Lake) -> list[Stream]:
    """``bronze_transactions`` → ``silver_transactions`` and ``silver_quarantine``.

    A micro-batch makes two commits, and may be repeated when only the first is there. Each row must then be judged as
    it was: by the same settings, against the tables as they were. So both are noted down before the first commit.
    """
    checkpoint = lake.checkpoint("refine")
    appender = Appender.of(checkpoint)

    def write(batch: DataFrame, batch_id: int) -> None:
        basis = judgement.of(checkpoint.folder / "judgement.json", batch_id, lake)
        checked = silver.checked(batch, basis.settings)
        judged = duplicates.marked(
            checked,
            duplicates.digest(batch),
            _as_of(batch.sparkSession, tables.SILVER_TRANSACTIONS, basis.silver_version),
            _as_of(batch.sparkSession, tables.SILVER_QUARANTINE, basis.quarantine_version),
        )
        # Where it holds joins, both tables need them.
        with contextlib.nullcontext() if judged is checked else kept(judged):
            appender.append(silver.valid(judged), tables.SILVER_TRANSACTIONS, batch_id)
            appender.append(silver.quarantined(judged), tables.SILVER_QUARANTINE, batch_id)

    return [
        Stream(
            "refine",
            lake.read_stream(tables.BRONZE_TRANSACTIONS),
            write,
            reads=(tables.BRONZE_TRANSACTIONS,),
            writes={tables.SILVER_TRANSACTIONS.name: lake.read(tables.SILVER_TRANSACTIONS)},
        )
    ]


def _as_of(spark: SparkSession, table: tables.Table, version: int) -> DataFrame:
    return spark.read.option("versionAsOf", version).table(table.name)


def detect(lake: Lake) -> list[Stream]:
    """``silver_transactions`` → ``silver_alerts``, through the stateful detector."""
    appender = Appender.of(lake.checkpoint("detect"))

    def write(batch: DataFrame, batch_id: int) -> None:
        appender.append(silver_alerts.alerts(batch), tables.SILVER_ALERTS, batch_id)
        appender.append(silver.quarantined_late(silver_alerts.late(batch)), tables.SILVER_QUARANTINE, batch_id)

    in_time = lake.settings.ordering == "event_time"
    transactions = lake.read_stream(tables.SILVER_TRANSACTIONS, by_time="timestamp" if in_time else None)
    return [
        Stream(
            "detect",
            silver_alerts.found(transactions, lake.settings),
            write,
            reads=(tables.SILVER_TRANSACTIONS,),
            writes={tables.SILVER_ALERTS.name: lake.read(tables.SILVER_ALERTS)},
            fixed={"buckets": lake.settings.buckets, "ordering": lake.settings.ordering},
        )
    ]


def aggregate(lake: Lake) -> list[Stream]:
    """``silver_transactions`` and ``silver_alerts`` → ``gold_account_daily`` and ``gold_detector_agreement``."""
    rules = lake.settings.active_rules

    def daily(spark: SparkSession, dates: list[date]) -> DataFrame:
        transactions = refresh.on_dates(spark.table(tables.SILVER_TRANSACTIONS.name), dates)
        return account_daily.account_daily(transactions, spark.table(tables.SILVER_ALERTS.name), rules)

    def agreement(spark: SparkSession, dates: list[date]) -> DataFrame:
        transactions = refresh.on_dates(spark.table(tables.SILVER_TRANSACTIONS.name), dates)
        return detector_agreement.detector_agreement(transactions, spark.table(tables.SILVER_ALERTS.name))

    return [
        _refreshed(lake, "account_daily", refresh.Aggregate(tables.GOLD_ACCOUNT_DAILY, account_daily.KEYS, daily)),
        _refreshed(
            lake,
            "detector_agreement",
            refresh.Aggregate(tables.GOLD_DETECTOR_AGREEMENT, detector_agreement.KEYS, agreement),
        ),
    ]


def _refreshed(lake: Lake, step: str, aggregate: refresh.Aggregate) -> Stream:
    transactions = lake.read_stream(tables.SILVER_TRANSACTIONS).select("account_id", "date")
    alerts = lake.read_stream(tables.SILVER_ALERTS).selectExpr("account_id", "to_date(timestamp) AS date")

    def write(batch: DataFrame, batch_id: int) -> None:
        refresh.refresh(batch, aggregate)

    return Stream(
        step, transactions.unionByName(alerts), write, reads=(tables.SILVER_TRANSACTIONS, tables.SILVER_ALERTS)
    )


def train(lake: Lake) -> tuple[model.Version, bool]:
    """``silver_transactions`` → a registered model; the champion, where it saw the same rows already.

    Returns:
        The model that scores from now on, and whether it is new.

    Raises:
        FraudlakeError: there is too little to learn from.
    """
    settings = lake.settings
    registry = registry_of(lake)
    with lake.exclusive("train"):
        version = str(lake.data_version(tables.SILVER_TRANSACTIONS))
        champion = registry.champion()
        if champion is not None and champion.silver_version == version:
            return champion, False
        with kept(features.of_history(lake.read(tables.SILVER_TRANSACTIONS), settings)) as history:
            split = _split(history, settings.holdout)
            fitted = model.fit(history.where(f"timestamp < TIMESTAMP'{split}'"))
            metrics = model.judge(
                model.score(history.where(f"timestamp >= TIMESTAMP'{split}'"), fitted, settings.threshold)
            )
        params = {"silver_version": version, "split": str(split), "threshold": settings.threshold}
        return registry.register(fitted, metrics, params), True


def _split(history: DataFrame, holdout: float) -> datetime:
    """Find the time behind which the latest ``holdout`` of the rows lie: by time, never at random."""
    row = history.selectExpr(f"timestamp_micros(approx_percentile(unix_micros(timestamp), {1 - holdout})) AS t").first()
    if row is None or row["t"] is None:
        raise FraudlakeError("cannot train: silver_transactions is empty; run the steps before it first")
    split: datetime = row["t"]
    return split


def score(lake: Lake) -> list[Stream]:
    """``silver_transactions`` → ``gold_fraud_predictions`` → ``gold_prediction_quality``, under the champion.

    Raises:
        FraudlakeError: there is no champion yet.
    """
    settings, registry = lake.settings, registry_of(lake)
    champion = registry.champion()
    if champion is None:
        raise FraudlakeError(f"there is no model '{settings.model_name}' to score with: run 'fraudlake train' first")
    loaded, version = registry.load(champion), champion.number
    appender = Appender.of(lake.checkpoint("score"))

    def write(batch: DataFrame, batch_id: int) -> None:
        scored = model.score(batch, loaded, settings.threshold)
        stamped = scored.selectExpr("*", f"'{version}' AS model_version", "current_timestamp() AS scored_at")
        appender.append(stamped, tables.GOLD_FRAUD_PREDICTIONS, batch_id)

    def quality(spark: SparkSession, dates: list[date]) -> DataFrame:
        predictions = refresh.on_dates(spark.table(tables.GOLD_FRAUD_PREDICTIONS.name), dates)
        return prediction_quality.prediction_quality(predictions)

    judged = refresh.Aggregate(tables.GOLD_PREDICTION_QUALITY, prediction_quality.KEYS, quality)

    def judge(batch: DataFrame, batch_id: int) -> None:
        refresh.refresh(batch, judged)

    predictions = lake.read_stream(tables.GOLD_FRAUD_PREDICTIONS).select(*prediction_quality.KEYS)
    return [
        Stream(
            "score",
            features.of_stream(lake.read_stream(tables.SILVER_TRANSACTIONS), settings),
            write,
            reads=(tables.SILVER_TRANSACTIONS,),
            writes={tables.GOLD_FRAUD_PREDICTIONS.name: lake.read(tables.GOLD_FRAUD_PREDICTIONS)},
            fixed={"buckets": settings.buckets},
        ),
        Stream("prediction_quality", predictions, judge, reads=(tables.GOLD_FRAUD_PREDICTIONS,)),
    ]


def registry_of(lake: Lake) -> model.Registry:
    """Open the lake's model registry."""
    settings = lake.settings
    return model.Registry(
        lake.tracking_uri,
        lake.registry_uri,
        settings.model_name,
        experiment=settings.experiment or settings.model_name,
        artifacts=lake.artifacts,
        scratch=lake.scratch,
    )


def optimize(lake: Lake) -> list[str]:
    """Compact each table that changed since it was last optimized, clustering those with ``zorder`` columns.

    Returns:
        The names of the tables that were rewritten.
    """
    done = []
    for table in tables.ALL:
        if lake.changed_since_optimize(table):
            clustered = f" ZORDER BY ({', '.join(table.zorder)})" if table.zorder else ""
            metrics = lake.spark.sql(f"OPTIMIZE {table.name}{clustered}").select("metrics.numFilesAdded").collect()
            if any(row["numFilesAdded"] for row in metrics):
                done.append(table.name)
    return done


def kafka_lag(lake: Lake) -> int:
    """Count the messages of the topic that bronze does not hold yet."""
    settings = lake.settings
    held = kafka.places(lake.read(tables.BRONZE_TRANSACTIONS), settings.topic)
    return kafka.Topic(lake.spark, settings, lake.checkpoint("ingest_kafka").folder).lag(held)
