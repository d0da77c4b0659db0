"""How well the model detects the fraud of the Fraud Detection Handbook, by the book's protocol. Run by hand.

    python -m benchmarks.handbook DATA [--train-from 2018-07-25] [--train-days 7] [--json]

DATA is a folder of the files of github.com/Fraud-Detection-Handbook/simulated-data-raw, or a parquet file with their
columns. The rows are landed as Flink would write them, and go through bronze, silver, features, training and the
scoring stream of a lake in a temporary folder. When the model is trained, the lake ends before the test's first day,
and labels are known seven days late. The figures are those of the stream's own predictions of the test's seven days,
without the cards that were known to be compromised (benchmarks/handbook_data.py).

The same is done once more with the features of the account alone. Settings and features are those of
examples/handbook/fraudlake.toml.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import handbook_data
from benchmarks.handbook_data import DataError, Protocol
from fraudlake import settings, tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake import Lake, open_lake
from fraudlake.lake.definition import Change
from fraudlake.model import metrics, training
from fraudlake.settings import Settings
from fraudlake.streams import ingest, refine, score, stream

EXAMPLE = Path(__file__).parents[1] / "examples" / "handbook" / "fraudlake.toml"
CARDS = 100
"""The number of cards that are looked at in a day."""
HISTORY = timedelta(days=38)
"""How far features look back from a transaction: 30 days, which end 7 days before it."""
_FILE_ROWS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--train-from", type=date.fromisoformat, default=date(2018, 7, 25), metavar="DATE")
    parser.add_argument("--train-days", type=int, default=7, metavar="DAYS")
    parser.add_argument("--config", type=Path, default=EXAMPLE, metavar="FILE", help="settings and features")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    options = parser.parse_args()
    try:
        figures = measure(options.data, Protocol(options.train_from, options.train_days), options.config)
    except (DataError, FraudlakeError) as error:
        sys.exit(f"error: {error}")
    if options.json:
        print(json.dumps(figures))
    else:
        for name, of in (("all features", figures), ("the account's alone", figures["account_only"])):
            print(f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in of.items() if key != "account_only"))


def measure(data: Path, protocol: Protocol, config: Path) -> dict[str, object]:
    """Return the figures of the test, and the same with the account's features alone under ``account_only``."""
    say(f"reading {data}")
    rows = handbook_data.read(data, protocol.train_from - HISTORY, protocol.test_until)
    say(f"{len(rows):,} transactions of {rows['dt'].min():%Y-%m-%d} to {rows['dt'].max():%Y-%m-%d}")
    with tempfile.TemporaryDirectory(prefix="handbook-") as work:
        folder, landing = Path(work), Path(work) / "landing"
        chosen = settings.load(config, lake=folder / "all", landing=str(landing), train_from=str(protocol.train_from))
        of_account = tuple(one for one in chosen.features if one.entity == "account" and one.expression is None)
        account_only = chosen.model_copy(update={"lake": folder / "account", "features": of_account})
        is_before = rows["dt"] < pd.Timestamp(protocol.test_from)
        land(rows[is_before], landing)
        refined(open_lake(chosen))
        shutil.copytree(chosen.lake, account_only.lake)
        for lake in (open_lake(chosen), open_lake(account_only, change=Change("benchmark"))):
            say(f"training with {len(lake.settings.features)} declared features")
            say(training.train(lake).reason)
        land(rows[~is_before], landing)
        tests = rows[protocol.is_test(rows)]
        measured: dict[str, object] = {**figures(tests, scored(chosen, protocol.test_from))}
        return measured | {"account_only": figures(tests, scored(account_only, protocol.test_from))}


def scored(chosen: Settings, since: date) -> pa.Table:
    """Score what has landed as a stream; return ``transaction_id`` and ``probability`` of the days since a date."""
    lake = open_lake(chosen)
    refined(lake)
    stream.run(lake, score.streams(lake), "available-now")
    say("scored")
    return lake.store.query(
        f"SELECT transaction_id, probability FROM {tables.GOLD_FRAUD_PREDICTIONS.name} WHERE date >= DATE '{since}'",
        tables.GOLD_FRAUD_PREDICTIONS,
    )


def land(rows: pd.DataFrame, landing: Path) -> None:
    """Write transactions as Flink would."""
    landing.mkdir(parents=True, exist_ok=True)
    for begin in range(0, len(rows), _FILE_ROWS):
        part = pa.Table.from_pandas(rows.iloc[begin : begin + _FILE_ROWS], preserve_index=False)
        pq.write_table(part, landing / f"part-{part['transaction_id'][0]}-0.parquet")


def refined(lake: Lake) -> None:
    """Bring what has landed into silver."""
    for step in (ingest, refine):
        stream.run(lake, step.streams(lake), "available-now")
    say(f"{lake.store.count(tables.SILVER_TRANSACTIONS):,} transactions in silver")


def figures(rows: pd.DataFrame, predicted: pa.Table, accounts_a_day: int = CARDS) -> dict[str, float]:
    """Return the figures of test rows.

    A transaction in quarantine, such as one of an amount of 0, has no prediction and counts as the least likely.

    Args:
        rows: ``transaction_id``, ``dt``, ``accountId``, ``amount`` and ``alert``, the truth.
        predicted: ``transaction_id`` and ``probability``.
        accounts_a_day: the number of accounts that are looked at in a day.
    """
    found = rows.merge(predicted.to_pandas(), on="transaction_id", how="left", validate="one_to_one")
    say(f"{len(found):,} transactions test, of which {found['probability'].isna().sum():,} have no prediction")
    fraud, scores = found["alert"].to_numpy(bool), found["probability"].fillna(0.0).to_numpy()
    accounts, _ = pd.factorize(found["accountId"])
    days = found["dt"].dt.dayofyear.to_numpy(np.int64)
    weights, never = np.ones(len(found)), np.zeros(len(found), bool)
    judged = metrics.LabelledScores(fraud, never, scores, found["amount"].to_numpy(), accounts, days, weights)
    return {
        "auc": metrics.area_under_roc(fraud, scores, weights),
        "average_precision": metrics.area_under_pr(fraud, scores, weights),
        f"card_precision_{accounts_a_day}": metrics.measure_budget(judged, metrics.Budget(accounts_a_day))[
            "card_precision"
        ],
    }


_BEGUN = time.monotonic()


def say(text: str) -> None:
    """Report progress on standard error."""
    print(f"{time.monotonic() - _BEGUN:6.1f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
