"""Declared columns of every type, of which two have another name in the payload."""

from __future__ import annotations

from fraudlake.bronze import contract
from fraudlake.settings import Settings

DECLARED = contract.make(
    Settings(
        columns={
            "merchant": {"from": "merchantId", "type": "string"},
            "terminal": "bigint",
            "score": "double",
            "chip": "boolean",
            "paid_at": {"from": 'paid "at"', "type": "timestamp"},
        }
    ).columns
)
