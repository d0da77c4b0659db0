"""Transaction texts: the transactions of alerts as JSON and as words, a column at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.text import json_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IS_ESCAPED = r'[^ -~]|["\\]'
"""The characters that JSON escapes, or that are not ASCII."""


def as_json(rows: pa.Table) -> pa.Array:
    """Return transactions as JSON objects, without the brace that begins them.

    ``rows`` has ``transaction_id, time, amount``, with times in microseconds since 1970 UTC.
    """
    return joined(
        '"transaction_id": ',
        quoted(rows["transaction_id"]),
        ', "time": ',
        rows["time"].cast(pa.string()),
        ', "amount": ',
        _numbers(rows["amount"].to_numpy()),
        "}",
    )


def as_words(rows: pa.Table) -> pa.Array:
    """Return the amounts and times of transactions as a part of a sentence; ``rows`` has ``time, amount``."""
    # Python rounds the exact value of a number; Arrow rounds its product with 100.
    amounts = pa.array([f"{amount:.2f}" for amount in rows["amount"].to_pylist()], pa.string())
    seconds = pa.array(rows["time"].to_numpy() // 1_000_000, pa.timestamp("s"))
    return joined(amounts, " at ", seconds.cast(pa.string()))


def quoted(texts: pa.ChunkedArray) -> pa.Array:
    """Return texts as JSON."""
    whole = texts.combine_chunks()
    plain = joined('"', whole, '"')
    is_escaped = pc.match_substring_regex(whole, _IS_ESCAPED)
    if not pc.any(is_escaped).as_py():
        return plain
    escaped = [json.dumps(text) for text in whole.filter(is_escaped).to_pylist()]
    return pc.replace_with_mask(plain, is_escaped, pa.array(escaped, pa.string()))


def joined(*parts: pa.Array | pa.ChunkedArray | str) -> pa.Array | pa.ChunkedArray:
    """Return the texts of each row, one after the other."""
    return pc.binary_join_element_wise(*parts, "")


def _numbers(numbers: NDArray[np.float64]) -> pa.Array:
    """Return numbers as JSON."""
    as_text = repr if np.isfinite(numbers).all() else json_text.dumps
    return pa.array([as_text(number) for number in numbers.tolist()], pa.string())
