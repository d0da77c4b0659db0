"""Worlds of transactions that others simulate: their files become the rows that Flink would write, and the truth.

A world is read from a folder of its own. Where its files have places, the distance between them is a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import handbook, handbook_data
from benchmarks.handbook_data import DataError, Protocol

_EARTH = 6371.0
"""The radius of the earth in km."""
_LATE = {"labels": "flink", "label_delay": "7 days"}
"""A label is known a week after its transaction."""
_WEEKS = [date(2018, 7, 25) + timedelta(days=7 * week) for week in range(5)]
"""The first training days of five weeks of the Handbook, of which the book's is the first."""
_SYNCCFD_KINDS = ("", "high amount", "compromised terminal", "stolen number", "stolen card")
_FIVE_KINDS = ("", "compromised merchant", "stolen device", "card testing", "takeover", "collusion")
_FIVE_KINDS_CONFIG = Path(__file__).parents[1] / "examples" / "five_kinds" / "fraudlake.toml"
_KIND = "kind"
"""The column of kinds, which is not landed."""


@dataclass(frozen=True)
class World:
    """Transactions of which all fraud is known, and how a model is trained and tested on them."""

    name: str
    rows: pd.DataFrame
    """By time: ``transaction_id``, ``dt``, ``accountId``, ``amount``, ``alert`` (the truth) and the world's columns."""
    is_test: np.ndarray
    """Which rows test."""
    train_from: date
    test_from: date
    """The first day that the lake does not have when it trains."""
    accounts_a_day: int
    """The number of accounts that are looked at in a day."""
    config: Path | None = None
    """The settings and features; None: ``features suggest`` proposes the features."""
    declared: Mapping[str, Any] = field(default_factory=dict)
    """The settings of a world without a file of them."""
    verdicts: pd.DataFrame | None = None
    """The chargebacks known before the test, ``transaction_id``, ``verdict``, ``decided_at``; None: Flink's label."""
    kinds: np.ndarray | None = None
    """The kind of fraud of each row, empty if it is genuine; None: the world has no kinds."""

    @property
    def is_before(self) -> np.ndarray:
        """Which rows are before the test."""
        return (self.rows["dt"] < pd.Timestamp(self.test_from)).to_numpy()

    def tests(self) -> dict[str, pd.DataFrame]:
        """Return the test's rows by the world's name, and those that are genuine or of one kind by the kind's, too."""
        parts = {self.name: self.rows[self.is_test]}
        if self.kinds is not None:
            for kind in sorted({*self.kinds[self.is_test]} - {""}):
                parts[f"{self.name}, {kind}"] = self.rows[self.is_test & np.isin(self.kinds, ["", kind])]
        return parts


def handbook_weeks(folder: Path) -> Iterator[World]:
    """Read five weeks of the Fraud Detection Handbook's transactions, each with the 38 days that features look back."""
    for train_from in _WEEKS:
        protocol = Protocol(train_from, 7)
        rows = handbook_data.read(folder, train_from - handbook.HISTORY, protocol.test_until)
        yield World(
            f"handbook {train_from}",
            rows,
            protocol.is_test(rows),
            train_from,
            protocol.test_from,
            handbook.CARDS,
            handbook.EXAMPLE,
        )


