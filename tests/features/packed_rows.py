"""Rows of a bucket without declared columns, as they are packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.features.feature_buckets import FeatureBuckets


def packed_rows(bucketed: FeatureBuckets, time: NDArray[np.int64], accounts: int = 1) -> pa.Table:
    """Payments of 1.00 at some times (microseconds), of the accounts in turn; their ids are their numbers."""
    number = np.arange(len(time))
    whole = {
        "account": number % accounts,
        "time": time,
        "amount": np.ones(len(time)),
        "source": ["part-0"] * len(time),
        "position": number,
        "account_id": [str(account) for account in number % accounts],
        "transaction_id": [str(one) for one in number],
        "label": [False] * len(time),
    }
    return pa.table({name: pa.array(whole[name]) for name in bucketed.rows.names}).cast(bucketed.rows)
