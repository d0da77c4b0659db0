"""Score: transactions from silver, or straight from Kafka, become predictions under the champion."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.bronze import contract, messages
from fraudlake.errors import FraudlakeError
from fraudlake.lake.appender import Appender
from fraudlake.lake.rows import has_rows
from fraudlake.model import features, predictions, published
from fraudlake.model.registry import Registry
from fraudlake.model.training import publish
from fraudlake.silver import transactions as silver
from fraudlake.sources import kafka
from fraudlake.streams import prediction_figures
from fraudlake.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.model.published import Model

FROM_KAFKA = "score_kafka"


def streams(lake: Lake, from_topic: bool = False, forget: Collection[int] = ()) -> list[Stream]:
    """``silver_transactions`` or a topic → ``gold_fraud_predictions`` → ``gold_prediction_quality`` and drift.

    Accounts whose hashes are in ``forget`` leave the state of the stream that scores from silver.

    Raises:
        NoModelError: there is no champion yet.
        FraudlakeError: it cannot be used.
    """
    champion = _champion(lake)
    scoring = _from_kafka(lake) if from_topic else _from_silver(lake, forget)
    # Publish at the start: somebody may have moved the alias by hand.
    return [replace(scoring, before=lambda: publish(lake, champion)), prediction_figures.stream(lake)]


def _champion(lake: Lake) -> Model:
    registry = Registry.of(lake)
    champion = registry.load(registry.required_champion().number)
    champion.threshold(lake.settings.threshold)
    return champion


def _from_silver(lake: Lake, forget: Collection[int]) -> Stream:
    threshold, appender = lake.settings.threshold, Appender.of(lake, "score")
    champion = published.Champion()
    kafka_checkpoint = lake.checkpoint(FROM_KAFKA)
    # Rows that the stream from Kafka scores count only as their accounts' history here. Without such a stream no row is
    # left out, and the rows stay packed.
    not_covered = None if kafka_checkpoint.is_new else ~kafka.is_read_by_stream(kafka_checkpoint.folder)

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        rows = batch if not_covered is None else features.unpacked(batch).where(not_covered)
        score = predictions.scorer(champion.now(lake), threshold, "silver", datetime.now(UTC))
        appender.append(lake, rows, tables.GOLD_FRAUD_PREDICTIONS, batch_id, compute=score)

    return Stream(
        "score",
        lambda: features.of_stream(lake.read_stream(tables.SILVER_TRANSACTIONS), lake.settings, forget),
        write,
        reads=(tables.SILVER_TRANSACTIONS,),
        writes={tables.GOLD_FRAUD_PREDICTIONS: "scored_from = 'silver'"},
        fixed=_fixed(lake),
        persist=False,
    )


def _from_kafka(lake: Lake) -> Stream:
    settings, checkpoint = lake.settings, lake.checkpoint(FROM_KAFKA)
    if checkpoint.is_new and has_rows(_scored_from_silver(lake)):
        raise FraudlakeError(
            "score: this lake scores transactions of Kafka from silver already, and would score them twice: "
            "score without --source kafka, or use another --lake"
        )
    threshold, appender = settings.threshold, Appender.of(lake, FROM_KAFKA)
    champion = published.Champion()

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        rows = _without_duplicates(lake, features.unpacked(batch))
        score = predictions.scorer(champion.now(lake), threshold, "kafka", datetime.now(UTC))
        appender.append(lake, rows, tables.GOLD_FRAUD_PREDICTIONS, batch_id, compute=score)

    topic = kafka.Topic(lake, checkpoint)
    landed = messages.from_messages(topic.read_stream(), contract.of(settings.columns))
    transactions = silver.valid(silver.checked(landed, settings))
    return Stream(
        FROM_KAFKA,
        lambda: features.of_stream(transactions, settings),
        write,
        writes={tables.GOLD_FRAUD_PREDICTIONS: "scored_from = 'kafka'"},
        fixed=_fixed(lake),
        explain=topic.explain,
        taken=lambda first: appender.rows_since(lake, tables.GOLD_FRAUD_PREDICTIONS, first),
    )


def _fixed(lake: Lake) -> dict[str, object]:
    state = ", ".join(f"{field.name} {field.type}" for field in features.MEMORY)
    return {"buckets": lake.settings.buckets, "state": state}


def _without_duplicates(lake: Lake, batch: DataFrame) -> DataFrame:
    """Drop transactions whose producer's id came before; ids derived from the source position are unique."""
    if not has_rows(batch.where(F.col("transaction_id") != silver.derived_id("source", "position"))):
        return batch
    first = Window.partitionBy("transaction_id").orderBy("source", "position")
    firsts = batch.withColumn("_nth", F.row_number().over(first)).where("_nth = 1").drop("_nth")
    scored = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where("scored_from = 'kafka'")
    return firsts.join(scored.select("transaction_id"), on="transaction_id", how="left_anti")


def _scored_from_silver(lake: Lake) -> DataFrame:
    from_kafka = lake.read(tables.SILVER_TRANSACTIONS).where(silver.is_from_kafka())
    predicted = lake.read(tables.GOLD_FRAUD_PREDICTIONS)
    return from_kafka.join(predicted, on="transaction_id", how="left_semi")
