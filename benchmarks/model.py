"""What fraud the model detects beyond the rule, how long training takes, and how fast the stream scores.

    python -m benchmarks.model --rows 1000000 --work /tmp/bench

Simulated traffic (0.5 % fraud of three kinds, of which the rule detects one) goes into silver_transactions of a lake in
WORK, the truth stays outside. Analysts look at a random share of it; the last days are held out, and every model
is tested there on all transactions, against the truth.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.usage import processor_seconds
from fraudlake import tables
from fraudlake.features import account_features, lake_features
from fraudlake.lake import Lake, open_lake
from fraudlake.model import training, verdicts
from fraudlake.model.registry import Registry
from fraudlake.settings import Settings
from fraudlake.streams import score, stream
from fraudlake_tools import simulator
from tests.traffic import add_to_silver

FILES = 10
ONE_DAY = "DATE '2026-01-01'"
"""All rows are in one partition: one file a micro-batch is what the scoring figure counts in."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--accounts", type=int, default=1_000)
    parser.add_argument("--days", type=float, default=10)
    parser.add_argument("--reviewed", type=float, default=0.3, help="share of transactions that analysts look at")
    parser.add_argument("--files-per-batch", type=int, default=5, help=f"of {FILES} files, in a micro-batch of scoring")
    parser.add_argument("--runs", type=int, default=4, help="scoring of everything, in one JVM; the first warms it")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    rows = traffic(options.rows, options.accounts, options.days)
    kinds = np.array(rows["kind"].to_pylist(), dtype=object)
    lake = lake_of(options.work, labels="flink")
    for number in range(FILES):
        part = rows.slice(number * options.rows // FILES, options.rows // FILES)
        add_to_silver(lake, part, options.work, ONE_DAY)
    reviewed = np.flatnonzero(np.random.default_rng(1).random(options.rows) < options.reviewed)
    decided = {"transaction_id": [f"t{n}" for n in reviewed], "verdict": [kinds[n] is not None for n in reviewed]}
    pq.write_table(pa.table(decided), options.work / "verdicts.parquet")

    report, outcomes = {}, {}
    outcomes["trees, Flink's label"] = timed(report, "training on Flink's label", lambda: training.train(lake))
    figures = outcomes["trees, Flink's label"].version.metrics
    report["area under PR on Flink's label"] = round(figures["area_under_pr"], 4)
    verdicts.load(lake, options.work / "verdicts.parquet")
    for name, algorithm in (("logistic regression, verdicts", "logistic"), ("trees, verdicts", "trees")):
        trained = lake_of(options.work, labels="verdicts", algorithm=algorithm)
        outcomes[name] = timed(report, f"training: {name}", lambda trained=trained: training.train(trained))

    report["held-out"] = evaluated(lake, outcomes, kinds)
    report["scoring"] = [scored(lake_of(options.work), options.files_per_batch) for _ in range(options.runs)]
    print(json.dumps(report, indent=1))


def traffic(rows: int, accounts: int, days: float) -> pa.Table:
    made = simulator.Traffic(accounts=accounts, rate=rows / days / 86_400)
    return next(simulator._tables(made, rows)).append_column("n", pa.array(range(rows)))


def lake_of(work: Path, **values: object) -> Lake:
    return open_lake(Settings(lake=work / "lake", driver_memory="6g", **values))


def timed(report: dict, name: str, run):
    begun = time.monotonic()
    result = run()
    report[f"{name}, seconds"] = round(time.monotonic() - begun, 1)
    return result


def evaluated(lake: Lake, outcomes: dict, kinds: np.ndarray) -> dict:
    """Compare every model, the rule and a constant guess with the truth on the held-out rows."""
    registry = Registry.of(lake)
    begin = max(outcome.version.tested_from for outcome in outcomes.values())
    history = lake_features.unpacked(
        lake_features.compute_history(lake.read(tables.SILVER_TRANSACTIONS), lake.settings), lake.settings
    )
    held_out = history.where(f"timestamp >= TIMESTAMP'{begin}'").toArrow()
    positions = held_out["position"].to_numpy()
    fraud = np.array([kind is not None for kind in kinds[positions]])
    rule = held_out["label"].to_numpy()
    matrix = np.column_stack([held_out[name].to_numpy() for name in account_features.NAMES])
    precision = (fraud & rule).sum() / rule.sum()
    figures = {
        "rows": len(positions),
        "fraud": int(fraud.sum()),
        "rule": line(rule.astype(float), fraud, precision),
        "constant guess": line(np.zeros(len(fraud)), fraud, precision),
    }
    for name, outcome in outcomes.items():
        classifier = registry.load(outcome.version.number).classifier
        figures[name] = line(classifier.probabilities(matrix), fraud, precision)
    return figures


def line(probability: np.ndarray, fraud: np.ndarray, rule_precision: float) -> dict:
    """Figures of a predictor, with the highest recall at no less than the rule's precision."""
    order = np.argsort(-probability, kind="stable")
    ends = np.append(np.diff(probability[order]) != 0, True)
    hits, seen = np.cumsum(fraud[order])[ends], (np.flatnonzero(ends) + 1)
    precision, recall = hits / seen, hits / fraud.sum()
    predicted = probability >= 0.5
    return {
        "true prediction rate": round(float((predicted == fraud).mean()), 5),
        "precision": round(float((predicted & fraud).sum() / predicted.sum()), 3) if predicted.any() else None,
        "recall": round(float((predicted & fraud).sum() / fraud.sum()), 3),
        "recall at the rule's precision": round(float(recall[precision >= rule_precision].max(initial=0)), 3),
        "area under PR": round(float(np.sum(precision * np.diff(recall, prepend=0))), 4),
    }


def scored(lake: Lake, files_per_batch: int) -> dict:
    """Score all of silver as a stream, from nothing."""
    shutil.rmtree(lake.checkpoint("score").folder, ignore_errors=True)
    lake.spark.sql(f"DELETE FROM {tables.GOLD_FRAUD_PREDICTIONS.name}")
    batches: dict[int, tuple[int, float]] = {}
    processor = [processor_seconds()]
    scoring_stream = score.streams(lake)[0]
    scoring_stream.before()
    source = lake.spark.readStream.option("maxFilesPerTrigger", files_per_batch).table(tables.SILVER_TRANSACTIONS.name)
    query = (
        lake_features.compute_stream(source, lake.settings)
        .writeStream.option("checkpointLocation", str(lake.checkpoint("score").folder))
        .foreachBatch(stream.micro_batch(lake, scoring_stream))
        .trigger(availableNow=True)
        .start()
    )
    while query.isActive:
        time.sleep(0.2)
        batches |= taken(query)
        processor += [processor_seconds()] * (len(batches) - len(processor) + 1)
    batches |= taken(query)
    processor += [processor_seconds()] * (len(batches) - len(processor) + 1)
    if query.exception():
        raise SystemExit(str(query.exception()))
    seconds = sum(seconds for _, seconds in batches.values())
    return {
        "rows a second": round(sum(rows for rows, _ in batches.values()) / seconds),
        "micro-batches": [(rows, round(seconds, 2)) for rows, seconds in batches.values()],
        "processor seconds of each": [round(seconds, 1) for seconds in np.diff(processor)],
    }


def taken(query) -> dict[int, tuple[int, float]]:
    return {
        report["batchId"]: (report["numInputRows"], report["durationMs"]["triggerExecution"] / 1000)
        for report in query.recentProgress
        if report["numInputRows"]
    }


if __name__ == "__main__":
    main()
