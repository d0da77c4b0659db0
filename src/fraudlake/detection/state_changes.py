"""State changes: removes accounts or entities from the state of buckets."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import pyarrow as pa

from fraudlake.keyed import buckets

if TYPE_CHECKING:
    from fraudlake.detection.evaluator import Evaluator

FORGOTTEN = "forgotten"
"""The name of the supplement with the accounts (``account_id``) that :func:`forgetting` removes."""


def forgetting(evaluator: Evaluator) -> buckets.Change:
    """Return a change that removes accounts from the state."""

    def change(bucket: int, state: buckets.State, supplements: buckets.Supplements) -> buckets.State:
        rules = evaluator.by_entity.get(buckets.entity_of(bucket, evaluator.buckets_each))
        if rules is None:
            return buckets.empty(state)
        if FORGOTTEN not in supplements:
            return state
        accounts = pa.ipc.open_stream(supplements[FORGOTTEN][0]).read_all()["account_id"]
        return rules.without_accounts(state, set(accounts.to_pylist()))

    return change


def dropping(entities: Collection[int], number_of_buckets: int) -> buckets.Change:
    """Return a change that empties the state of entities, which are given by their numbers."""

    def change(bucket: int, state: buckets.State, supplements: buckets.Supplements) -> buckets.State:
        is_dropped = buckets.entity_of(bucket, number_of_buckets) in entities
        return buckets.empty(state) if is_dropped else state

    return change
