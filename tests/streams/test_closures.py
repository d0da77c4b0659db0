"""Closures: what streams send to tasks by pickling does not grow with the rows, keys and verdicts of a lake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.lake import Lake
from fraudlake.lake.definition import Change
from fraudlake.model import training
from fraudlake.streams import detect, score, stream
from tests.detection.test_live_rules import BUSY, DEAR, rule
from tests.streams.test_entity_features import ADDED, COLUMNS, ENTITIES, FIRST, add, decide, transactions

pytestmark = [pytest.mark.stream, pytest.mark.long]

SLACK = 100
"""Bytes by which numbers and names of a lake's folder may differ."""


@pytest.fixture
def pickled(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of the functions and processors that are pickled, in their order."""
    sizes: list[int] = []
    frame = spark.range(1)
    methods = [(type(frame), "mapInArrow")]
    grouped = type(frame.groupBy("id"))
    methods += [(grouped, name) for name in ("applyInPandas", "applyInArrow", "transformWithStateInPandas")]

    def recording(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, function: Any, *arguments: Any, **named: Any) -> Any:
            sizes.append(len(CloudPickleSerializer().dumps(function)))
            return original(self, function, *arguments, **named)

        return call

    for owner, name in methods:
        monkeypatch.setattr(owner, name, recording(getattr(owner, name)))
    yield sizes


def of_rows(found: stream.Stream, pickled: list[int]) -> list[int]:
    pickled.clear()
    found.rows()
    return list(pickled)


def begun(lake: Callable[..., Lake], folder: str, rows: int) -> Lake:
    """A lake whose streams have processed rows, each third with a verdict."""
    given = {"columns": json.dumps(COLUMNS), "entities": json.dumps(ENTITIES), "algorithm": "logistic"}
    opened = lake(folder, buckets=2, shuffle_partitions=2, features=json.dumps(FIRST), rules=[DEAR], **given)
    add(opened, transactions(0, rows))
    assert training.train(opened).is_champion
    decide(opened, [(n, n % 2 == 0, n + 20) for n in range(0, rows, 3)])
    stream.run(opened, detect.streams(opened), "available-now")
    stream.run(opened, score.streams(opened)[:1], "available-now")
    return opened


def test_what_streams_pickle_does_not_grow_with_a_lake(lake: Callable[..., Lake], pickled: list[int]) -> None:
    sizes = []
    for folder, rows in (("small", 600), ("large", 3000)):
        opened = begun(lake, folder, rows)
        assert opened.store.count(tables.GOLD_FRAUD_PREDICTIONS) == rows
        rule_table.apply(opened, [(rule(DEAR), "live"), (rule(BUSY), "live")], "test", None)
        decide(opened, [(n, True, n + 30) for n in range(1, rows, 3)])
        warm, verdicts = detect.streams(opened)[0], score.streams(opened)[0]
        found = [*of_rows(warm, pickled), *of_rows(verdicts, pickled)]
        again = {"algorithm": "logistic", "shuffle_partitions": 2, "features": json.dumps(FIRST + ADDED[4:])}
        opened = lake(folder, change=Change("test"), **again)
        forgotten = opened.session.createDataFrame([(f"a{n}",) for n in range(rows)], "account_id STRING")
        (tiles, _), (without,) = score.streams(opened, forget=forgotten), detect.streams(opened, forget=forgotten)
        sizes.append([*found, *of_rows(tiles, pickled), *of_rows(without, pickled)])
    small, large = sizes
    assert len(small) == len(large) > 10
    assert [(one, other) for one, other in zip(small, large, strict=True) if abs(one - other) > SLACK] == []


def test_a_stream_that_forgets_accounts_writes_with_what_can_be_pickled(lake: Callable[..., Lake], spark: Any) -> None:
    opened = lake(buckets=2, shuffle_partitions=2)
    [found] = detect.streams(opened, spark.createDataFrame([("1",)], "account_id STRING"))
    assert CloudPickleSerializer().dumps(found.write)
