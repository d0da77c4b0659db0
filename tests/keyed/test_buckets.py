"""Packing: rows become one slice per bucket of each entity."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fraudlake.keyed import buckets
from fraudlake.keyed.buckets import ACCOUNT, Key

SCHEMA = pa.schema(
    [("account", pa.int64()), ("source", pa.dictionary(pa.int32(), pa.string())), ("position", pa.int64())]
)
TERMINAL = Key(3, "terminal")


def batch(accounts: list[int], terminals: list[int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "account": pa.array(accounts, pa.int64()),
            "source": ["a" if number % 2 else "b" for number in range(len(accounts))],
            "position": range(len(accounts)),
            "terminal": pa.array(terminals, pa.int64()),
        }
    )


def packed(rows: pa.RecordBatch, *keys: Key) -> list[tuple[int, list[tuple[int, str, int]]]]:
    """Each bucket's number and its rows, in the order in which they are packed."""
    opened = []
    for row in buckets.packed_batch(rows, SCHEMA, 4, keys).to_pylist():
        table = buckets.unpack([row["payload"]], SCHEMA)
        assert table.schema == SCHEMA
        opened.append((row["bucket"], [tuple(values.values()) for values in table.to_pylist()]))
    return opened


def test_a_bucket_has_the_rows_of_its_accounts_in_their_order() -> None:
    rows = batch([5, 2, 1, 6], [None] * 4)
    assert packed(rows, ACCOUNT) == [(1, [(5, "b", 0), (1, "b", 2)]), (2, [(2, "a", 1), (6, "a", 3)])]


def test_a_hash_is_taken_as_a_number_without_a_sign() -> None:
    assert [bucket for bucket, _ in packed(batch([-1, -(2**63)], [None] * 2), ACCOUNT)] == [0, 3]


def test_each_entity_gets_the_rows_that_have_its_key_under_the_hash_of_it() -> None:
    rows = batch([5, 2, 1], [9, None, 10])
    by_account, by_terminal = packed(rows, ACCOUNT), packed(rows, TERMINAL)
    assert by_terminal == [(3 * 4 + 1, [(9, "b", 0)]), (3 * 4 + 2, [(10, "b", 2)])]
    assert packed(rows, ACCOUNT, TERMINAL) == by_account + by_terminal
    assert [buckets.entity_of(bucket, 4) for bucket, _ in by_account + by_terminal] == [0, 0, 3, 3]


@pytest.mark.parametrize("keys", [(TERMINAL,), ()])
def test_rows_that_no_entity_needs_are_not_packed(keys: tuple[Key, ...]) -> None:
    assert packed(batch([5, 2], [None, None]), *keys) == []
