"""Card traffic: generates an endless stream of transactions from a seed, in files like those of Flink's FileSink.

A stream is generated in blocks of event time. State that is open at the end of a block (small amounts, continuing
frauds, late rows) is carried over to the next, so that the rows depend on neither blocks nor files.

Terminals near a card holder's home, and the fraud of ``Traffic(columns=True)``, follow the description of the
transaction simulator in the Fraud Detection Handbook (Le Borgne, Siblini, Lebichot, Bontempi; 2022).
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze import parquet

SCHEMA = pa.schema(
    [("dt", pa.timestamp("us")), ("accountId", pa.string()), ("amount", pa.float64()), ("alert", pa.bool_())]
)

COLUMNS = pa.schema([("merchantId", pa.string()), ("terminalId", pa.int64()), ("deviceId", pa.string())])
"""The further fields of ``Traffic(columns=True)``; ``deviceId`` is sometimes null."""
DECLARATION = """[columns]
merchant_id = { from = "merchantId", type = "string" }
terminal_id = { from = "terminalId", type = "bigint" }
device_id = { from = "deviceId", type = "string" }"""
"""The setting that adds these fields to bronze and silver."""

SMALL_BELOW = 1.0
LARGE_ABOVE = 500.0
SECOND = 1_000_000  # in microseconds, as all times below
HOUR = 3600 * SECOND
DAY = 24 * HOUR
WITHIN = 60 * SECOND
NEVER = -(1 << 62)
CHARGEBACK_DAYS = 5, 20  # after a payment, between which its fraud becomes known
AWAKE = 14  # hours of a day in which an account pays

BLOCK_ROWS = 1 << 16
BLOCK_SECONDS = 3600  # at most: events that start in a block must end within the range of `_key`

# Events of an account in addition to its usual payments. The first is not fraud, but looks like it.
HONEST_PAIR, SMALL_THEN_LARGE, BURST, FOREIGN = range(4)
KINDS = pa.array([None, "small_then_large", "burst", "foreign", "large_amount", "compromised_terminal", "stolen_card"])
HONEST_SHARE = 0.0001
# Longest duration of each event, in microseconds and in usual gaps of the account: the fraud of a busy account is
# shorter, or it would fill the account's whole day.
LONGEST = np.array([WITHIN - 1, WITHIN - 1, 240 * SECOND, 0])
LONGEST_IN_GAPS = np.array([1, 1, 2, 0])
ROWS_OF = np.array([2, 2, 0, 1])  # the number of rows of a burst is random

# Fraud of ``Traffic(columns=True)``, which makes usual payments fraud: codes of kinds, after those of events.
LARGE_AMOUNT, COMPROMISED_TERMINAL, STOLEN_CARD = range(4, 7)
LIMIT = 1500.0  # any larger payment is fraud
STOLEN_SHARE = 1 / 3  # of a stolen card's payments; what their amounts are multiplied by
STOLEN_FACTOR = 5
STOLEN_CARDS = 1.5  # stolen cards at a time, in shares of accounts, for each share of terminals that are compromised

# Flaws of a bad row. Flaws above these five multiply the amount by NaN, infinity, -1 or 0.
NULL_ACCOUNT, BLANK_ACCOUNT, NULL_DT, FUTURE_DT, NULL_AMOUNT = range(1, 6)
AMOUNT_FACTORS = np.array([1, 1, 1, 1, 1, 1, np.nan, np.inf, -1, 0])
FUTURE = 365_250 * DAY

MERCHANTS = 500  # in all, of a merchant, of an account
TERMINALS = 4
DEVICES = 2
HOMES = 1000  # places where accounts live; the number of terminals at which an account pays
NEAR = 16
PAYMENTS = 28  # at an average terminal while it is compromised, by default
DEVICELESS = 0.1  # share of payments without a device

ROW = np.dtype(
    {
        "names": ["place", "time", "account", "amount", "terminal", "kind", "flaw", "alert"],
        "formats": ["i8", "i8", "i8", "f8", "i4", "i1", "i1", "?"],
    },
    align=True,
)

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Traffic:
    """The parameters of a stream. Equal parameters give equal rows.

    Attributes:
        accounts: number of accounts; a few of them (Zipf-like) pay much more often than the rest. With fewer than 8,
            accounts pay at all hours, so that a foreign payment differs in its amount only.
        rate: transactions per second of event time.
        start: event time at which the stream starts, with a time zone.
        fraud: share of rows that are fraud, a third each small_then_large, burst and foreign.
        out_of_order: share of rows that come later than their event time, by up to ``disorder`` seconds.
        disorder: the longest delay of these rows, in seconds.
        bad: share of rows that break a quality rule of silver: null or blank account; null, NaN, infinite, negative or
            zero amount; null ``dt`` or a ``dt`` a thousand years ahead. Their ``alert`` is false.
        seed: seed of the random numbers.
        columns: whether the rows have ``COLUMNS``, too, and three more kinds of fraud. An account pays at the terminals
            near its home, and a foreign payment is at any terminal. A share ``fraud`` of the terminals is compromised
            at a time: all payments there are fraud. One and a half times that share of the accounts have stolen cards:
            a third of their payments of 1.00 or more are multiplied by five, and are fraud. So is every payment above
            1,500.00. Rows of other kinds of fraud and bad rows keep their kind. The rows are those of the stream
            without columns, but for the amounts of stolen cards, and ``alert`` follows these.
        compromised_days: for how many days a terminal is compromised; a card is stolen for half as long. None: for the
            time in which an average terminal has 28 payments.

    Raises:
        ValueError: a value is out of range.
    """

    accounts: int = 1000
    rate: float = 1000.0
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    fraud: float = 0.005
    out_of_order: float = 0.0
    disorder: float = 5.0
    bad: float = 0.0
    seed: int = 1
    columns: bool = False
    compromised_days: float | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows: ``SCHEMA``, with ``COLUMNS`` if ``columns`` is set."""
        return pa.schema([*SCHEMA, *COLUMNS]) if self.columns else SCHEMA

    def __post_init__(self) -> None:
        """Refuse values that are out of range."""
        _require("accounts", self.accounts, 1, 10_000_000)
        _require("rate", self.rate, 0.001, 10_000_000)
        _require("fraud", self.fraud, 0, 0.2)
        _require("out_of_order", self.out_of_order, 0, 1)
        _require("disorder", self.disorder, 0, 86_400)
        _require("bad", self.bad, 0, 0.5)
        _require("seed", self.seed, 0)
        if self.compromised_days is not None:
            _require("compromised_days", self.compromised_days, 0.01, 3650)
        if self.start.tzinfo is None:
            raise ValueError(f"start={self.start.isoformat()}: must have a time zone, such as +00:00")


