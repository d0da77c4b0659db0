"""Windows over tiles and rows, against rows that are looked at one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from fraudlake.statistics import windows
from fraudlake.statistics.tiles import Line, Merged, Window

SECOND = 1_000_000


def drawn(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return keys and times, sorted by both, and amounts."""
    draw = np.random.default_rng(count)
    account, time = draw.integers(-2, 3, count), draw.integers(0, 300 * SECOND, count)
    order = np.lexsort((time, account))
    return account[order], time[order], draw.integers(-5, 6, count)


@pytest.mark.parametrize("delay", [0, 30 * SECOND])
@pytest.mark.parametrize("is_in_two_parts", [False, True])
def test_a_window_begins_and_ends_at_a_tile_whether_its_rows_are_new_or_tiles(
    delay: int, is_in_two_parts: bool
) -> None:
    account, time, amount = drawn(200)
    window = Window(10 * SECOND, 5, delay, delay)
    is_later = time >= (150 * SECOND if is_in_two_parts else 0)
    first = Line(account[~is_later], time[~is_later], 10, None)
    state = first.tiles({"sum": Merged("sum", first.merged(np.zeros(0, np.int64), amount[~is_later]))}, None)

    line = Line(account[is_later], time[is_later], 10, state)
    sums = windows.total(line.merged(state["sum"].to_numpy(), amount[is_later]), line.spans(window))

    expected = []
    for row in np.flatnonzero(is_later):
        tile = (time[row] - delay) // window.size
        own = (account == account[row]) & (time // window.size >= tile - window.tiles + (delay == 0))
        own &= time // window.size < tile if delay else np.arange(len(time)) < row
        expected.append(amount[own].sum())
    assert sums.tolist() == expected


def test_a_tile_has_its_distinct_values_once_and_no_more_than_allowed() -> None:
    account, time = np.zeros(6, np.int64), np.arange(6) * 5 * SECOND
    line = Line(account, time, 10, None)

    kept = line.values(np.array([7, 7, 3, 9, 4, 4]), np.array([True] * 5 + [False]), None, 1)

    assert kept.to_pylist() == [
        {"account": 0, "tile": tile, "value": value} for tile, value in ((0, 7), (1, 3), (2, 4))
    ]
