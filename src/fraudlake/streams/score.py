"""Score: transactions from silver, or straight from Kafka, become predictions under the champion."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake import json_text, tables
from fraudlake.bronze import contract, messages
from fraudlake.errors import FraudlakeError
from fraudlake.lake import session
from fraudlake.lake.missing_version import of_version
from fraudlake.lake.rows import has_rows
from fraudlake.model import alerts, features, predictions, published
from fraudlake.model.registry import Registry, published_champion
from fraudlake.model.training import publish
from fraudlake.rules.any_rule import ACCOUNT
from fraudlake.silver import transactions as silver
from fraudlake.sources import kafka
from fraudlake.streams import prediction_figures
from fraudlake.streams.score_alerts import ScoreAlerts
from fraudlake.streams.stream import OutdatedError, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.model.published import Model
    from fraudlake.settings import Settings
    from fraudlake.streams.stream import Write

FROM_KAFKA = "score_kafka"
_LOG = logging.getLogger(__name__)


def streams(lake: Lake, from_topic: bool = False, forget: Collection[int] = ()) -> list[Stream]:
    """``silver_transactions`` or a topic → ``gold_fraud_predictions`` → ``gold_prediction_quality`` and drift.

    Rules of the kind ``model`` raise alerts of each micro-batch's predictions. Accounts whose hashes are in ``forget``
    leave the state of the stream that scores from silver.

    Raises:
        NoModelError: there is no champion yet.
        FraudlakeError: it cannot be used.
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


def _from_silver(lake: Lake, forget: Collection[int]) -> Stream:
    raising = ScoreAlerts.of(lake, "score")
    score = _scorer(lake, "silver", raising)
    kafka_checkpoint = lake.checkpoint(FROM_KAFKA)
    # Rows that the stream from Kafka scores count only as their accounts' history here. Without such a stream no row is
    # left out, and the rows stay packed.
    not_covered = None if kafka_checkpoint.is_new else ~kafka.is_read_by_stream(kafka_checkpoint.folder)

    seen = _SeenVerdicts.of(lake, "score")

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        seen.require_latest(lake, batch_id)
        raising.require_current(lake, batch_id)
        rows = batch if not_covered is None else features.unpacked(batch, lake.settings).where(not_covered)
        score(lake, rows, batch_id)

    def rows() -> DataFrame:
        silver_rows = lake.read_stream(tables.SILVER_TRANSACTIONS)
        warm = _tiles_now(lake) if forget else _warm(lake, "score", lambda done: _tiles_of_silver(lake, done))
        return features.of_stream(silver_rows, lake.settings, forget, warm, seen.packed(lake), _tiled(lake, "score"))

    def before() -> None:
        seen.note(lake)
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
        before=before,
        renewed=seen.renewed(lake, rebuilt),
    )


def _scorer(lake: Lake, scored_from: str, raising: ScoreAlerts) -> Write:
    """Return what scores a micro-batch under the champion, and raises the alerts of its predictions."""
    threshold, champion = lake.settings.threshold, published.Champion()

    def write(lake: Lake, rows: DataFrame, batch_id: int) -> None:
        model, now = champion.now(lake), datetime.now(UTC)
        score = predictions.scorer(
            model, threshold, scored_from, now, lake.declared_features, alerts.lowest(raising.rules.evaluated, model)
        )
        table, record = tables.GOLD_FRAUD_PREDICTIONS, raising.record(model, now)
        with session.large_rows(lake.session):
            raising.appender.append(lake, rows, table, batch_id, compute=score, record=record)
        raising.raise_alerts(lake, batch_id)

    return write


def _note(lake: Lake, step: str) -> None:
    """Note in the checkpoint the features that the next micro-batch computes."""
    checkpoint, declared = lake.checkpoint(step), _declared(lake)
    if (checkpoint.features_of(checkpoint.next_batch) or "[]") != declared:
        checkpoint.note_features(checkpoint.next_batch, declared)


@dataclass(frozen=True)
class _SeenVerdicts:
    """The verdicts that features of fraud see until the stream is rebuilt."""

    step: str
    pending: int | None
    """The micro-batch that is repeated: it sees what it saw before."""
    version: int | None
    """That of ``silver_verdicts``; None: no feature sees labels."""

    @classmethod
    def of(cls, lake: Lake, step: str) -> _SeenVerdicts:
        checkpoint = lake.checkpoint(step)
        pending = checkpoint.pending_batch()
        if not features.see_labels(lake.settings):
            return cls(step, pending, None)
        noted = None if pending is None else checkpoint.verdicts_of(pending)
        return cls(step, pending, lake.version(tables.SILVER_VERDICTS) if noted is None else noted)

    def note(self, lake: Lake) -> None:
        """Note the version in the checkpoint, for the next micro-batch."""
        checkpoint = lake.checkpoint(self.step)
        if self.version is not None and checkpoint.verdicts_of(checkpoint.next_batch) != self.version:
            checkpoint.note_verdicts(checkpoint.next_batch, self.version)

    def require_latest(self, lake: Lake, batch_id: int) -> None:
        """Have the stream rebuilt if there are other verdicts now."""
        if self.version is None or batch_id == self.pending:
            return
        if lake.version(tables.SILVER_VERDICTS) != self.version:
            raise OutdatedError

    def renewed(self, lake: Lake, rebuilt: Callable[[], Stream]) -> Callable[[], Stream]:
        """Return a function that rebuilds the stream with the latest verdicts."""

        def renewed() -> Stream:
            if self.version is not None:
                replace(self, version=lake.version(tables.SILVER_VERDICTS)).note(lake)
            return rebuilt()

        return renewed

    def packed(self, lake: Lake) -> features.Verdicts | None:
        """Return the verdicts that windows of later transactions may have."""
        silver_table, verdicts = tables.SILVER_TRANSACTIONS, tables.SILVER_VERDICTS
        if self.version is None or not lake.has_rows(verdicts):
            return None
        checkpoint = lake.checkpoint(self.step)
        read = checkpoint.version_read(checkpoint.next_batch - 1, lake.identity(silver_table))
        newest = None if read is None else of_version(lake, silver_table, read, silver.newest)
        rows = lake.read(silver_table)
        return of_version(
            lake, verdicts, self.version, lambda given: features.verdicts_of(rows, given, lake.settings, newest)
        )