@dataclass(frozen=True)
class Written:
    """Result of :func:`simulate`: numbers of files, of rows, and of fraud rows."""

    files: int
    rows: int
    fraud_rows: int


def batches(traffic: Traffic, batch_rows: int = 100_000) -> Iterator[pa.RecordBatch]:
    """Return the endless stream as batches of ``batch_rows`` rows in ``traffic.schema``.

    ``dt``: event time, UTC. ``amount``: account currency, whole cents. ``alert``: the verdict of Flink's keyed detector
    in event time over the rows that are not bad: true if the account's previous transaction was below 1.00, this
    transaction is above 500.00, and it comes at most 60 s later; rows of equal ``dt`` are in the order of the stream.
    ``batch_rows`` does not change the rows.

    Raises:
        ValueError: ``batch_rows`` is below 1.
    """
    _require("batch_rows", batch_rows, 1)
    for table in _tables(traffic, batch_rows):
        yield table.select(traffic.schema.names).combine_chunks().to_batches()[0]


def simulate(
    landing: Path,
    traffic: Traffic,
    *,
    rows: int | None = None,
    seconds: float | None = None,
    file_rows: int = 100_000,
    real_time: bool = False,
    truth: Path | None = None,
    chargebacks: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Written:
    """Write the stream to ``landing`` (made when missing) as ``part-<uuid>-<n>.parquet``: SNAPPY, ``dt`` INT64 micros.

    As with FileSink, a file has a hidden ``.inprogress.`` name until it is complete. Every call has its own uuid and
    overwrites nothing, but starts at ``traffic.start`` again. An interrupt removes the unfinished file and is raised
    to the caller.

    Args:
        landing: the folder that readers watch.
        traffic: the parameters of the stream.
        rows: stop after exactly this number of rows; None: no limit.
        seconds: start no file after this wall-clock time; None: no limit.
        file_rows: rows in a file; the last may have fewer.
        real_time: write ``rate`` rows per second, and at least one file per second; at a rate below one row per second
            each file has one row.
        truth: a folder for files of the same names with a row ``file, row (from 0), accountId, dt, fraud, kind`` (null
            if not fraud) for each row.
        chargebacks: a folder for a CSV file of each day on which frauds become known, 5 to 20 days after the payment:
            ``account_id, amount, timestamp, decided_at``.
        progress: called after each file with the number of rows written so far.

    Raises:
        ValueError: a number is out of range, or ``truth`` or ``chargebacks`` is inside ``landing``.
    """
    _require("file_rows", file_rows, 1)
    _require("rows", math.inf if rows is None else rows, 1)
    _require("seconds", math.inf if seconds is None else seconds, 0)
    for name, folder in (("truth", truth), ("chargebacks", chargebacks)):
        if folder and folder.resolve().is_relative_to(landing.resolve()):
            raise ValueError(f"{name}={folder}: must be outside the landing folder {landing}")

    for folder in filter(None, (landing, truth, chargebacks)):
        folder.mkdir(parents=True, exist_ok=True)
    if real_time:
        file_rows = min(file_rows, max(1, int(traffic.rate)))
    run = uuid.uuid4()
    began = time.monotonic()
    files = written = fraud_rows = 0
    draw = np.random.default_rng(traffic.seed)
    for table in _tables(traffic, min(file_rows, rows or file_rows)):
        if rows:
            table = table.slice(0, rows - written)
        due = began + (written + table.num_rows) / traffic.rate if real_time else time.monotonic()
        if seconds is not None and due > began + seconds:
            break
        time.sleep(max(0.0, due - time.monotonic()))

        name = f"part-{run}-{files}.parquet"
        parts = {landing / name: table.select(traffic.schema.names)}
        if truth:
            parts = {truth / name: _truth(table, name), **parts}
        _publish(parts)
        if chargebacks:
            _charge_back(table.filter(table["kind"].is_valid()), chargebacks, draw)

        files += 1
        written += table.num_rows
        fraud_rows += table.num_rows - table["kind"].null_count
        if progress:
            progress(written)
        if written == rows:
            break
    return Written(files, written, fraud_rows)


def _require(name: str, value: float, low: float, high: float = math.inf) -> None:
    if not low <= value <= high:
        allowed = f"at least {low:,}" if high == math.inf else f"from {low:,} to {high:,}"
        raise ValueError(f"{name}={value}: must be {allowed}")


def _publish(parts: dict[Path, pa.Table]) -> None:
    """Write all files, then rename them in the order of ``parts``: truth first, so no row lands without its truth."""
    unfinished = {path.with_name(f".{path.name}.inprogress.{uuid.uuid4()}"): path for path in parts}
    try:
        for hidden, path in unfinished.items():
            parquet.write_own(parts[path], hidden)
        for hidden, path in unfinished.items():
            hidden.replace(path)
    finally:
        for hidden in unfinished:
            hidden.unlink(missing_ok=True)


def _truth(table: pa.Table, name: str) -> pa.Table:
    return pa.table(
        {
            "file": pa.repeat(name, table.num_rows),
            "row": np.arange(table.num_rows),
            "accountId": table["accountId"],
            "dt": table["dt"],
            "fraud": table["kind"].is_valid(),
            "kind": table["kind"],
        }
    )


def _charge_back(frauds: pa.Table, folder: Path, draw: np.random.Generator) -> None:
    """Append frauds to the files of the days on which they become known, in a random order."""
    paid = frauds["dt"].to_numpy()
    delays = (draw.uniform(*CHARGEBACK_DAYS, len(paid)) * DAY).astype("timedelta64[us]")
    times = map(np.datetime_as_string, (paid, paid + delays))
    for account, amount, at, known_at in zip(
        *(frauds[name].to_pylist() for name in ("accountId", "amount")), *times, strict=True
    ):
        file = folder / f"{known_at[:10]}.csv"
        header = "" if file.exists() else "account_id,amount,timestamp,decided_at\n"
        with file.open("a") as rows:
            rows.write(f"{header}{account},{amount:.2f},{at},{known_at}\n")


def _tables(traffic: Traffic, rows: int) -> Iterator[pa.Table]:
    """Return the stream in tables of exactly ``rows`` rows: ``traffic.schema`` and ``kind``."""
    stream = _Stream(traffic)
    ahead = stream.next_block()
    while True:
        while ahead.num_rows < rows:
            ahead = pa.concat_tables([ahead, stream.next_block()])
        yield ahead.slice(0, rows)
        ahead = ahead.slice(rows)


class _Events(NamedTuple):
    """The events that start in a block, sorted by account and start, as arrays with an element per event."""

    key: Array
    account: Array
    until: Array
    rows: Array  # of all events, also rows after the block


class _Stream:
    """The stream of one ``Traffic``, block by block; memory: O(accounts + block + rows that wait to arrive late)."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.rng = np.random.default_rng(traffic.seed)
        self.origin = (traffic.start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        self.terminals = _Terminals(traffic, self.origin) if traffic.columns else None
        self.blocks = self.generated = 0

        # Each account is an arc of a 24-hour dial, at the hour when its day begins; a busier account has a wider arc.
        # The accounts awake at an hour form one section of the dial, so a random point of it is a random payer.
        count = traffic.accounts
        width = self.rng.permutation(1 + count // (16 * np.arange(1, count + 1)))
        self.dial = np.repeat(np.arange(count), width)
        self.gap = self.dial.size / width * AWAKE / 24 / traffic.rate * SECOND  # usual time between payments
        self.usual = self.rng.lognormal(np.log(40), 0.8, count)
        ids = pa.array(self.rng.permutation(count) + 1).cast(pa.string())
        self.ids = pa.concat_arrays([ids, pa.array(["  "])])  # the last element is the blank account of bad rows

        self.small_since = np.full(count, NEVER)  # time of the account's last row if its amount was small
        self.event_until = np.full(count, NEVER)  # end of the account's last event
        self.owed = np.zeros(4)  # rows of each kind of event that are due and not generated yet
        self.pending = np.zeros(0, ROW)  # rows of events, after this block
        self.waiting = np.zeros(0, ROW)  # rows that arrive late, after this block

    def next_block(self) -> pa.Table:
        """Return the next rows of the stream: ``traffic.schema`` and ``kind``."""
        span = min(BLOCK_ROWS / self.traffic.rate, BLOCK_SECONDS) * SECOND
        begin, end = (self.origin + round(block * span) for block in (self.blocks, self.blocks + 1))
        self.blocks += 1

        events = self._events(begin, end)
        self.pending = np.concatenate([self.pending, events.rows])
        due = self.pending["time"] < end
        target = round(self.traffic.rate * (end - self.origin) / SECOND) - self.generated
        usual = self._usual_rows(begin, end, target - int(np.count_nonzero(due)), events)
        # Only usual rows become bad, so that every fraud is complete.
        bad = self.rng.random(usual.size) < self.traffic.bad * target / max(usual.size, 1)
        usual["flaw"] = np.where(bad, self.rng.integers(1, AMOUNT_FACTORS.size, usual.size), 0)
        rows = np.concatenate([usual, self.pending[due]])
        self.pending = self.pending[~due]
        self.event_until[events.account] = events.until
        self.generated += rows.size
        if self.terminals:
            self.terminals.pay(rows, begin, end)

        late = self.rng.random(rows.size) < self.traffic.out_of_order
        delay = self.rng.random(rows.size) * self.traffic.disorder * SECOND
        rows["place"] = rows["time"] + np.where(late, delay, 0).astype(int)
        rows = rows[np.argsort(rows["place"], kind="stable")]
        self._raise_alerts(rows, begin)

        stream = np.concatenate([self.waiting, rows])
        stream = stream[np.argsort(stream["place"], kind="stable")]
        arrived, self.waiting = np.split(stream, [np.searchsorted(stream["place"], end)])
        return self._table(arrived)

    def _payers(self, at: Array, earliest: float, latest: float) -> Array:
        """Draw accounts whose day began ``earliest`` to ``latest`` hours before each time."""
        began = at % DAY / HOUR - self.rng.uniform(earliest, latest, at.size)
        return self.dial.take((began / 24 % 1 * self.dial.size).astype(np.intp), mode="wrap")

    def _events(self, begin: int, end: int) -> _Events:
        """Draw the events that start in the block; of two that overlap on an account, only the first remains."""
        share = np.array([HONEST_SHARE, *[self.traffic.fraud / 3] * 3])
        self.owed += share * self.traffic.rate * (end - begin) / SECOND
        kind = np.repeat(np.arange(4), np.maximum(self.owed / [1, 1, 7.5, 1], 0).astype(int))
        start = self.rng.integers(begin, end, kind.size)
        asleep = self._payers(start, AWAKE + 3, AWAKE + 7)  # a margin on both sides: an arc can be 3 hours wide
        account = np.where(kind == FOREIGN, asleep, self._payers(start, 0, AWAKE))

        order = np.lexsort((start, account))
        kind = kind[order]
        start = start[order]
        account = account[order]

        size = np.where(kind == BURST, self.rng.integers(5, 11, kind.size), ROWS_OF[kind])
        of = np.repeat(np.arange(kind.size), size)
        first = np.cumsum(size) - size
        step = np.arange(of.size) - first[of]
        progress = np.where(step == 0, 0, step - self.rng.random(of.size)) / np.maximum(size - 1, 1)[of]
        longest = np.minimum(LONGEST[kind], LONGEST_IN_GAPS[kind] * self.gap[account])
        opens_pair = (kind[of] <= SMALL_THEN_LARGE) & (step == 0)

        rows = np.zeros(of.size, ROW)
        rows["account"] = account[of]
        rows["time"] = start[of] + (progress * longest[of]).astype(int) + step  # + step: distinct times
        rows["kind"] = np.where(opens_pair, 0, kind[of])
        large = LARGE_ABOVE + 0.01 + self.rng.exponential(400, of.size)
        middling = self.rng.uniform(80, 400, of.size)
        foreign = self.usual[rows["account"]] * self.rng.uniform(8, 20, of.size)
        amount = np.choose(kind[of], [large, large, middling, foreign])
        rows["amount"] = np.where(opens_pair, self._small(of.size), amount).round(2)

        until = rows["time"][first + size - 1]
        key = _key(account, start, begin)
        free = start > self.event_until[account]
        free[1:] &= key[1:] > np.maximum.accumulate(_key(account, until, begin))[:-1]
        self.owed -= np.bincount(kind[free], np.where(kind == BURST, size, 1)[free], minlength=4)
        return _Events(key[free], account[free], until[free], rows[free[of]])

    def _usual_rows(self, begin: int, end: int, count: int, events: _Events) -> Array:
        """Draw the owners' usual payments. An owner does not pay during an event of the account."""
        at = np.sort(self.rng.integers(begin, end, max(count, 0)))
        account = self._payers(at, 0, AWAKE)
        amount = self.usual[account] * np.exp(0.7 * self.rng.standard_normal(at.size))
        amount = np.where(self.rng.random(at.size) < 0.02, self._small(at.size), np.maximum(amount, 0.01))

        last = np.searchsorted(events.key, _key(account, at, begin), side="right")
        of_account = np.append(-1, events.account)[last] == account
        until = np.where(of_account, np.append(NEVER, events.until)[last], self.event_until[account])
        free = at > until
        rows = np.zeros(np.count_nonzero(free), ROW)
        rows["time"], rows["account"], rows["amount"] = at[free], account[free], amount[free].round(2)
        return rows

    def _small(self, count: int) -> Array:
        return self.rng.uniform(0.01, 0.99, count)

    def _raise_alerts(self, rows: Array, begin: int) -> None:
        """Set ``alert`` in rows that are in the order of the stream; store the small amounts that are still open."""
        clean = np.flatnonzero(rows["flaw"] == 0)
        order = clean[np.argsort(_key(rows["account"], rows["time"], begin)[clean], kind="stable")]
        account = rows["account"][order]
        at = rows["time"][order]
        amount = rows["amount"][order]
        first = np.ones(order.size, bool)  # row of its account in this block
        first[1:] = account[1:] != account[:-1]
        last = np.roll(first, -1)

        small_since = np.where(amount < SMALL_BELOW, at, NEVER)
        before = np.where(first, self.small_since[account], np.roll(small_since, 1))
        self.small_since[account[last]] = small_since[last]
        rows["alert"][order] = (amount > LARGE_ABOVE) & (at - before <= WITHIN)

        # A foreign amount that would complete a pair by chance is lowered to the highest amount that is not large.
        lowered = rows["alert"] & (rows["kind"] == FOREIGN)
        rows["amount"][lowered], rows["alert"][lowered] = LARGE_ABOVE, False

    def _table(self, rows: Array) -> pa.Table:
        flaw = rows["flaw"]
        dt = rows["time"] + np.where(flaw == FUTURE_DT, FUTURE, 0)
        account = np.where(flaw == BLANK_ACCOUNT, len(self.ids) - 1, rows["account"])
        return pa.table(
            {
                "dt": pa.array(dt, mask=flaw == NULL_DT).cast(pa.timestamp("us")),
                "accountId": self.ids.take(pa.array(account, mask=flaw == NULL_ACCOUNT)),
                "amount": pa.array(rows["amount"] * AMOUNT_FACTORS[flaw], mask=flaw == NULL_AMOUNT),
                "alert": pa.array(rows["alert"]),
                "kind": KINDS.take(pa.array(rows["kind"])),
                **(self.terminals.columns(rows) if self.terminals else {}),
            }
        )


class _Terminals:
    """Terminals near the homes of accounts, and the fraud there; it takes nothing from the random numbers of rows."""

    def __init__(self, traffic: Traffic, origin: int) -> None:
        self.rng = np.random.default_rng((traffic.seed, 1))
        self.count = MERCHANTS * TERMINALS
        homes = self.rng.random((HOMES, 1, 2))  # in a square
        terminals = self.rng.random((self.count, 2))
        distance = np.square(homes - terminals).sum(axis=2)
        self.near = np.argpartition(distance, NEAR, axis=1)[:, :NEAR]
        self.home = self.rng.integers(0, HOMES, traffic.accounts)

        days = traffic.compromised_days
        lasts = round(self.count * PAYMENTS / traffic.rate * SECOND if days is None else days * DAY)
        self.compromised = _Periods(self.rng, self.count, traffic.fraud, lasts, origin)
        self.stolen = _Periods(self.rng, traffic.accounts, STOLEN_CARDS * traffic.fraud, lasts // 2, origin)
        self.limit = LIMIT if traffic.fraud else math.inf

    def pay(self, rows: Array, begin: int, end: int) -> None:
        """Draw the terminal of each row of a block, and make usual rows fraud: change ``amount`` and ``kind``."""
        account, at, amount, kind = (rows[name] for name in ("account", "time", "amount", "kind"))
        near = self.near[self.home[account], self.rng.integers(0, NEAR, rows.size)]
        rows["terminal"] = np.where(kind == FOREIGN, self.rng.integers(0, self.count, rows.size), near)

        usual = (kind == 0) & (rows["flaw"] == 0)
        misused = self.stolen.include(account, at, begin, end) & (self.rng.random(rows.size) < STOLEN_SHARE)
        misused &= usual & (amount >= SMALL_BELOW)  # a small amount may open a pair
        amount[misused] = (amount[misused] * STOLEN_FACTOR).round(2)
        compromised = self.compromised.include(rows["terminal"].astype(int), at, begin, end)
        fraud = np.select(
            [misused, compromised, amount > self.limit], [STOLEN_CARD, COMPROMISED_TERMINAL, LARGE_AMOUNT]
        )
        kind[usual] = fraud[usual]

    def columns(self, rows: Array) -> dict[str, pa.Array]:
        """Return the merchant and terminal of each row, and draw its device: ``COLUMNS``."""
        terminal = rows["terminal"].astype(int)
        device = rows["account"] * DEVICES + self.rng.integers(0, DEVICES, rows.size)
        devices = pa.array(device, mask=self.rng.random(rows.size) < DEVICELESS).cast(pa.string())
        return {
            "merchantId": pc.binary_join_element_wise("m", pa.array(terminal // TERMINALS).cast(pa.string()), ""),
            "terminalId": pa.array(terminal),
            "deviceId": pc.binary_join_element_wise("d", devices, ""),
        }


class _Periods:
    """Periods of equal length for a share of terminals or accounts at a time; memory: O(open periods)."""

    def __init__(self, rng: np.random.Generator, count: int, share: float, lasts: int, origin: int) -> None:
        self.rng = rng
        self.count = count
        self.lasts = lasts
        self.started_a_microsecond = count * share / lasts
        self.owed = 0.0  # periods that are due and not drawn yet
        self.drawn_until = origin - lasts  # some are open when the stream starts
        self.of = np.zeros(0, int)  # open periods, by their beginning
        self.since = np.zeros(0, int)

    def include(self, of: Array, at: Array, begin: int, end: int) -> Array:
        """Draw the periods that start before ``end``; return whether a time within the block is in a period."""
        self.owed += self.started_a_microsecond * (end - self.drawn_until)
        new = int(self.owed)
        self.owed -= new
        since = np.append(self.since, np.sort(self.rng.integers(self.drawn_until, end, new)))
        is_open = since + self.lasts > begin
        self.of = np.append(self.of, self.rng.integers(0, self.count, new))[is_open]
        self.since = since[is_open]
        self.drawn_until = end

        order = np.argsort(self.of, kind="stable")
        keys = _key(self.of, np.maximum(self.since, begin), begin)[order]
        last = np.searchsorted(keys, _key(of, at, begin), side="right")
        began = np.where(np.append(-1, self.of[order])[last] == of, np.append(NEVER, self.since[order])[last], NEVER)
        included: Array = at < began + self.lasts
        return included


def _key(account: Array, at: Array, begin: int) -> Array:
    """Return integers that sort by account, then by time: from ``begin`` to 2**32 microseconds (71 minutes) later."""
    key: Array = account << 32 | at - begin
    return key
