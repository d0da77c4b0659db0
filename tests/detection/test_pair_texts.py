"""The texts of small_then_large alerts, which are made a column at a time, are those of any other rule's alerts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fraudlake.detection import evidence
from fraudlake.keyed.entity_key import THE_ACCOUNT, Entity
from fraudlake.rules.compiled_rule import Alert

TERMINAL = Entity("terminal", ("terminal_id",))
DAY = 86_400_000_000
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.text('"\\/\x00\n\x7f é', min_size=1)
amounts = st.floats(0.001, 1e12) | st.floats() | st.sampled_from([0.125, 1.005, 1e16, 1e-7, 2.5])
rows = st.tuples(texts, texts, texts, st.integers(-1000 * DAY, 60_000 * DAY), amounts)


def table(given_rows: list[tuple[Any, ...]]) -> pa.Table:
    ids, accounts, terminals, times, numbers = zip(*given_rows, strict=True)
    return pa.table(
        {
            "transaction_id": ids,
            "account_id": accounts,
            "terminal_id": terminals,
            "time": pa.array(times, pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "amount": pa.array(numbers, pa.float64()),
        }
    )


@pytest.mark.parametrize("by", [THE_ACCOUNT, TERMINAL], ids=lambda by: by.name)
@given(st.lists(rows, min_size=2, max_size=6))
@example([("a", "1", "t", 0, 0.5), ("b", "1", "t", -999, 600.0)])
@example([("a", "1", "t", 0, 0.5), ("b", "1", "t", 10**14 + 999, 600.0)])
@settings(max_examples=200, deadline=None)
def test_the_texts_of_a_pair_are_those_that_any_rule_would_have(by: Entity, given_rows: list[tuple[Any, ...]]) -> None:
    transactions = table(given_rows)
    small = np.arange(len(given_rows) - 1)
    (pairs,) = evidence.described_pairs(transactions, transactions.select(by.columns), small, small + 1, by)

    gaps = [after[3] - before[3] for before, after in pairwise(given_rows)]
    seconds = [int(gap / 1000) / 1000 for gap in gaps]
    alerts = [
        Alert((number, number + 1), ("SMALL", "LARGE"), {"seconds_between": gap}) for number, gap in enumerate(seconds)
    ]
    (described,) = evidence.described(transactions, alerts, ("account_id", "amount", "timestamp"), by)
    # Two NaN differ as numbers, but not as texts.
    assert str(pairs.select(described.column_names).to_pylist()) == str(described.to_pylist())
    assert set(pairs.column_names) == set(described.column_names)


@given(st.lists(rows, min_size=2, max_size=2))
@settings(max_examples=200, deadline=None)
def test_a_report_tells_an_alert_as_the_stream_does(given_rows: list[tuple[Any, ...]]) -> None:
    transactions = table(given_rows)
    alerts = [Alert((0, 1), ("SMALL", "LARGE"), {"seconds_between": 1.5})]
    read = ("account_id", "amount", "timestamp")
    (streamed,) = evidence.described(transactions, alerts, read, THE_ACCOUNT)
    with_label = transactions.append_column("label", pa.nulls(2, pa.bool_()))
    reported = evidence.table(with_label, alerts, read, THE_ACCOUNT).to_pylist()
    assert [row["explanation"] for row in streamed.to_pylist()] == [evidence.story(row) for row in reported]
