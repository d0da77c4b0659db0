"""Histogram: levels of numbers, each 2 % above the one before, whose counts give quantiles to within 1 %.

Counts of levels add up in any order, so a quantile does not depend on how rows are cut, unlike that of a sketch which
draws at random. The levels are those of DDSketch (Masson, Rim and Lee, VLDB 2019).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RATIO = 1.02
_LEAST = 1e-4
"""The least size that differs from 0; the largest is about 1e9."""
_SIZES = 1_512


def levels_of(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the level of each number; 0 and NaN have the middle level."""
    size = np.abs(np.nan_to_num(numbers, nan=0.0))
    step = np.floor(np.log(np.maximum(size, _LEAST) / _LEAST) / np.log(_RATIO))
    step = np.where(size < _LEAST, 0, np.minimum(step, _SIZES - 1) + 1)
    levels: NDArray[np.int64] = (_SIZES + np.sign(numbers) * step).astype(np.int64)
    return np.where(size < _LEAST, _SIZES, levels)


def numbers_of(levels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the middle of each level."""
    step = np.abs(levels - _SIZES)
    size = _LEAST * _RATIO ** (step - 1) * 2 * _RATIO / (1 + _RATIO)
    return np.where(step == 0, 0.0, np.sign(levels - _SIZES) * size)
