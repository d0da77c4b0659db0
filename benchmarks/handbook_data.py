"""The Fraud Detection Handbook's data and protocol: files become frames, and days become training and test rows.

Files: github.com/Fraud-Detection-Handbook/simulated-data-raw. Protocol: chapter 5, ``get_train_test_set``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.compat import pickle_compat

COLUMNS = {
    "TRANSACTION_ID": "transaction_id",
    "TX_DATETIME": "dt",
    "CUSTOMER_ID": "accountId",
    "TERMINAL_ID": "terminalId",
    "TX_AMOUNT": "amount",
    "TX_FRAUD": "alert",
}
"""The columns of the data that are read, and the fields that they become, as Flink would write them."""
_TYPES = {"transaction_id": "string", "accountId": "string", "terminalId": "string", "amount": float, "alert": bool}
DELAY = TEST = timedelta(days=7)
"""How long after its transaction a label is known, and the length of the test."""
_WEEK = timedelta(days=7)
_FRAME = {
    ("builtins", "slice"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"),
    ("pandas._libs.internals", "_unpickle_block"),
    ("pandas.core.arrays.datetimes", "DatetimeArray"),
    ("pandas.core.frame", "DataFrame"),
    ("pandas.core.indexes.base", "Index"),
    ("pandas.core.indexes.base", "_new_Index"),
    ("pandas.core.indexes.numeric", "Int64Index"),
    ("pandas.core.indexes.range", "RangeIndex"),
    ("pandas.core.internals.managers", "BlockManager"),
}
"""What a pickled frame of numbers, texts and times is made of."""


class DataError(Exception):
    """Data that cannot be used: one line."""


class _Unpickler(pickle_compat.Unpickler):  # type: ignore[misc]  # pandas gives it no types
    """Makes frames of any version of pandas, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _FRAME:
            raise DataError(f"it asks for {module}.{name}, which no frame needs")
        return super().find_class(module, name)


def unpickled(file: Path) -> pd.DataFrame:
    """Read a pickled frame; nothing that the file names is called but what frames are made of.

    Raises:
        DataError: the file is not a pickled frame, or asks for something else.
    """
    try:
        with file.open("rb") as opened:
            frame = _Unpickler(opened).load()
    except Exception as error:  # whatever bytes make the unpickler, NumPy or pandas raise
        raise DataError(f"{file}: not read: {' '.join(str(error).split()) or type(error).__name__}") from None
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"{file}: not read: it holds no frame")
    return frame


@dataclass(frozen=True)
class Protocol:
    """The days of a training, and of the test that begins a delay after it."""

    train_from: date
    train_days: int

    @property
    def train_until(self) -> date:
        """The first day after the training."""
        return self.train_from + timedelta(days=self.train_days)

    @property
    def test_from(self) -> date:
        """The first day of the test."""
        return self.train_until + DELAY

    @property
    def test_until(self) -> date:
        """The first day after the test."""
        return self.test_from + TEST

    def is_test(self, rows: pd.DataFrame) -> np.ndarray:
        """Return which rows test: those of the test's days, without cards that were known to be compromised.

        On a day of the test, the cards of frauds are known from a week before the delay to a delay before the day: the
        book's training is that week. A longer training is tested on the same rows, so that figures can be compared.

        Args:
            rows: ``dt``, ``accountId`` and ``alert``, in any order.
        """
        day = rows["dt"].dt.date
        chosen = np.zeros(len(rows), bool)
        for number in range(TEST.days):
            today = self.test_from + timedelta(days=number)
            is_known = rows["alert"] & (day >= self.test_from - DELAY - _WEEK) & (day < today - DELAY)
            chosen |= (day == today) & ~rows["accountId"].isin(rows["accountId"][is_known])
        return chosen


def read(data: Path, first: date, until: date) -> pd.DataFrame:
    """Read the transactions of some days, by time: the fields of :data:`COLUMNS`.

    Args:
        data: a folder of pickled frames, one a day (``2018-04-01.pkl``), or a parquet file.
        first: the first day.
        until: the day after the last one.

    Raises:
        DataError: the data cannot be read, or lacks a column or one of the last fourteen days.
    """
    frames = [*(_days(data, first, until) if data.is_dir() else [_parquet(data)])]
    if not frames:
        raise DataError(f"{data}: there is no file such as {first}.pkl of {first} to {until - timedelta(days=1)}")
    rows = pd.concat(frames, ignore_index=True)
    missing = ", ".join(name for name in COLUMNS if name not in rows.columns)
    if missing:
        raise DataError(f"{data}: there is no column {missing}")
    rows = rows[[*COLUMNS]].rename(columns=COLUMNS).astype(_TYPES)
    rows["dt"] = pd.to_datetime(rows["dt"]).astype("datetime64[us]")
    rows = rows[(rows["dt"] >= pd.Timestamp(first)) & (rows["dt"] < pd.Timestamp(until))]
    if rows.empty or rows["dt"].max() < pd.Timestamp(until) - timedelta(days=1):
        raise DataError(f"{data}: there are no transactions of {until - timedelta(days=1)}, the last day of the test")
    return rows.sort_values(["dt", "transaction_id"], ignore_index=True)


def _days(folder: Path, first: date, until: date) -> Iterator[pd.DataFrame]:
    for file in sorted(folder.glob("*.pkl")):
        if str(first) <= file.stem < str(until):
            yield unpickled(file)


def _parquet(file: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not read: {' '.join(str(error).split())}") from None