def sparkov(folder: Path) -> Iterator[World]:
    """Read what Sparkov's generator wrote of the year 2019; its last eight weeks with new fraud test.

    Fraud begins at the latest a week before the end of the generated days. ``trans_num`` is not unique, since the
    generator's processes draw the same random numbers: rows are numbered instead.
    """
    parts = [pd.read_csv(file, sep="|", dtype={"cc_num": str}) for file in _files(folder, "*_*.csv")]
    made = pd.concat([part for part in parts if len(part)], ignore_index=True)
    rows = pd.DataFrame(
        {
            "transaction_id": made.index.astype(str),
            "dt": pd.to_datetime(made["trans_date"] + " " + made["trans_time"]),
            "accountId": made["cc_num"],
            "amount": made["amt"],
            "alert": made["is_fraud"] == 1,
            "merchant_id": made["merchant"],
            "category": made["category"],
            "city": made["city"],
            "state": made["state"],
            "job": made["job"],
            "gender": made["gender"],
            "city_pop": made["city_pop"].astype(float),
            "distance_km": _distance(made, ("lat", "long"), ("merch_lat", "merch_long")),
        }
    )
    texts = ("merchant_id", "category", "city", "state", "job", "gender")
    columns = dict.fromkeys(texts, "string") | {"city_pop": "double", "distance_km": "double"}
    entities = {"merchant": "merchant_id", "account_category": ["account_id", "category"]}
    declared = _LATE | {"columns": columns, "entities": entities}
    yield _split("sparkov", rows, date(2019, 2, 1), date(2019, 10, 28), 56, 2, declared)


def amlsim(folder: Path) -> Iterator[World]:
    """Read AMLSim's sample of 200 cycles and 200 fan-ins; four weeks of its 149 days test.

    The sample names accounts that launder and the day on which each first sends money of a pattern. Fraud is what such
    an account sends on this day to another one that launders. What it sends to these later may belong to a further
    pattern or not: it is landed as genuine, and does not test.
    """
    made = _one(folder, "transactions.csv")
    nodes = _one(folder, "nodes.csv").set_index("nodeid")
    sender = nodes.loc[made["sourceNodeId"]]
    receiver = nodes.loc[made["targetNodeId"]]
    do_launder = (sender["isFraud"].to_numpy() == 1) & (receiver["isFraud"].to_numpy() == 1)
    since = np.where(sender["fraudStep"] > 0, made["time"] - sender["fraudStep"].to_numpy(), -1)
    seconds = made.groupby("time").cumcount()
    rows = pd.DataFrame(
        {
            "transaction_id": made.index.astype(str),
            # The files know days only: rows of a day are a second apart, in their order.
            "dt": pd.Timestamp("2017-01-01") + pd.to_timedelta(made["time"] * 86_400 + seconds, unit="s"),
            "accountId": made["sourceNodeId"].astype(str),
            "amount": made["value"],
            "alert": do_launder & (since == 0),
            "receiver_id": made["targetNodeId"].astype(str),
        }
    )
    unknown = rows["transaction_id"][do_launder & (since > 0)]
    entities = {"receiver": "receiver_id", "account_receiver": ["account_id", "receiver_id"]}
    declared = _LATE | {"columns": {"receiver_id": "string"}, "entities": entities}
    world = _split("amlsim", rows, date(2017, 1, 15), date(2017, 4, 24), 28, 20, declared)
    yield replace(world, is_test=world.is_test & ~world.rows["transaction_id"].isin(unknown).to_numpy())


def synccfd(folder: Path) -> Iterator[World]:
    """Read 75 days from 2025-01-01 of SynCCFD's cards and terminals; the last two weeks test."""
    made = pd.concat(map(pd.read_parquet, _files(folder, "transactions/**/*.parquet")), ignore_index=True)
    billed = ("TX_BILL_LAT", "TX_BILL_LONG")
    rows = pd.DataFrame(
        {
            "transaction_id": made["TRANSACTION_ID"].astype(str),
            "dt": made["TX_DATETIME"],
            "accountId": made["CUSTOMER_ID"].astype(str),
            "amount": made["TX_AMOUNT"],
            "alert": made["TX_FRAUD"] == 1,
            "terminal_id": made["TERMINAL_ID"].astype(str),
            "channel": made["TX_TYPE"],
            "terminal_km": _distance(made, billed, ("TX_TERM_LAT", "TX_TERM_LONG")),
            "shipping_km": _distance(made, billed, ("TX_SHIPP_LAT", "TX_SHIPP_LONG")),
            _KIND: np.array(_SYNCCFD_KINDS)[made["TX_FRAUD_SCENARIO"]],
        }
    )
    columns = {"terminal_id": "string", "channel": "string", "terminal_km": "double", "shipping_km": "double"}
    declared = _LATE | {"columns": columns, "entities": {"terminal": "terminal_id"}}
    yield _split("synccfd", rows, date(2025, 1, 15), date(2025, 3, 3), 14, 40, declared)


