"""Packed rows with their features."""

from __future__ import annotations

import numpy as np

from fraudlake.features.feature_buckets import FeatureBuckets
from fraudlake.keyed import buckets
from fraudlake.settings import Settings
from tests.features.packed_rows import packed_rows


def test_compressed_payloads_have_the_same_rows_in_less_than_half_of_the_bytes() -> None:
    bucketed = FeatureBuckets.from_settings(Settings())
    count = 10_000
    computed, _ = bucketed.step(0, {}, packed_rows(bucketed, np.arange(count) * 1_000_000, accounts=100))
    compressing = FeatureBuckets.from_settings(Settings(), is_compressed=True)
    plain, compressed = (of.packed(computed, 0) for of in (bucketed, compressing))
    assert 2 * compressed.nbytes < plain.nbytes
    same = [buckets.unpack(one["payload"].to_pylist(), computed.schema) for one in (plain, compressed)]
    assert len(same[0]) == count
    assert same[0].equals(same[1])
