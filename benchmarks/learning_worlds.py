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
    traffic = simulator.Traffic(
        accounts=accounts,
        rate=_PAID * accounts / 86_400,
        start=datetime.combine(START, datetime.min.time(), UTC),
        fraud=0.015,
        seed=seed,
    )
    with TemporaryDirectory(prefix="world-") as work:
        landing, truth = Path(work) / "landing", Path(work) / "truth"
        simulator.simulate(landing, traffic, rows=_PAID * accounts * days, truth=truth)
        rows, of_rows = pq.read_table(landing), pq.read_table(truth)
    kind = pc.fill_null(of_rows["kind"], "").to_numpy(zero_copy_only=False).astype(str)
    rows = rows.filter(pa.array((kind == "") | (kind == _OLD))).select(["dt", "accountId", "amount"])
    is_old = kind[(kind == "") | (kind == _OLD)] == _OLD
    probes, is_replaced = _probes(rows, is_old, change, np.random.default_rng(seed))
    rows, is_old = rows.filter(pa.array(~is_replaced)), is_old[~is_replaced]
    is_new = np.arange(len(rows) + len(probes)) >= len(rows)
    return _world("simulator", pa.concat_tables([rows, probes]), np.append(is_old, is_new[len(rows) :]), is_new, change)


def _probes(rows: pa.Table, is_old: np.ndarray, change: int, rng: np.random.Generator) -> tuple[pa.Table, np.ndarray]:
    """Return probes of accounts' days without other fraud, from a day on, and the payments whose place they take."""
    time = rows["dt"].cast(pa.int64()).to_numpy()
    account = rows["accountId"].combine_chunks().dictionary_encode().indices.to_numpy()
    day = time // DAY - time.min() // DAY
    key = day * (account.max() + 1) + account
    _, firsts = np.unique(key, return_index=True)
    firsts = firsts[(day[firsts] >= change) & ~np.isin(key[firsts], key[is_old])]
    chosen = rng.choice(firsts, round(_PROBED * len(firsts)), replace=False)
    of = np.repeat(chosen, rng.integers(4, 8, len(chosen)))
    is_same = np.diff(of, prepend=-1) == 0
    gaps = rng.integers(60, 300, len(of)) * 1_000_000
    passed = np.cumsum(gaps)
    begins = np.maximum.accumulate(np.where(is_same, 0, passed - gaps))
    at = np.minimum(time[of] + passed - begins, (time[of] // DAY + 1) * DAY - 1)
    probes = pa.table(
        {
            "dt": pa.array(at).cast(rows["dt"].type),
            "accountId": rows["accountId"].combine_chunks().take(pa.array(of)),
            "amount": rng.uniform(5, 25, len(of)).round(2),
        }
    )
    return probes, np.isin(key, key[chosen])


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