def five_kinds(folder: Path) -> Iterator[World]:
    """Read ``truth.parquet`` of payments with five kinds of fraud; the last of six weeks tests.

    Seven of ten frauds are charged back 5 to 20 days later. Those known on the first day of the test are loaded.
    """
    made = pd.read_parquet(folder / "truth.parquet")
    rows = pd.DataFrame(
        {
            "transaction_id": made["id"].astype(str),
            "dt": made["ts"],
            "accountId": "card-" + made["card"].astype(str),
            "amount": made["amount"],
            "alert": made["fraud"] > 0,
            "merchantId": "m" + made["merchant"].astype(str),
            "category": made["category"],
            "deviceId": made["device"],
            "country": made["country"],
            "channel": made["channel"],
            "rowId": made["id"],
            _KIND: np.array(_FIVE_KINDS)[made["fraud"]],
        }
    )
    test_from = date(2026, 5, 6)
    world = _split("five_kinds", rows, date(2026, 4, 1), test_from, 7, 60, {}, _FIVE_KINDS_CONFIG)
    rng = np.random.default_rng(5)
    is_known = world.rows["alert"] & (rng.random(len(world.rows)) < 0.7)
    decided_at = world.rows["dt"] + pd.to_timedelta(rng.uniform(5, 20, len(world.rows)), unit="D")
    known = world.rows[is_known & (decided_at < pd.Timestamp(test_from))]
    verdicts = known[["transaction_id"]].assign(verdict="fraud", decided_at=decided_at.dt.floor("s"))
    yield replace(world, verdicts=verdicts)


WORLDS: dict[str, Callable[[Path], Iterator[World]]] = {
    "handbook": handbook_weeks,
    "sparkov": sparkov,
    "amlsim": amlsim,
    "synccfd": synccfd,
    "five_kinds": five_kinds,
}
"""What reads each world from its folder."""


def _split(
    name: str,
    rows: pd.DataFrame,
    train_from: date,
    test_from: date,
    days: int,
    accounts_a_day: int,
    declared: Mapping[str, Any],
    config: Path | None = None,
) -> World:
    """Sort rows by time, and leave out what is after the test."""
    until = pd.Timestamp(test_from) + timedelta(days=days)
    rows = rows.assign(dt=rows["dt"].astype("datetime64[us]"))
    rows = rows[rows["dt"] < until].sort_values(["dt", "transaction_id"], ignore_index=True)
    is_test = (rows["dt"] >= pd.Timestamp(test_from)).to_numpy()
    if not rows["alert"][is_test].any():
        raise DataError(f"{name}: there is no fraud from {test_from} on for {days} days")
    kinds = rows.pop(_KIND).to_numpy() if _KIND in rows.columns else None
    return World(name, rows, is_test, train_from, test_from, accounts_a_day, config, declared, kinds=kinds)


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise DataError(f"{folder}: there is no file {pattern}")
    return files


def _one(folder: Path, name: str) -> pd.DataFrame:
    (file,) = _files(folder, name)
    return pd.read_csv(file)


def _distance(rows: pd.DataFrame, one: tuple[str, str], other: tuple[str, str]) -> pd.Series:
    """Return the great-circle distance in km of two places, each a column of latitudes and one of longitudes."""
    lat, long = (np.radians(rows[name]) for name in one)
    other_lat, other_long = (np.radians(rows[name]) for name in other)
    half = np.sin((other_lat - lat) / 2) ** 2 + np.cos(lat) * np.cos(other_lat) * np.sin((other_long - long) / 2) ** 2
    return 2 * _EARTH * np.arcsin(np.sqrt(half))
