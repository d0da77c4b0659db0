"""A lake that is open in Spark: rows are inserted and queried as in the other stores."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fraudlake.lake.spark_store import SparkStore
from fraudlake.lake.store import Snapshot
from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake.text.sql_text import one_of

pytestmark = pytest.mark.stream


def test_all_events_are_inserted_or_none_if_the_number_of_one_is_there(lake: Any) -> None:
    store = SparkStore(lake())
    store.insert_all(SILVER_REVIEW_EVENTS, pa.table({"number": [3, 4]}), "number")
    store.insert_all(SILVER_REVIEW_EVENTS, pa.table({"number": [4, 5]}), "number")

    written = store.query("SELECT number FROM silver_review_events ORDER BY number", SILVER_REVIEW_EVENTS)
    assert written["number"].to_pylist() == [3, 4]


def test_spark_joins_given_rows_with_a_version_as_delta_rs_does(lake: Any) -> None:
    opened = lake()
    for number in (3, 4):
        opened.store.append(SILVER_REVIEW_EVENTS, pa.table({"number": [number]}))
    version = Snapshot(SILVER_REVIEW_EVENTS, opened.store.version(SILVER_REVIEW_EVENTS) - 1)
    statement = f"SELECT g.name FROM given g JOIN {version.name} e ON g.number = e.number"
    given = pa.table({"number": [3, 4], "name": ["earlier", "later"]})
    for store in (opened.store, SparkStore(opened)):
        assert store.query(statement, version, given=given)["name"].to_pylist() == ["earlier"]
        assert store.count(version) == 1


def test_spark_finds_one_of_very_many_numbers(lake: Any) -> None:
    store = SparkStore(lake())
    store.insert_all(SILVER_REVIEW_EVENTS, pa.table({"number": [3, 4, 20_000]}), "number")
    many = one_of("number", [4, *range(10_000, 16_000)])
    for condition, expected in ((many, [4]), (f"NOT ({many}) OR number = 4", [3, 4, 20_000])):
        statement = f"SELECT number FROM {SILVER_REVIEW_EVENTS.name} WHERE {condition} ORDER BY number"
        assert store.query(statement, SILVER_REVIEW_EVENTS)["number"].to_pylist() == expected
