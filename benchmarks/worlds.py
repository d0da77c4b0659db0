"""How well the model detects the fraud of worlds that others simulate. Run by hand.

    python -m benchmarks.worlds --data FOLDER [--world handbook …] [--json]

FOLDER has a folder for each world, named after it (benchmarks/world_files.py). The rows are landed as Flink would write
them, and go through bronze, silver, features, training and the scoring stream of a lake in a temporary folder. When
the model is trained, the lake ends before the test's first day. The figures of *stream* are those of the stream's own
predictions of the test.

*plain* is XGBoost's classifier with its defaults, fitted once on the same days, labels and features; the features are
computed in this process. *perfect* ranks by the truth: it says which card precision is possible.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.handbook import figures, land, refined, say, scored
from benchmarks.handbook_data import DataError
from benchmarks.world_files import WORLDS, World
from fraudlake import settings, tables
from fraudlake.errors import FraudlakeError
from fraudlake.features import account_features, lake_features
from fraudlake.lake import Lake, open_lake
from fraudlake.lake.definition import Change
from fraudlake.model import history, suggestion, training, verdicts
from fraudlake.settings import Settings

LEARNERS = ("stream", "plain", "perfect")
_HEADER = f"""\
| world | frauds | features | learner | AUC ROC | average precision | card precision |
{"|---" * 7}|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--world", nargs="+", choices=[*WORLDS], default=[*WORLDS], metavar="NAME", dest="worlds")
    parser.add_argument("--json", action="store_true", help="print a JSON object a line on standard output")
    options = parser.parse_args()
    if not options.json:
        print(_HEADER)
    try:
        for name in options.worlds:
            for world in WORLDS[name](options.data / name):
                for measured in measure(world):
                    print(json.dumps(measured) if options.json else table_rows(measured), flush=True)
    except (DataError, FraudlakeError) as error:
        sys.exit(f"error: {error}")


def table_rows(measured: Mapping[str, Any]) -> str:
    """Return the lines of a world in the table."""
    lines = []
    for learner in LEARNERS:
        values = " | ".join(f"{value:.3f}" for value in measured[learner].values())
        lines.append(f"| {measured['world']} | {measured['fraud']:,} | {measured['features']} | {learner} | {values} |")
    return "\n".join(lines)


def measure(world: World) -> list[dict[str, Any]]:
    """Return the figures for each learner of a world's test, and of each kind of fraud among its genuine rows."""
    say(f"{world.name}: {len(world.rows):,} transactions, {world.rows['alert'].sum():,} of them fraud")
    with tempfile.TemporaryDirectory(prefix="world-") as work:
        folder = Path(work)
        landing = folder / "landing"
        chosen = settings.load(
            world.config,
            lake=folder / "lake",
            landing=str(landing),
            train_from=str(world.train_from),
            **world.declared,
        )
        rows = world.rows if world.verdicts is None else world.rows.assign(alert=False)
        land(rows[world.is_before], landing)
        refined(open_lake(chosen))
        if world.verdicts is not None:
            file = folder / "verdicts.csv"
            world.verdicts.to_csv(file, index=False)
            say(f"{verdicts.load(open_lake(chosen), file).taken:,} chargebacks are known")
        if world.config is None:
            suggested = suggestion.suggest(open_lake(chosen))
            say(suggested.text())
            chosen = chosen.model_copy(update={"features": suggested.features})
        lake = open_lake(chosen, change=Change("benchmark"))
        say(training.train(lake).reason)
        land(rows[~world.is_before], landing)
        predicted = {"stream": scored(chosen, world.test_from), "plain": plain(world, lake), "perfect": perfect(world)}
    return [
        {
            "world": name,
            "rows": len(world.rows),
            "tested": len(tests),
            "fraud": int(tests["alert"].sum()),
            "features": len(chosen.features),
            **{learner: figures(tests, of, world.accounts_a_day) for learner, of in predicted.items()},
        }
        for name, tests in world.tests().items()
    ]


def perfect(world: World) -> pa.Table:
    """Rank by the truth; return ``transaction_id`` and ``probability``."""
    return pa.table({"transaction_id": world.rows["transaction_id"], "probability": world.rows["alert"].astype(float)})


def plain(world: World, lake: Lake) -> pa.Table:
    """Fit XGBoost once on the labels known before the test; return ``transaction_id, probability`` of the test."""
    from xgboost import XGBClassifier

    computed = computed_features(lake)
    rows = world.rows[world.rows["transaction_id"].isin(computed.index)]
    is_learned, fraud = known_labels(world, lake.settings)
    learned = rows.index[is_learned[rows.index]]
    tests = rows.index[world.is_test[rows.index]]
    matrix = computed.loc[rows.loc[learned, "transaction_id"]]
    texts = {
        name: pd.CategoricalDtype(sorted(matrix[name].dropna().unique()))
        for name in matrix.columns
        if not pd.api.types.is_numeric_dtype(matrix[name])
    }
    classifier = XGBClassifier(enable_categorical=True)
    classifier.fit(matrix.astype(texts), fraud[learned])
    say(f"the plain learner is fitted on {len(learned):,} rows, {fraud[learned].sum():,} of them fraud")
    ids = rows.loc[tests, "transaction_id"]
    probability = classifier.predict_proba(computed.loc[ids].astype(texts))[:, 1]
    return pa.table({"transaction_id": ids.to_numpy(), "probability": probability})


def known_labels(world: World, chosen: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows teach, and the label that is known of each row before the test."""
    delay = chosen.label_delay if world.verdicts is None else chosen.genuine_after
    newest = world.rows["dt"][world.is_before].max()
    is_old = (world.rows["dt"] >= pd.Timestamp(world.train_from)) & (world.rows["dt"] <= newest - delay)
    if world.verdicts is None:
        fraud = world.rows["alert"]
    else:
        fraud = world.rows["transaction_id"].isin(world.verdicts["transaction_id"])
    return is_old.to_numpy(), fraud.to_numpy(bool)


def computed_features(lake: Lake) -> pd.DataFrame:
    """Return the features of all rows of silver by ``transaction_id``, as this process computes them."""
    silver = lake.store.query(
        f"SELECT {', '.join(history.columns_read(lake.settings))} FROM {tables.SILVER_TRANSACTIONS.name}",
        tables.SILVER_TRANSACTIONS,
    )
    names = ["transaction_id", *account_features.names(lake.settings)]
    schema = tables.schema(account_features.computed_columns(lake.settings))
    schema = pa.schema([schema.field(name) for name in names])
    computed = lake_features.compute_table(
        silver, (), lambda part: part.select(names), schema, lake.settings, training.known_verdicts(lake)
    )
    return computed.to_pandas().set_index("transaction_id")


if __name__ == "__main__":
    main()
