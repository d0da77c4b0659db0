"""Worlds for the learning loop: transactions whose fraud is known in full, with their features.

The features are those of the package, without any that depend on labels, so that every loop sees the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import handbook_data
from benchmarks.handbook import EXAMPLE
from fraudlake import settings
from fraudlake.model import history
from fraudlake.model.history import Rows
from fraudlake.settings import Settings
from fraudlake_tools import simulator

DAY = 86_400_000_000
START = date(2026, 1, 5)
_PAID = 2
"""Payments of an account a day."""
_OLD = "foreign"
_PROBED = 0.04
"""The share of a day's accounts that the new fraud is on."""


@dataclass(frozen=True)
class World:
    """Transactions by time, their truth in ``rows.fraud``; ``is_new`` is fraud of a kind that began on ``change``."""

    name: str
    rows: Rows
    day: np.ndarray
    """The number of each transaction's day, from 0 on."""
    is_new: np.ndarray
    start: date
    change: int | None
    """The day of the change of regime."""

    @property
    def days(self) -> int:
        return int(self.day[-1]) + 1


def simulated(seed: int, accounts: int, days: int, change: int) -> World:
    """Simulate card payments: foreign ones are fraud from the first day on, and probes from the day of a change on.

    A foreign payment is 8 to 20 times as large as the account's usual ones, at an hour at which its owner sleeps. On
    a day of probes, 4 to 7 small payments of 5 to 25, a few minutes apart, take the place of the owner's: they look
    unlike all that was fraud before.
    """
    traffic = _traffic(accounts, 0.015, seed)
    with TemporaryDirectory(prefix="world-") as work:
        landing, truth = Path(work) / "landing", Path(work) / "truth"
        simulator.simulate(landing, traffic, rows=_PAID * accounts * days, truth=truth)
        rows, of_rows = pq.read_table(landing), pq.read_table(truth)
    kind = pc.fill_null(of_rows["kind"], "").to_numpy(zero_copy_only=False).astype(str)
    rows = rows.filter(pa.array((kind == "") | (kind == _OLD))).select(["dt", "accountId", "amount"])
    is_old = kind[(kind == "") | (kind == _OLD)] == _OLD
    probes, is_replaced = _placed(rows, is_old, (change, days + 1), _PROBED, PROBES, np.random.default_rng(seed))
    rows, is_old = rows.filter(pa.array(~is_replaced)), is_old[~is_replaced]
    is_new = np.arange(len(rows) + len(probes)) >= len(rows)
    return _world("simulator", pa.concat_tables([rows, probes]), np.append(is_old, is_new[len(rows) :]), is_new, change)


@dataclass(frozen=True)
class Kind:
    """A kind of fraud: the number of payments of an account's day, their amounts, and seconds between them."""

    payments: tuple[int, int]
    amounts: tuple[float, float]
    gaps: tuple[int, int]


PROBES = Kind((4, 8), (5, 25), (60, 300))
KINDS = (
    Kind((4, 8), (40, 80), (60, 300)),
    Kind((1, 2), (250, 400), (60, 120)),
    Kind((10, 16), (15, 30), (1200, 2400)),
    Kind((2, 4), (120, 180), (10, 60)),
    Kind((6, 9), (48, 52), (3600, 5400)),
)
"""The kinds of a drifting world, in the order in which they appear; each is worth about 300 on an account's day."""
LASTS = 30
"""The days for which a kind is seen."""
_SHARE = 0.008
"""The share of a day's accounts that a kind is on."""


def _traffic(accounts: int, fraud: float, seed: int) -> simulator.Traffic:
    """Return the simulator's settings: the accounts' payments from the first day on, a share of which is fraud."""
    start = datetime.combine(START, datetime.min.time(), UTC)
    return simulator.Traffic(accounts=accounts, rate=_PAID * accounts / 86_400, start=start, fraud=fraud, seed=seed)


def drifting(seed: int, accounts: int, days: int, drifts: tuple[int, ...]) -> World:
    """Simulate card payments with the first of :data:`KINDS` from the first day on, and another from each drift on.

    The first kind ends :data:`LASTS` days after the first drift. A kind takes the place of an account's own payments on
    a day.
    """
    traffic = _traffic(accounts, 0.0, seed)
    with TemporaryDirectory(prefix="world-") as work:
        landing = Path(work) / "landing"
        simulator.simulate(landing, traffic, rows=_PAID * accounts * days)
        rows = pq.read_table(landing).select(["dt", "accountId", "amount"])
    is_fraud = np.zeros(len(rows), bool)
    rng = np.random.default_rng(seed)
    for kind, begin in zip(KINDS, (0, *drifts), strict=True):
        end = LASTS + (begin or drifts[0])
        added, is_replaced = _placed(rows, is_fraud, (begin, end), _SHARE, kind, rng)
        rows = pa.concat_tables([rows.filter(pa.array(~is_replaced)), added])
        is_fraud = np.append(is_fraud[~is_replaced], np.ones(len(added), bool))
    return _world("drifting", rows, is_fraud, np.zeros(len(rows), bool), None)


