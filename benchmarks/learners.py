"""Which library learns the model: quality, speed and size of each on the same rows.

    pip install lightgbm scikit-learn && python -m benchmarks.learners --rows 1000000 --work /tmp/bench

The rows, their features and their split are those of benchmarks/model.py: learned from the verdicts on a share of the
first 56 % of the history, tested on all of the last 30 %, against the truth. Training time is also taken on all rows
of the first part. Each library but Spark ML has the same budget of trees: 60 of 31 leaves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.model import FILES, ONE_DAY, lake_of, line, traffic
from fraudlake import tables
from fraudlake.features import account_features, lake_features
from tests.traffic import add_to_silver

# As fraudlake has it: waiting threads would take the cores from working ones.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
FITTED, HELD_OUT = 0.56, 0.7
Score = Callable[[np.ndarray], np.ndarray]


class Rows(NamedTuple):
    """Features, and whether each is fraud; ``reviewed`` are those that analysts looked at."""

    features: np.ndarray
    fraud: np.ndarray
    reviewed: np.ndarray

    def where(self, mask: np.ndarray | slice) -> Rows:
        return Rows(*(part[mask] for part in self))

    @property
    def weights(self) -> np.ndarray:
        return np.where(self.fraud, (len(self.fraud) / self.fraud.sum()) ** 0.5, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--reviewed", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help="one learner of the table")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    options.work.mkdir(parents=True, exist_ok=True)
    rows = history(options.rows, options.reviewed, options.work)
    fitted = rows.where(slice(int(len(rows.fraud) * FITTED)))
    held_out = rows.where(slice(int(len(rows.fraud) * HELD_OUT), None))
    reviewed = fitted.where(fitted.reviewed)
    for name, learner in LEARNERS.items():
        if options.only in (None, name):
            report = {"learner": name, **measured(learner, reviewed, fitted, held_out, options.threads)}
            print(json.dumps(report), flush=True)


def history(count: int, share: float, work: Path) -> Rows:
    """The simulator's rows in the order of time, with their features; computed once a folder."""
    file = work / f"features-{count}.parquet"
    made = traffic(count, 1_000, 10)
    if not file.exists():
        lake = lake_of(work)
        for number in range(FILES):
            add_to_silver(lake, made.slice(number * count // FILES, count // FILES), work, ONE_DAY)
        computed = lake_features.unpacked(
            lake_features.compute_history(lake.read(tables.SILVER_TRANSACTIONS), lake.settings), lake.settings
        )
        pq.write_table(computed.select("timestamp", "position", *account_features.NAMES).toArrow(), file)
    table = pq.read_table(file).sort_by([("timestamp", "ascending"), ("position", "ascending")])
    place = table["position"].to_numpy()
    fraud = np.array([kind is not None for kind in made["kind"].to_pylist()])[place]
    reviewed = (np.random.default_rng(1).random(count) < share)[place]
    columns = np.column_stack([table[name].to_numpy() for name in account_features.NAMES]).astype(np.float32)
    return Rows(columns, fraud, reviewed)


def measured(learner: Any, reviewed: Rows, fitted: Rows, held_out: Rows, threads: int) -> dict[str, Any]:
    begun = time.monotonic()
    score = learner(reviewed, threads)
    few = time.monotonic() - begun
    begun = time.monotonic()
    probability = score(held_out.features)
    scoring = time.monotonic() - begun
    begun = time.monotonic()
    learner(fitted, threads)
    return {
        "area under PR": line(probability, held_out.fraud, 1.0)["area under PR"],
        f"seconds to learn {len(reviewed.fraud):,} rows": round(few, 1),
        f"seconds to learn {len(fitted.fraud):,} rows": round(time.monotonic() - begun, 1),
        "rows scored a second": round(len(probability) / scoring),
    }


def spark_ml(rows: Rows, threads: int) -> Score:
    from pyspark.ml import Pipeline
    from pyspark.ml.classification import GBTClassifier
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.builder.master(f"local[{threads}]").config("spark.driver.memory", "6g").getOrCreate()

    def frame(columns: np.ndarray, **others: np.ndarray) -> Any:
        named = dict(zip(account_features.NAMES, columns.T, strict=True)) | others
        return spark.createDataFrame(pa.table(named)).repartition(threads)

    trees = GBTClassifier(maxDepth=6, maxIter=30, stepSize=0.2, maxBins=64, minInstancesPerNode=10, maxMemoryInMB=512)
    trees.setLabelCol("fraud").setWeightCol("weight").setSeed(1)
    assembler = VectorAssembler(inputCols=list(account_features.NAMES), outputCol="features")
    given = frame(rows.features, fraud=rows.fraud.astype(float), weight=rows.weights).persist()
    fitted = Pipeline(stages=[assembler, trees]).fit(given)
    given.unpersist()

    def score(columns: np.ndarray) -> np.ndarray:
        scored = fitted.transform(frame(columns, n=np.arange(len(columns))))
        answers = scored.select("n", vector_to_array(F.col("probability"))[1].alias("p")).toArrow()
        probability = np.empty(len(columns))
        probability[answers["n"].to_numpy()] = answers["p"].to_numpy()
        return probability

    return score


LIGHTGBM = {
    "objective": "binary",
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_data_in_leaf": 50,
    "seed": 1,
    "verbosity": -1,
}


def lightgbm(rows: Rows, threads: int) -> Score:
    import lightgbm

    given = lightgbm.Dataset(rows.features, rows.fraud.astype(float), weight=rows.weights)
    booster = lightgbm.train({**LIGHTGBM, "num_threads": threads}, given, num_boost_round=60)
    return lambda columns: booster.predict(columns, num_threads=threads)


TREES = {"objective": "binary:logistic", "grow_policy": "lossguide", "max_leaves": 31, "max_depth": 0, "eta": 0.1}


def xgboost(rows: Rows, threads: int) -> Score:
    import xgboost

    given = xgboost.DMatrix(rows.features, rows.fraud.astype(float), weight=rows.weights, nthread=threads)
    booster = xgboost.train({**TREES, "nthread": threads}, given, num_boost_round=60)
    return lambda columns: booster.inplace_predict(columns)


def xgboost_in_two_processes(rows: Rows, threads: int) -> Score:
    """Each process holds half of the rows; they exchange sums of gradients over loopback sockets."""
    import xgboost
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(n_workers=2, host_ip="127.0.0.1")
    tracker.start()
    parts = [rows.where(slice(n, None, 2)) for n in range(2)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        share = max(1, threads // 2)
        texts = pool.starmap(learn_a_part, [(part, tracker.worker_args(), share) for part in parts], chunksize=1)
    assert texts[0] == texts[1]
    booster = xgboost.Booster(model_file=bytearray(texts[0].encode()))
    return lambda columns: booster.inplace_predict(columns)


def learn_a_part(rows: Rows, tracker: dict[str, Any], threads: int) -> str:
    import xgboost
    from xgboost import collective

    with collective.CommunicatorContext(**tracker):
        given = xgboost.DMatrix(rows.features, rows.fraud.astype(float), weight=rows.weights, nthread=threads)
        return xgboost.train({**TREES, "nthread": threads}, given, num_boost_round=60).save_raw("json").decode()


def scikit_learn(rows: Rows, threads: int) -> Score:
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=31, learning_rate=0.1, min_samples_leaf=50, early_stopping=False, random_state=1
    )
    trees.fit(rows.features, rows.fraud, sample_weight=rows.weights)
    return lambda columns: trees.predict_proba(columns)[:, 1]


LEARNERS = {
    "Spark ML": spark_ml,
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
    "XGBoost, two processes": xgboost_in_two_processes,
    "scikit-learn": scikit_learn,
}

if __name__ == "__main__":
    main()
