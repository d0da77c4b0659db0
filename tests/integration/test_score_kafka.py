"""Scores straight from a topic of a real broker: through the same rules, and no transaction twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake.definition import Change
from fraudlake.model import training
from fraudlake.streams import ingest, refine, score, stream
from tests.traffic import add_to_silver, traffic

from .broker import Broker

pytestmark = [pytest.mark.stream, pytest.mark.long]


def produce(broker: Broker, topic: str, numbers: range) -> None:
    """One message in ten breaks a rule of silver; two have one id."""
    for number in numbers:
        fields = {"dt": 1_772_841_600_000 + number, "accountId": "7", "amount": number % 10, "alert": False}
        fields["terminal"] = "T"
        if number in (18, 19):
            fields["transaction_id"] = "sent twice"
        broker.produce(topic, [("7", json.dumps(fields).encode(), None)])


def test_what_is_scored_from_the_topic_is_not_scored_again_from_silver(
    broker: Broker, lake: Any, tmp_path: Path
) -> None:
    broker.create_topic("scored", partitions=1)
    produce(broker, "scored", range(20))
    given = {"topic": "scored", "algorithm": "logistic", "buckets": 2, "model_name": "main.fraud.model"}
    given |= {"columns": {"terminal": "string"}, "entities": {"terminal": "terminal"}}
    from_kafka = lake(
        source="kafka", bootstrap_servers=broker.bootstrap_servers, starting_offsets='{"scored": {"0": 10}}', **given
    )
    everything = lake(source="kafka", bootstrap_servers=broker.bootstrap_servers, **given)
    for step in (ingest.streams, refine.streams):
        stream.run(everything, step(everything), "available-now")
    from_silver = lake(**given)
    add_to_silver(from_silver, traffic(), tmp_path)
    training.train(from_silver)

    stream.run(from_kafka, score.streams(from_kafka, from_topic=True)[:1], "available-now")
    assert from_kafka.store.count(tables.GOLD_FRAUD_PREDICTIONS) == 8
    stream.run(from_silver, score.streams(from_silver)[:1], "available-now")
    rows = from_silver.spark.sql(
        "SELECT scored_from, count(*), count(DISTINCT transaction_id) FROM gold_fraud_predictions "
        "WHERE account_id = '7' AND date = '2026-03-07' GROUP BY scored_from ORDER BY scored_from"
    )
    assert [tuple(row) for row in rows.collect()] == [("kafka", 8, 8), ("silver", 9, 9)]
    ids = from_silver.spark.sql(
        "SELECT count(*) FROM silver_transactions WHERE transaction_id IN (SELECT transaction_id FROM "
        "gold_fraud_predictions WHERE scored_from = 'kafka')"
    )
    assert ids.collect()[0][0] == 8

    # A new feature starts warm from silver, and from the messages that silver does not have yet.
    produce(broker, "scored", range(20, 23))
    stream.run(from_kafka, score.streams(from_kafka, from_topic=True)[:1], "available-now")
    new = [
        {"name": "at_terminal", "entity": "terminal", "aggregate": "count", "window": "30 days"},
        {"name": "spent", "aggregate": "sum", "column": "amount", "window": "30 days"},
    ]
    of_topic = {"source": "kafka", "bootstrap_servers": broker.bootstrap_servers}
    with_features = lake(change=Change("test"), features=json.dumps(new), **of_topic, **given)
    produce(broker, "scored", range(23, 25))
    stream.run(with_features, score.streams(with_features, from_topic=True)[:1], "available-now")
    rows = with_features.store.query(
        f"SELECT at_terminal, spent FROM {tables.GOLD_FRAUD_PREDICTIONS.name} WHERE at_terminal IS NOT NULL "
        "ORDER BY timestamp",
        tables.GOLD_FRAUD_PREDICTIONS,
    )
    assert [(row["at_terminal"], row["spent"]) for row in rows.to_pylist()] == [(11, 48), (12, 51)]

    # Another lake that scored them from silver already refuses to begin.
    from_kafka.checkpoint("score_kafka").folder.rename(tmp_path / "put aside")
    from_silver.spark.sql("DELETE FROM gold_fraud_predictions WHERE scored_from = 'kafka'")
    with pytest.raises(FraudlakeError, match="scores transactions of Kafka from silver already"):
        score.streams(from_kafka, from_topic=True)