def _placed(
    rows: pa.Table, is_fraud: np.ndarray, days: tuple[int, int], share: float, kind: Kind, rng: np.random.Generator
) -> tuple[pa.Table, np.ndarray]:
    """Return fraud on accounts' days without other fraud, of a range of days, and the payments whose place it takes."""
    time = rows["dt"].cast(pa.int64()).to_numpy()
    account = rows["accountId"].combine_chunks().dictionary_encode().indices.to_numpy()
    day = time // DAY - time.min() // DAY
    key = day * (account.max() + 1) + account
    _, firsts = np.unique(key, return_index=True)
    is_day = (day[firsts] >= days[0]) & (day[firsts] < days[1])
    firsts = firsts[is_day & ~np.isin(key[firsts], key[is_fraud])]
    chosen = rng.choice(firsts, round(share * len(firsts)), replace=False)
    of = np.repeat(chosen, rng.integers(*kind.payments, len(chosen)))
    is_same = np.diff(of, prepend=-1) == 0
    gaps = rng.integers(*kind.gaps, len(of)) * 1_000_000
    passed = np.cumsum(gaps)
    begins = np.maximum.accumulate(np.where(is_same, 0, passed - gaps))
    at = np.minimum(time[of] + passed - begins, (time[of] // DAY + 1) * DAY - 1)
    placed = pa.table(
        {
            "dt": pa.array(at).cast(rows["dt"].type),
            "accountId": rows["accountId"].combine_chunks().take(pa.array(of)),
            "amount": rng.uniform(*kind.amounts, len(of)).round(2),
        }
    )
    return placed, np.isin(key, key[chosen])


def handbook(data: Path, days: int) -> World:
    """Read the first days of a fifth of the Handbook's accounts, with the features of its example but for fraud's."""
    start = date(2018, 4, 1)
    frame = handbook_data.read(data, start, start + timedelta(days=days))
    frame = frame[frame["accountId"].astype(int) % 5 == 0].reset_index(drop=True)
    chosen = settings.load(EXAMPLE, lake="unused")
    features = tuple(feature for feature in chosen.features if feature.aggregate != "fraud_share")
    rows = pa.Table.from_pandas(frame, preserve_index=False)
    fraud = frame["alert"].to_numpy(bool)
    chosen = chosen.model_copy(update={"features": features})
    return _world("handbook", rows, fraud, np.zeros(len(fraud), bool), None, chosen)


def _world(
    name: str, rows: pa.Table, fraud: np.ndarray, is_new: np.ndarray, change: int | None, chosen: Settings | None = None
) -> World:
    """Compute the features of landed rows."""
    ids = pa.array(np.arange(len(rows))).cast(pa.string())
    silver = pa.table(
        {
            "transaction_id": ids,
            "account_id": rows["accountId"],
            "timestamp": rows["dt"].cast(pa.timestamp("us", tz="UTC")),
            "amount": rows["amount"],
            "label": pa.array(is_new),  # no feature reads it, and it is carried along
            "source": pa.array(["file"] * len(rows)),
            "position": np.arange(len(rows)),
            **({"terminal_id": rows["terminalId"]} if "terminalId" in rows.column_names else {}),
        }
    )
    truth = pa.table({"transaction_id": ids, "verdict": pa.array(fraud), "decided_at": silver["timestamp"]})
    past = history.select_history(silver, truth, chosen or Settings())
    labelled = past.labelled("verdicts")
    order = np.argsort(labelled.time, kind="stable")
    day = labelled.time[order] // DAY
    carried = past.table["label"].to_numpy()[order].astype(bool)
    start = date(1970, 1, 1) + timedelta(days=int(day[0]))
    return World(name, taken(labelled, order), day - day[0], carried, start, change)


def taken(rows: Rows, at: np.ndarray, weights: np.ndarray | None = None) -> Rows:
    """Return rows by their numbers, with other weights if they are given."""
    return replace(
        rows,
        time=rows.time[at],
        features=rows.features[at],
        fraud=rows.fraud[at],
        weights=rows.weights[at] if weights is None else weights,
        account=rows.account[at],
        amount=rows.amount[at],
    )
