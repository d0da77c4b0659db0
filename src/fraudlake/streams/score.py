"""Score: scores transactions with the champion, from silver or directly from Kafka."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.bronze import contract, messages
from fraudlake.entity import ACCOUNT
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.features import account_features, entity_features, feature_buckets, feature_plan, lake_features
from fraudlake.lake import session
from fraudlake.lake.appender import Appender
from fraudlake.lake.missing_version import compute_at
from fraudlake.lake.rows import has_rows
from fraudlake.model import alerts, predictions, published
from fraudlake.model.champion import publish
from fraudlake.model.registry import Registry, published_champion
from fraudlake.silver import transactions as silver
from fraudlake.sources import kafka
from fraudlake.streams import prediction_figures
from fraudlake.streams.score_alerts import ScoreAlerts
from fraudlake.streams.stream import OutdatedError, Stream, advice
from fraudlake.text import json_text
from fraudlake.values import BASE_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.model.published import Model
    from fraudlake.settings import Settings
    from fraudlake.streams.stream import Write

FROM_KAFKA = "score_kafka"
_FEW = 100_000
"""Number of verdicts up to which they are broadcast, so that the join with their transactions needs no exchange."""
_LOG = logging.getLogger(__name__)


def streams(lake: Lake, from_topic: bool = False, forget: DataFrame | None = None) -> list[Stream]:
    """``silver_transactions`` or a topic → ``gold_fraud_predictions`` → ``gold_prediction_quality`` and drift.

    Rules of the kind ``model`` raise alerts of each micro-batch's predictions. Accounts (``account_id``) in
    ``forget`` leave the state of the stream that scores from silver.

    Raises:
        NoModelError: there is no champion yet.
        FraudlakeError: the champion cannot be used.
    """
    champion = _champion(lake)
    scoring = _from_kafka(lake) if from_topic else _from_silver(lake, forget)

    # Publish at the start: somebody may have moved the alias by hand.
    def before() -> None:
        publish(lake, champion)
        _note(lake, scoring.step)
        scoring.before()

    return [replace(scoring, before=before), prediction_figures.stream(lake)]


def _champion(lake: Lake) -> Model:
    champion = published_champion(lake)
    if champion is None:
        registry = Registry.of(lake)
        champion = registry.load(registry.required_champion().number)
    champion.threshold(lake.settings.threshold)
    return champion


def _from_silver(lake: Lake, forget: DataFrame | None) -> Stream:
    raising = ScoreAlerts.of(lake, "score")
    score = _scorer(lake, "silver", raising)
    kafka_checkpoint = lake.checkpoint(FROM_KAFKA)
    # This stream does not score the rows that the stream from Kafka scores, but needs them as history. Without that
    # stream no row is filtered out, and the rows stay packed.
    not_covered = None if kafka_checkpoint.is_new else ~kafka.is_read_by_stream(kafka_checkpoint.folder)

    seen_verdicts = _SeenVerdicts.of(lake, "score")
    first = lake.checkpoint("score").next_batch
    new_features = _new_features(lake, "score")
    changed: list[bool] = []

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        seen_verdicts.require_latest(lake, batch_id)
        _require_unchanged(changed, first, batch_id)
        raising.require_current(lake, batch_id)
        rows = batch if not_covered is None else lake_features.unpacked(batch, lake.settings).where(not_covered)
        score(lake, rows, batch_id)

    def rows() -> DataFrame:
        silver_rows = lake.read_stream(tables.SILVER_TRANSACTIONS)
        changes = _changes(lake, seen_verdicts, lambda done: _tiles_of_silver(lake, done), forget)
        changed.append(bool(changes))
        return lake_features.compute_stream(silver_rows, lake.settings, changes)

    def before() -> None:
        seen_verdicts.note(lake)
        raising.note(lake)

    def rebuilt() -> Stream:
        raising.note_latest(lake)
        return _from_silver(lake, forget)

    return Stream(
        "score",
        rows,
        write,
        reads=(tables.SILVER_TRANSACTIONS,),
        writes={tables.GOLD_FRAUD_PREDICTIONS: "scored_from = 'silver'", **_alerts_of_one(lake, FROM_KAFKA)},
        fixed=_fixed(lake),
        persist=False,
        explain=lambda failure: advice(
            failure, "feature", new_features, "'fraudlake features apply FILE' with the others"
        ),
        before=before,
        renewed=seen_verdicts.renewed(lake, rebuilt),
    )


def _new_features(lake: Lake, step: str) -> list[str]:
    """Return the names of declared features that the next micro-batch computes for the first time."""
    checkpoint = lake.checkpoint(step)
    done = checkpoint.next_batch - 1
    before = json.loads(checkpoint.notes.features_of(done) or "[]") if done >= 0 else []
    return [feature["name"] for feature in json.loads(_declared(lake)) if "name" in feature and feature not in before]


def _scorer(lake: Lake, scored_from: str, raising: ScoreAlerts) -> Write:
    """Return the function that scores a micro-batch with the champion and raises alerts of the predictions."""
    threshold = lake.settings.threshold
    champion = published.Champion()

    def write(lake: Lake, rows: DataFrame, batch_id: int) -> None:
        model = champion.now(lake)
        now = datetime.now(UTC)
        score = predictions.scorer(
            model, threshold, scored_from, now, lake.declared_features, alerts.lowest(raising.rules.evaluated, model)
        )
        table = tables.GOLD_FRAUD_PREDICTIONS
        record = raising.record(model, now)
        with session.large_rows(lake.session):
            raising.appender.append(lake, rows, table, batch_id, compute=score, record=record)
        raising.raise_alerts(lake, batch_id)

    return write


def _note(lake: Lake, step: str) -> None:
    """Note in the checkpoint the features that the next micro-batch computes."""
    checkpoint = lake.checkpoint(step)
    declared = _declared(lake)
    if (checkpoint.notes.features_of(checkpoint.next_batch) or "[]") != declared:
        checkpoint.notes.note_features(checkpoint.next_batch, declared)


@dataclass(frozen=True)
class _SeenVerdicts:
    """The version of the verdicts that features of fraud use until the stream is rebuilt."""

    step: str
    pending: int | None
    """The micro-batch that is repeated; it uses the same version as before if it has written anything."""
    version: int | None
    """The version of ``silver_verdicts``; None if no feature uses labels."""

    @classmethod
    def of(cls, lake: Lake, step: str) -> _SeenVerdicts:
        checkpoint = lake.checkpoint(step)
        pending = checkpoint.pending_batch()
        if not lake_features.see_labels(lake.settings):
            return cls(step, pending, None)
        # A micro-batch that has written nothing sees the verdicts as they are now.
        is_fixed = pending is not None and Appender.of(lake, step).commit(lake, tables.GOLD_FRAUD_PREDICTIONS, pending)
        noted = checkpoint.notes.verdicts_of(pending) if pending is not None and is_fixed else None
        return cls(step, pending, lake.store.version(tables.SILVER_VERDICTS) if noted is None else noted)

    def note(self, lake: Lake) -> None:
        """Note the version in the checkpoint, for the next micro-batch."""
        checkpoint = lake.checkpoint(self.step)
        if self.version is not None and checkpoint.notes.verdicts_of(checkpoint.next_batch) != self.version:
            checkpoint.notes.note_verdicts(checkpoint.next_batch, self.version)

    def require_latest(self, lake: Lake, batch_id: int) -> None:
        """Have the stream rebuilt if the verdicts have changed."""
        if self.version is None or batch_id == self.pending:
            return
        if lake.store.version(tables.SILVER_VERDICTS) != self.version:
            raise OutdatedError

    def renewed(self, lake: Lake, rebuilt: Callable[[], Stream]) -> Callable[[], Stream]:
        """Return a function that rebuilds the stream with the latest verdicts."""

        def renewed() -> Stream:
            if self.version is not None:
                replace(self, version=lake.store.version(tables.SILVER_VERDICTS)).note(lake)
            return rebuilt()

        return renewed

    def new(self, lake: Lake, is_whole: bool) -> DataFrame | None:
        """Return the labelled transactions that the state lacks; with ``is_whole``, all that it must have.

        Only transactions are returned that are in the windows of later ones.
        """
        if self.version is None:
            return None
        silver_table = tables.SILVER_TRANSACTIONS
        checkpoint = lake.checkpoint(self.step)
        done = checkpoint.next_batch - 1
        before = None if is_whole or done < 0 else checkpoint.notes.verdicts_of(done)
        if before == self.version or not lake.store.has_rows(tables.SILVER_VERDICTS):
            return None
        read = checkpoint.version_read(done, lake.store.identity(silver_table))
        newest = None if read is None else compute_at(lake, silver_table, read, silver.newest)
        rows = lake.read(silver_table)

        def packed(verdicts: DataFrame) -> DataFrame | None:
            number, days = _read_once(verdicts)
            few = F.broadcast(verdicts) if number <= _FEW else verdicts
            return lake_features.verdicts_of(rows, few, lake.settings, newest, days)

        return compute_at(lake, tables.SILVER_VERDICTS, self.version, lambda all_: packed(_after(lake, all_, before)))


def _read_once(verdicts: DataFrame) -> tuple[int, list[date]]:
    """Return the number of verdicts and the days of their transactions.

    It reads them now because their files may be gone, and a failure in the micro-batch would end the stream.
    """
    (row,) = verdicts.agg(F.count("decided_at").alias("number"), F.collect_set("date").alias("days")).collect()
    return row["number"], row["days"]


def _after(lake: Lake, verdicts: DataFrame, version: int | None) -> DataFrame:
    """Return the verdicts that an earlier version of the table lacks; all if that version is not known."""
    if version is None:
        return verdicts
    columns = ["transaction_id", "verdict", "decided_at"]

    def new(before: DataFrame) -> DataFrame:
        _read_once(before)
        old = before.select(columns).fillna(False, ["verdict"]).hint("merge")
        return verdicts.fillna(False, ["verdict"]).join(old, on=columns, how="left_anti")

    later = compute_at(lake, tables.SILVER_VERDICTS, version, new)
    return verdicts if later is None else later


def _require_unchanged(changed: Sequence[bool], first: int, batch_id: int) -> None:
    """Have the stream rebuilt once the micro-batch that changed its state is done.

    Raises:
        OutdatedError: that micro-batch is done.
    """
    if batch_id != first and any(changed):
        raise OutdatedError


def _changes(
    lake: Lake,
    seen_verdicts: _SeenVerdicts,
    tiles_of: Callable[[int], DataFrame | None],
    forget: DataFrame | None = None,
) -> lake_features.Changes:
    """Return the changes that give the next micro-batch the state of a stream that always computed these features.

    ``tiles_of`` computes the tiles of all rows that the stream has read up to a micro-batch.
    """
    checkpoint = lake.checkpoint(seen_verdicts.step)
    done = checkpoint.next_batch - 1
    has_features = bool(feature_plan.plans(lake.settings))
    is_new = done >= 0 and (checkpoint.notes.features_of(done) or "[]") != _declared(lake)
    has_decided = feature_buckets.DECIDED in checkpoint.state_variables
    is_new |= done >= 0 and lake_features.see_labels(lake.settings) and not has_decided
    is_whole = is_new or forget is not None
    tiled = _tiled(lake, seen_verdicts.step)
    tiles = None
    if is_whole and has_features:
        silver_table = tables.SILVER_TRANSACTIONS
        tiles = tiles_of(done) if forget is None else lake_features.tiles_of(lake.read(silver_table), lake.settings)
    retired = [feature_buckets.TILES] if tiled and not has_features else []
    if has_decided and not lake_features.see_labels(lake.settings):
        retired.append(feature_buckets.DECIDED)
    return lake_features.Changes(tiles, seen_verdicts.new(lake, is_whole), forget, is_whole, tiled, tuple(retired))


def _tiles_of_silver(lake: Lake, done: int) -> DataFrame | None:
    """Return the tiles of the rows of silver that the stream has read; None if they are gone."""
    table = tables.SILVER_TRANSACTIONS
    version = lake.checkpoint("score").version_read(done, lake.store.identity(table))
    if version is None:
        return None
    tiles = compute_at(lake, table, version, lambda rows: lake_features.tiles_of(rows, lake.settings))
    if tiles is None:
        _LOG.warning("score: version %s of %s is gone: new features begin with the next rows", version, table.name)
    return tiles


def _tiled(lake: Lake, step: str) -> set[str]:
    """Return the entities of all features that a stream has ever computed."""
    noted = (json.loads(declared) for declared in lake.checkpoint(step).notes.all_features)
    return {feature.get("entity", ACCOUNT) for declared in noted for feature in declared if "expression" not in feature}


def _declared(lake: Lake) -> str:
    declared = [feature.model_dump(mode="json") for feature in lake.settings.features]
    # The source of labels changes the tiles of fraud: they are computed again, from the rows that the stream has read.
    of_labels = [{"labels": lake.settings.labels}] if _are_chargebacks(lake) else []
    return json_text.dumps([*declared, *of_labels])


def _are_chargebacks(lake: Lake) -> bool:
    return lake.settings.are_chargebacks and lake_features.see_labels(lake.settings)


def _from_kafka(lake: Lake) -> Stream:
    settings = lake.settings
    if BASE_AMOUNT in entity_features.columns_read(settings):
        raise UsageError(
            "score: a declared feature reads base_amount, which only silver has: score without --source kafka"
        )
    checkpoint = lake.checkpoint(FROM_KAFKA)
    if checkpoint.is_new and has_rows(_scored_from_silver(lake)):
        raise FraudlakeError(
            "score: this lake scores transactions of Kafka from silver already, and would score them twice: "
            "score without --source kafka, or use another --lake"
        )
    raising = ScoreAlerts.of(lake, FROM_KAFKA)
    score = _scorer(lake, "kafka", raising)

    seen_verdicts = _SeenVerdicts.of(lake, FROM_KAFKA)
    first = checkpoint.next_batch
    changed: list[bool] = []

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        seen_verdicts.require_latest(lake, batch_id)
        _require_unchanged(changed, first, batch_id)
        raising.require_current(lake, batch_id)
        score(lake, _without_duplicates(lake, lake_features.unpacked(batch, lake.settings)), batch_id)

    def before() -> None:
        seen_verdicts.note(lake)
        raising.note(lake)

    def rebuilt() -> Stream:
        raising.note_latest(lake)
        return _from_kafka(lake)

    topic = kafka.Topic(lake, checkpoint)
    transactions = _parse(topic.read_stream(), settings)

    def rows() -> DataFrame:
        changes = _changes(lake, seen_verdicts, lambda done: _tiles_of_topic(lake, topic, done))
        changed.append(bool(changes))
        return lake_features.compute_stream(transactions, settings, changes)

    return Stream(
        FROM_KAFKA,
        rows,
        write,
        writes={tables.GOLD_FRAUD_PREDICTIONS: "scored_from = 'kafka'", **_alerts_of_one(lake, "score")},
        fixed=_fixed(lake),
        explain=topic.explain,
        count_rows=lambda first: raising.appender.rows_since(lake, tables.GOLD_FRAUD_PREDICTIONS, first),
        before=before,
        renewed=seen_verdicts.renewed(lake, rebuilt),
    )


def _parse(landed: DataFrame, settings: Settings) -> DataFrame:
    """Return the valid transactions among messages, in the columns of silver."""
    bronze = messages.from_messages(landed, contract.from_settings(settings))
    return silver.valid(silver.checked(bronze, settings), settings.columns)


def _tiles_of_topic(lake: Lake, topic: kafka.Topic, done: int) -> DataFrame:
    """Return the tiles of the transactions that the stream has read, from silver and, if silver lags, the topic."""
    landed, later = topic.read_so_far(lake.read(tables.SILVER_TRANSACTIONS), done)
    transactions = _parse(later, lake.settings)
    return lake_features.tiles_of(landed.select(*transactions.columns).unionByName(transactions), lake.settings)


def _alerts_of_one(lake: Lake, other: str) -> dict[tables.Table, str]:
    """Return the condition on alerts that only this stream can have raised: empty if the other one has begun."""
    return dict.fromkeys(tables.ALERTS, "kind = 'model'") if lake.checkpoint(other).is_new else {}


def _fixed(lake: Lake) -> dict[str, object]:
    state = ", ".join(f"{field.name} {field.type}" for field in account_features.MEMORY)
    return {"buckets": lake.settings.buckets, "state": state}


def _without_duplicates(lake: Lake, batch: DataFrame) -> DataFrame:
    """Drop transactions whose producer's id came earlier; ids derived from the source position are unique."""
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