def _warm(lake: Lake, step: str, tiles_of: Callable[[int], dict[int, bytes]]) -> dict[int, bytes] | None:
    """Return the tiles of features that a stream has not computed yet, as if it always had; None: nothing changes.

    ``tiles_of`` computes them from the rows that the stream had read after a micro-batch.
    """
    checkpoint = lake.checkpoint(step)
    done = checkpoint.next_batch - 1
    if done < 0 or (checkpoint.features_of(done) or "[]") == _declared(lake):
        return None
    return tiles_of(done) if lake.settings.features else {}


def _tiles_of_silver(lake: Lake, done: int) -> dict[int, bytes]:
    """Return the tiles of the rows of silver that the stream has read; none if they are gone."""
    table = tables.SILVER_TRANSACTIONS
    version = lake.checkpoint("score").version_read(done, lake.identity(table))
    if version is None:
        return {}
    tiles = of_version(lake, table, version, lambda rows: features.tiles_of(rows, lake.settings))
    if tiles is None:
        _LOG.warning("score: version %s of %s is gone: new features begin with the next rows", version, table.name)
    return tiles or {}


def _tiled(lake: Lake, step: str) -> set[str]:
    """Return the entities of all features that a stream has ever computed."""
    noted = (json.loads(declared) for declared in lake.checkpoint(step).all_features)
    return {feature.get("entity", ACCOUNT) for declared in noted for feature in declared}


def _tiles_now(lake: Lake) -> dict[int, bytes] | None:
    """Return the tiles of the rows that silver has now; None: no feature is declared."""
    if not lake.settings.features:
        return None
    return features.tiles_of(lake.read(tables.SILVER_TRANSACTIONS), lake.settings)


def _declared(lake: Lake) -> str:
    return json_text.dumps([feature.model_dump(mode="json") for feature in lake.settings.features])


def _from_kafka(lake: Lake) -> Stream:
    settings, checkpoint = lake.settings, lake.checkpoint(FROM_KAFKA)
    if checkpoint.is_new and has_rows(_scored_from_silver(lake)):
        raise FraudlakeError(
            "score: this lake scores transactions of Kafka from silver already, and would score them twice: "
            "score without --source kafka, or use another --lake"
        )
    raising = ScoreAlerts.of(lake, FROM_KAFKA)
    score = _scorer(lake, "kafka", raising)

    seen = _SeenVerdicts.of(lake, FROM_KAFKA)

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        seen.require_latest(lake, batch_id)
        raising.require_current(lake, batch_id)
        score(lake, _without_duplicates(lake, features.unpacked(batch, lake.settings)), batch_id)

    def before() -> None:
        seen.note(lake)
        raising.note(lake)

    def rebuilt() -> Stream:
        raising.note_latest(lake)
        return _from_kafka(lake)

    topic = kafka.Topic(lake, checkpoint)
    transactions = _of_messages(topic.read_stream(), settings)

    def rows() -> DataFrame:
        warm = _warm(lake, FROM_KAFKA, lambda done: _tiles_of_topic(lake, topic, done))
        tiled = _tiled(lake, FROM_KAFKA)
        return features.of_stream(transactions, settings, warm=warm, verdicts=seen.packed(lake), tiled=tiled)

    return Stream(
        FROM_KAFKA,
        rows,
        write,
        writes={tables.GOLD_FRAUD_PREDICTIONS: "scored_from = 'kafka'", **_alerts_of_one(lake, "score")},
        fixed=_fixed(lake),
        explain=topic.explain,
        taken=lambda first: raising.appender.rows_since(lake, tables.GOLD_FRAUD_PREDICTIONS, first),
        before=before,
        renewed=seen.renewed(lake, rebuilt),
    )


def _of_messages(landed: DataFrame, settings: Settings) -> DataFrame:
    """Return the valid transactions among messages, in the columns of silver."""
    bronze = messages.from_messages(landed, contract.of(settings.columns))
    return silver.valid(silver.checked(bronze, settings), settings.columns)


def _tiles_of_topic(lake: Lake, topic: kafka.Topic, done: int) -> dict[int, bytes]:
    """Return the tiles of the transactions that the stream has read, from silver and, if it is behind, the topic."""
    landed, later = topic.read_so_far(lake.read(tables.SILVER_TRANSACTIONS), done)
    transactions = _of_messages(later, lake.settings)
    return features.tiles_of(landed.select(*transactions.columns).unionByName(transactions), lake.settings)


def _alerts_of_one(lake: Lake, other: str) -> dict[tables.Table, str]:
    """Return the alerts that only this stream can have raised: none if the other one has begun."""
    both = (tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS)
    return dict.fromkeys(both, "kind = 'model'") if lake.checkpoint(other).is_new else {}


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
