"""Landing: a seed becomes parquet files as Flink writes them, with bad rows, repeated rows and unreadable files."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tests import oracle

if TYPE_CHECKING:
    from tests.integration.broker import Outgoing

DEPARTING = "departing"
"""The account that is forgotten."""
ROWS = 200
"""Rows of a file."""
ACCOUNTS, MERCHANTS = 12, 7
BEGIN = 1_772_841_600_000_000
"""7 March 2026, midnight UTC, in microseconds."""
STEP = 8_000_000
"""Microseconds from a transaction to the next one, on average; some come at the same time."""
GAP = 12
"""Number of files between a row and its repetition: more than a micro-batch takes."""
_SCHEMA = pa.schema(
    [
        ("dt", pa.timestamp("us")),
        ("accountId", pa.string()),
        ("amount", pa.float64()),
        ("alert", pa.bool_()),
        ("transaction_id", pa.string()),
        ("merchantId", pa.string()),
    ]
)
_BAD = ((None, 5.0), (" ", 5.0), ("1", None), ("1", float("nan")), ("1", -3.0), ("1", 0.0))


@dataclass(frozen=True)
class LandingFile:
    """A file to land: its name, and its rows (columns of the landing schema) or the bytes that are no parquet."""

    name: str
    rows: tuple[dict[str, object], ...] = ()
    garbage: bytes = b""

    def land(self, folder: Path, number: int) -> None:
        """Write the file under a hidden name, then rename it; ``number`` orders files by modification time."""
        draft = folder / f".{self.name}"
        if self.garbage:
            draft.write_bytes(self.garbage)
        else:
            pq.write_table(pa.Table.from_pylist(list(self.rows), schema=_SCHEMA), draft)
        os.utime(draft, (1_700_000_000 + number, 1_700_000_000 + number))
        draft.rename(folder / self.name)

    def messages(self) -> list[Outgoing]:
        """Return the same rows as messages: JSON as Flink writes it, of other accounts and merchants, other ids."""
        if self.garbage:
            return [("", self.garbage, None)]
        return [_message(row) for row in self.rows]


def landing_files(seed: int, count: int) -> list[LandingFile]:
    """Make files in the order of event time; the oracle flags their rows as Flink's detector would.

    Every eighth file is no parquet file. One row in fifty breaks a rule of quality, and one in fifty repeats a row of
    an earlier file, with its producer's id. One row in eight has no merchant.
    """
    draw, time, files, valid = random.Random(seed), BEGIN, [], []
    draw_merchant = random.Random(f"merchants {seed}")
    for number in range(count):
        name = f"part-{number:05d}-0.parquet"
        if number % 8 == 5:
            files.append(LandingFile(name, garbage=draw.randbytes(300)))
            continue
        rows: list[dict[str, object]] = []
        for position in range(ROWS):
            time += draw.choice((0, STEP, 2 * STEP))
            kind = draw.random()
            earlier = files[number - GAP].rows if number >= GAP else ()
            if kind < 0.02:
                account, amount = draw.choice(_BAD)
                rows.append(_row(time, account, amount))
            elif kind < 0.04 and earlier:
                rows.append(dict(draw.choice([row for row in earlier if row["transaction_id"]])))
            else:
                account = str(draw.randrange(ACCOUNTS))
                amount = draw.choice((0.5, 0.99, 1.0, 20.25, 500.0, 500.25, 812.5))
                id_ = f"own-{number}-{position}" if draw.random() < 0.5 else None
                number_of_merchant = draw_merchant.randrange(MERCHANTS + 1)
                merchant = f"m{number_of_merchant}" if number_of_merchant else None
                rows.append(_row(time, account, amount, id_, merchant))
                valid.append(oracle.Row(account, time, amount, name, position))
        files.append(LandingFile(name, tuple(rows)))
    flagged = {(large.source, large.position) for _, large in oracle.alerts(valid)}
    return [_with_verdicts(file, flagged) for file in files]


def departing_file() -> LandingFile:
    """Make the first file, with the rows of the account that is forgotten; every other one is flagged."""
    amounts, merchant = (0.5, 812.5), "its own"
    rows = (_row(BEGIN - (ROWS - at) * STEP, DEPARTING, amounts[at % 2], f"gone-{at}", merchant) for at in range(ROWS))
    return LandingFile("part-00000-1.parquet", tuple({**row, "alert": row["amount"] == 812.5} for row in rows))


def closing_file() -> LandingFile:
    """Make a file whose one row moves the watermark past all others: in event time the latest rows wait for it."""
    return LandingFile("part-99999-0.parquet", (_row(BEGIN + 10 * 86_400_000_000, "end", 20.25),))


def _row(
    time: int, account: str | None, amount: float | None, id_: str | None = None, merchant: str | None = None
) -> dict[str, object]:
    fields = {"dt": time, "accountId": account, "amount": amount, "alert": False}
    return {**fields, "transaction_id": id_, "merchantId": merchant}


def _message(row: dict[str, object]) -> Outgoing:
    account, amount, id_, merchant = (row[name] for name in ("accountId", "amount", "transaction_id", "merchantId"))
    fields = {
        "dt": int(str(row["dt"])) // 1000,
        "accountId": f"t{account}" if account and str(account).strip() else account,
        "amount": amount if amount == amount else None,
        "alert": row["alert"],
        "transaction_id": f"t{id_}" if id_ else None,
        "merchantId": f"t{merchant}" if merchant else None,
    }
    key = str(fields["accountId"] or "")
    return key, json.dumps(fields).encode(), None


def _with_verdicts(file: LandingFile, flagged: set[tuple[str, int]]) -> LandingFile:
    rows = ({**row, "alert": (file.name, position) in flagged} for position, row in enumerate(file.rows))
    return LandingFile(file.name, tuple(rows), file.garbage)
