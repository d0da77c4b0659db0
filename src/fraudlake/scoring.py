"""Scoring: transactions, from silver or straight from Kafka, become predictions, and those become figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake import clock, kafka, tables
from fraudlake.bronze import messages
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.gold import drift, explanations, features, model, prediction_quality, refresh
from fraudlake.gold.registry import Model, Registry
from fraudlake.rows import has_rows, kept
from fraudlake.silver import transactions as silver
from fraudlake.silver import verdicts
from fraudlake.stream import Appender, Stream
from fraudlake.training import registry_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.settings import Settings

FROM_KAFKA = "score_kafka"
_DAYS = list(prediction_quality.DAYS)


def streams(lake: Lake, from_topic: bool = False) -> list[Stream]:
    """``silver_transactions``, or the topic → ``gold_fraud_predictions`` → ``gold_prediction_quality`` and drift.

    Raises:
        FraudlakeError: there is no champion yet, or it cannot be used.
    """
    registry = registry_of(lake)
    champion = _Champion(registry)
    champion.now()
    scoring = _from_kafka if from_topic else _from_silver
    return [scoring(lake, champion), _judged(lake, registry)]


class _Champion:
    """The model that scores now. It is asked for at each micro-batch, so a new champion scores from the next one on.

    A micro-batch is one commit: repeated after a crash it is passed over where it was committed, under the version that
    scored it then, and scored as a whole by the champion of now where it was not.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._model: Model | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process, that of foreachBatch under Spark Connect, without the model: it loads its own."""
        return _Champion, (self._registry,)

    def now(self) -> Model:
        number = self._registry.required_champion().number
        if self._model is None or self._model.number != number:
            self._model = self._registry.load(number)
        return self._model


def _from_silver(lake: Lake, champion: _Champion) -> Stream:
    transactions = lake.read_stream(tables.SILVER_TRANSACTIONS)
    # What the other stream scores is only its accounts' history here.
    wanted = ~kafka.covered(lake.checkpoint(FROM_KAFKA).folder)
    scored = _scored(lake, champion, "score", transactions, "silver", lambda _, batch: batch.where(wanted))
    return replace(scored, reads=(tables.SILVER_TRANSACTIONS,))


def _from_kafka(lake: Lake, champion: _Champion) -> Stream:
    settings, checkpoint = lake.settings, lake.checkpoint(FROM_KAFKA)
    if checkpoint.is_new and has_rows(_scored_from_silver(lake)):
        raise FraudlakeError(
            "score: this lake scores transactions of Kafka from silver already, and would score them twice: "
            "score without --source kafka, or use another --lake"
        )
    topic = kafka.Topic(lake, checkpoint)
    transactions = silver.valid(silver.checked(messages.from_messages(topic.read_stream()), settings))
    return replace(_scored(lake, champion, FROM_KAFKA, transactions, "kafka", _once), explain=topic.explain)


def _once(lake: Lake, batch: DataFrame) -> DataFrame:
    """Leave out transactions whose producer's own id came before; ids that are made from the place come once."""
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


def _scored(
    lake: Lake,
    champion: _Champion,
    step: str,
    transactions: DataFrame,
    scored_from: str,
    wanted: Callable[[Lake, DataFrame], DataFrame],
) -> Stream:
    settings = lake.settings
    appender = Appender.of(lake, step)

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        with _predictions(wanted(lake, batch), champion.now(), settings, scored_from) as predictions:
            if has_rows(predictions):
                appender.append(lake, predictions, tables.GOLD_FRAUD_PREDICTIONS, batch_id)

    written = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where(F.col("scored_from") == scored_from)
    return Stream(
        step,
        features.of_stream(transactions, settings),
        write,
        writes={tables.GOLD_FRAUD_PREDICTIONS.name: written},
        fixed={"buckets": settings.buckets, "features": ", ".join(features.NAMES)},
    )


