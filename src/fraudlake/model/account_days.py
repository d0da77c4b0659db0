"""Account days: groups transactions by account and day, with what is known of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.errors import FraudlakeError
from fraudlake.model import history

if TYPE_CHECKING:
    from datetime import datetime

    from numpy.typing import NDArray

BLOCKS = 3
"""The parts of the days to learn from, in each of which a rule must find fraud more often than by chance."""
_DAY = 86_400_000_000


class AccountDays:
    """Days of accounts, and what is known of each."""

    def __init__(
        self, silver: pa.Table, label: pa.Array, learned_until: datetime, tested_from: datetime, alerts: pa.Table
    ) -> None:
        """Group transactions by their account and day (UTC).

        Args:
            silver: the transactions.
            label: whether each is fraud, or null.
            learned_until: the time before which a day must have ended to learn from it.
            tested_from: the time after which a day must have begun to measure on it.
            alerts: ``account_id, day`` of alerts.

        Raises:
            FraudlakeError: there is no whole day to learn from, or none to measure on.
        """
        named = silver["account_id"].combine_chunks().dictionary_encode()
        day = silver["timestamp"].cast(pa.int64()).to_numpy() // _DAY
        first = int(day.min())
        span = int(day.max()) - first + 1
        codes, self.number = np.unique(named.indices.to_numpy() * span + day - first, return_inverse=True)
        self.label = label
        self.order = np.argsort(self.number, kind="stable")
        self.starts = np.searchsorted(self.number[self.order], np.arange(len(codes)))
        self.day = codes % span + first
        fraud = label.fill_null(False).to_numpy(zero_copy_only=False)
        self.is_fraud = self._any(fraud)
        self.is_genuine = self._any(label.is_valid().to_numpy(zero_copy_only=False)) & ~self.is_fraud
        amount = np.where(fraud, np.nan_to_num(silver["amount"].to_numpy()), 0.0)
        self.amount = np.add.reduceat(amount[self.order], self.starts)
        self.is_learned = (self.day + 1) * _DAY <= history.micros(learned_until)
        self.is_tested = self.day * _DAY >= history.micros(tested_from)
        self.is_labelled = self.is_fraud | self.is_genuine
        account = pc.index_in(alerts["account_id"], named.dictionary)
        relevant = alerts.append_column("account", account).filter(account.is_valid())
        alerted = relevant["account"].to_numpy() * span + relevant["day"].cast(pa.int32()).to_numpy() - first
        self.has_live_alert = np.isin(codes, alerted)
        learned = np.unique(self.day[self.is_learned])
        if len(learned) < BLOCKS or not self.is_tested.any():
            raise FraudlakeError(
                f"cannot suggest rules: they are found on {BLOCKS} whole days or more, and measured on a later one: "
                "land more days"
            )
        self.block = np.searchsorted(learned, self.day) * BLOCKS // len(learned)

    def _any(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return for which days of accounts a transaction is chosen."""
        chosen: NDArray[np.bool_] = np.logical_or.reduceat(rows[self.order], self.starts)
        return chosen

    def highest(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the highest value of each day of an account; NaN without any."""
        highest: NDArray[np.float64] = np.fmax.reduceat(values[self.order], self.starts)
        return highest

    @property
    def learned_days(self) -> int:
        """The number of days to learn from."""
        return len(np.unique(self.day[self.is_learned]))

    @property
    def tested_days(self) -> int:
        """The number of days to measure on."""
        return len(np.unique(self.day[self.is_tested]))

    def span(self, chosen: NDArray[np.bool_]) -> str:
        """Return the first and the last day of some days of accounts."""
        first, last = (history.from_micros(int(day) * _DAY) for day in (self.day[chosen].min(), self.day[chosen].max()))
        return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
