"""A lake that is open in Spark: rows of the review are inserted as in the other stores."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake_desk.store import SparkStore

pytestmark = pytest.mark.stream


def test_all_events_are_inserted_or_none_if_the_number_of_one_is_there(lake: Any) -> None:
    store = SparkStore(lake())
    store.insert_all(SILVER_REVIEW_EVENTS, pa.table({"number": [3, 4]}), "number")
    store.insert_all(SILVER_REVIEW_EVENTS, pa.table({"number": [4, 5]}), "number")

    written = store.query("SELECT number FROM silver_review_events ORDER BY number", SILVER_REVIEW_EVENTS)
    assert written["number"].to_pylist() == [3, 4]