@contextmanager
def _predictions(rows: DataFrame, loaded: Model, settings: Settings, scored_from: str) -> Iterator[DataFrame]:
    """Score rows with their features, in the columns of ``gold_fraud_predictions``."""
    # Kept, because what is told of flagged rows and what of the others would each score all of them.
    with kept(model.score(rows, loaded.pipeline, settings.threshold)) as scored:
        yield explanations.explained(scored, loaded.pipeline, loaded.profile).withColumns(
            {
                "model_version": F.lit(loaded.number),
                "scored_from": F.lit(scored_from),
                "scored_at": clock.now(),
            }
        )


def backfill(lake: Lake, first: date, last: date, number: str | None = None) -> tuple[str, int]:
    """Score the transactions of a range of dates (UTC, both included) under one version, by default the champion.

    Their features are computed from the whole history. A prediction of that version that is there is replaced; those
    of other versions stay beside it. So it can be repeated.

    Returns:
        The version and the number of predictions.

    Raises:
        UsageError: the range is empty.
        FraudlakeError: there is no such version, or it cannot be used.
    """
    if last < first:
        raise UsageError(f"--to {last} is before --from {first}")
    settings, registry = lake.settings, registry_of(lake)
    loaded = registry.load(number or registry.required_champion().number)
    with lake.exclusive("backfill"):
        known = lake.read(tables.SILVER_TRANSACTIONS).where(F.col("date") <= F.lit(last))
        with kept(features.of_history(known, settings).where(F.col("date") >= F.lit(first))) as rows:
            dates = [row["date"] for row in rows.select("date").distinct().collect()]
            if dates:
                with _predictions(rows, loaded, settings, "backfill") as scored:
                    refresh.merge(lake, scored, tables.GOLD_FRAUD_PREDICTIONS, ("transaction_id", *_DAYS), dates)
                days = rows.select("date", F.lit(loaded.number).alias("model_version")).distinct()
                _judge(lake, days, registry)
            return loaded.number, rows.count()


def _judged(lake: Lake, registry: Registry) -> Stream:
    """Judge the days that got predictions or verdicts anew."""
    predicted = lake.read_stream(tables.GOLD_FRAUD_PREDICTIONS).select(*_DAYS)
    decided = lake.read_stream(tables.SILVER_VERDICTS).selectExpr("date", "CAST(NULL AS STRING) AS model_version")

    def judge(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        named = batch.where("model_version IS NOT NULL").distinct()
        decided_on = batch.where("model_version IS NULL").select("date").distinct()
        predictions = lake.read(tables.GOLD_FRAUD_PREDICTIONS).select(*_DAYS)
        days = named.union(predictions.join(decided_on, on="date", how="left_semi").distinct()).distinct()
        _judge(lake, days, registry)

    return Stream(
        "prediction_quality",
        predicted.unionByName(decided),
        judge,
        reads=(tables.GOLD_FRAUD_PREDICTIONS, tables.SILVER_VERDICTS),
    )


def _judge(lake: Lake, days: DataFrame, registry: Registry) -> None:
    def predictions(lake: Lake, dates: list[date]) -> DataFrame:
        return refresh.on_dates(lake.read(tables.GOLD_FRAUD_PREDICTIONS), dates)

    def quality(lake: Lake, dates: list[date]) -> DataFrame:
        decided = verdicts.latest(refresh.on_dates(lake.read(tables.SILVER_VERDICTS), dates))
        return prediction_quality.prediction_quality(predictions(lake, dates), decided)

    def moved(lake: Lake, dates: list[date]) -> DataFrame:
        profiles = {number: registry.load(number).profile for number in versions}
        found = drift.drift(predictions(lake, dates), profiles)
        return lake.spark.createDataFrame(found, tables.GOLD_FEATURE_DRIFT.columns)

    versions = [row["model_version"] for row in days.select("model_version").distinct().collect()]
    judges = days.withColumn("judged_by", F.explode(F.array(*map(F.lit, prediction_quality.JUDGES))))
    refresh.refresh(lake, judges, refresh.Aggregate(tables.GOLD_PREDICTION_QUALITY, prediction_quality.KEYS, quality))
    named = days.withColumn("feature", F.explode(F.array(*map(F.lit, drift.MEASURED))))
    refresh.refresh(lake, named, refresh.Aggregate(tables.GOLD_FEATURE_DRIFT, (*_DAYS, "feature"), moved))
