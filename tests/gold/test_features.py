from __future__ import annotations

import pyarrow as pa

from fraudlake.gold import features

SECOND = 1_000_000
DAY = 86_400


def rows(*given: tuple[str, float, float]) -> pa.Table:
    """Transactions of (account, seconds since midnight, amount), named for their place."""
    n = len(given)
    return pa.table(
        {
            "account": pa.array([hash(account) for account, _, _ in given], pa.int64()),
            "time": pa.array([round(second * SECOND) for _, second, _ in given], pa.int64()),
            "amount": pa.array([amount for _, _, amount in given], pa.float64()),
            "source": pa.array(["part-0"] * n).dictionary_encode(),
            "position": pa.array(range(n), pa.int64()),
            "account_id": pa.array([account for account, _, _ in given]),
            "transaction_id": pa.array([str(i) for i in range(n)]),
            "label": pa.array([False] * n),
        }
    )


def computed(*batches: pa.Table) -> list[tuple[str, float, float, float, float]]:
    memory = pa.table({"account": [], "time": [], "amount": []}).cast(
        pa.schema([("account", pa.int64()), ("time", pa.int64()), ("amount", pa.float64())])
    )
    found = []
    for batch in batches:
        frame, memory = features.compute(memory, batch)
        found += frame.sort_values("transaction_id")[["transaction_id", *features.NAMES]].itertuples(index=False)
    return [tuple(row) for row in found]


def test_each_transaction_sees_the_one_before_it() -> None:
    assert computed(rows(("a", 3600, 5.0), ("b", 3601, 9.0), ("a", 3610, 7.0))) == [
        ("0", 5.0, 1.0, 0.0, DAY),
        ("1", 9.0, 1.0, 0.0, DAY),
        ("2", 7.0, 1.0, 5.0, 10.0),
    ]


def test_what_came_in_an_earlier_micro_batch_is_remembered() -> None:
    assert computed(rows(("a", 0, 5.0)), rows(("a", 30, 7.0)))[1] == ("0", 7.0, 0.0, 5.0, 30.0)


def test_a_transaction_more_than_a_day_ago_counts_as_none() -> None:
    assert computed(rows(("a", 0, 5.0), ("a", DAY + 1, 7.0)))[1] == ("1", 7.0, 0.0, 0.0, DAY)
    assert computed(rows(("a", 0, 5.0)), rows(("a", DAY + 1, 7.0)))[1] == ("0", 7.0, 0.0, 0.0, DAY)


def test_a_later_transaction_changes_nothing_before_it() -> None:
    history = (("a", 0.0, 5.0), ("b", 2.0, 1.0), ("a", 4.0, 3.0))
    assert computed(rows(*history, ("a", 9.0, 800.0)))[:3] == computed(rows(*history))
