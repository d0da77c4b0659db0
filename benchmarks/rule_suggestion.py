"""What suggested rules find beside the hand-made rules of the demo, for as many accounts a day.

    python -m benchmarks.rule_suggestion --work DIR [--rows 300000] [--accounts 2000] [--days 30] [--seeds 1 2 3]

Simulated payments with a terminal and six kinds of fraud go into silver_transactions of a lake without live alerts; the
truth is their label. Rules are found on the first days, and all are measured on the last ones: the share of the days of
accounts with fraud that have an alert. The seconds and the peak of memory are those of this process.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from fraudlake import tables
from fraudlake.lake import Lake, open_lake
from fraudlake.model import rule_suggestion
from fraudlake.rules.columns import query_columns
from fraudlake.settings import Settings
from fraudlake_tools import simulator

HAND_MADE = Path(__file__).parents[1] / "examples" / "terminals" / "fraudlake.toml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--accounts", type=int, default=2_000)
    parser.add_argument("--days", type=float, default=30)
    parser.add_argument("--budget", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    for seed in options.seeds:
        folder = options.work / str(seed)
        shutil.rmtree(folder, ignore_errors=True)
        rate = options.rows / options.days / 86_400
        traffic = simulator.Traffic(accounts=options.accounts, rate=rate, fraud=0.004, columns=True, seed=seed)
        print(json.dumps({"seed": seed, **compared(folder, traffic, options.rows, options.budget)}), flush=True)


def compared(folder: Path, traffic: simulator.Traffic, rows: int, budget: int) -> dict[str, Any]:
    """Return the figures of hand-made and of suggested rules over one simulated history."""
    lake = filled(folder, next(simulator._tables(traffic, rows)))
    begun = time.monotonic()
    suggested = rule_suggestion.suggest(lake, budget)
    seconds = time.monotonic() - begun
    hand_made = measured(lake, suggested.tested)
    equal = rule_suggestion.suggest(lake, math.floor(hand_made["accounts a day"]))
    return {
        "hand-made": hand_made,
        "suggested, as many accounts a day": figures(equal),
        f"suggested, {budget} accounts a day": figures(suggested),
        "seconds": round(seconds, 1),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000,
    }


def figures(suggested: rule_suggestion.RuleSuggestion) -> dict[str, Any]:
    recall = suggested.found_by_all / suggested.frauds
    return {
        "recall": round(recall, 3),
        "accounts a day": round(suggested.accounts_a_day, 1),
        "rules": len(suggested.rules),
    }


def filled(folder: Path, rows: pa.Table) -> Lake:
    """Make a lake of transactions whose label is the truth, with the hand-made rules and their columns."""
    settings = Settings(_env_file=None, lake=folder / "lake", labels="flink", **hand_made_settings())
    lake = open_lake(settings)
    time_ = rows["dt"].cast(pa.timestamp("us", tz="UTC"))
    columns = {
        "transaction_id": pa.array([f"t{n}" for n in range(len(rows))]),
        "account_id": rows["accountId"],
        "timestamp": time_,
        "amount": rows["amount"],
        "label": rows["kind"].is_valid(),
        "source": pa.array(["part-0"] * len(rows)),
        "position": pa.array(range(len(rows))),
        "date": time_.cast(pa.date32()),
        **{name: rows[column.field] for name, column in settings.columns.items()},
    }
    schema = tables.with_declared(tables.SILVER_TRANSACTIONS, settings.columns).schema
    silver = pa.table([columns.get(name, pa.nulls(len(rows))) for name in schema.names], schema.names).cast(schema)
    write_deltalake(settings.lake / "tables" / tables.SILVER_TRANSACTIONS.name, silver, mode="append")
    return lake


def hand_made_settings() -> dict[str, Any]:
    import tomllib

    content = tomllib.loads(HAND_MADE.read_text())
    return {name: content[name] for name in ("columns", "entities", "rules")}


def measured(lake: Lake, span: str) -> dict[str, Any]:
    """Return what the lake's rules find on some days, by their own evaluation."""
    settings = lake.settings
    silver = lake.store.query(f"SELECT * FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS)
    day = silver["date"].cast(pa.string()).to_numpy()
    key = np.array([f"{account} {of}" for account, of in zip(silver["account_id"].to_pylist(), day, strict=True)])
    first, last = span.split(" to ")
    is_tested = (day >= first) & (day <= last)
    frauds = {*key[is_tested & silver["label"].to_numpy()]}
    alerted: set[str] = set()
    for rule in settings.rules:
        compiled = rule.compile(query_columns(settings.columns), settings.entities)
        places = np.flatnonzero(pc.is_valid(silver[compiled.partition_by[0]]).to_numpy())
        raised = compiled.evaluate(silver.take(pa.array(places))).alerts
        last_rows = places[[alert.rows[-1] for alert in raised]]
        alerted |= {*key[last_rows[is_tested[last_rows]]]}
    days = len({*day[is_tested]})
    recall = len(alerted & frauds) / len(frauds)
    return {"recall": round(recall, 3), "accounts a day": round(len(alerted) / days, 1), "rules": len(settings.rules)}


if __name__ == "__main__":
    main()
