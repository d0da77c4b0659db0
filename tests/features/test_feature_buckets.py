"""Packed rows with their features."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fraudlake.features.feature_buckets import FeatureBuckets
from fraudlake.keyed import buckets
from fraudlake.settings import Settings


def test_compressed_payloads_have_the_same_rows_in_less_than_half_of_the_bytes() -> None:
    bucketed = FeatureBuckets.from_settings(Settings())
    count = 10_000
    whole = {
        "account": pa.array(np.arange(count) % 100),
        "time": np.arange(count) * 1_000_000,
        "amount": np.ones(count),
        "source": pa.array(["part-0"] * count),
        "position": np.arange(count),
        "account_id": [str(at % 100) for at in range(count)],
        "transaction_id": [str(at) for at in range(count)],
        "label": pa.array([False] * count),
    }
    rows = pa.table({name: whole[name] for name in bucketed.rows.names}).cast(bucketed.rows)
    computed, _ = bucketed.step(0, {}, rows)
    plain, compressed = (bucketed.packed(computed, 0, is_compressed=chosen) for chosen in (False, True))
    assert 2 * compressed.nbytes < plain.nbytes
    same = [buckets.unpack(one["payload"].to_pylist(), computed.schema) for one in (plain, compressed)]
    assert len(same[0]) == count
    assert same[0].equals(same[1])
