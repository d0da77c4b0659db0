"""Whether reviewed payments are better learned by a model of their own than with all others by a single model.

    python -m benchmarks.feedback [--seeds 20] [--json]

Each day, analysts decide on 100 accounts, a tenth of which is drawn at random; their verdicts are known the next day.
Fraud that nobody reviewed is reported 7 to 20 days later; a payment that is older and was not reported is genuine. The
fraud of the simulator changes four times in 60 days. The ways to learn:

- delayed: one model, of the payments that are older than 20 days, whose labels are all known;
- one: one model, of these and of all that is known of later payments: verdicts, and reported fraud;
- joined: the first model, and a second one of what is known of later payments; the probability is the average of both
  (Dal Pozzolo, Boracchi, Caelen, Alippi and Bontempi, "Credit Card Fraud Detection and Concept-Drift Adaptation
  with Delayed Supervised Information", IJCNN 2015);
- weighted: the same, where a reviewed account that was drawn weighs as many as it represents (the inverse of its
  ``inclusion_probability``).

Money is saved if an account with fraud is reviewed on the day of the fraud. Each way reviews what it ranks highest, so
it learns from its own verdicts. Classifier, training and queue are the package's own.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from datetime import timedelta
from itertools import combinations

import numpy as np

from benchmarks.learning_loop import ALERTS, Plan, cases, learned, queue_of, say
from benchmarks.learning_worlds import World, drifting
from fraudlake.model.classifier import Classifier

REPORTED = (7, 20)
"""Days after which a fraud is reported: at least, and at most."""
DELAY = REPORTED[1]
"""Days after which all labels are known."""
BEGIN = 35
"""The first day of the reviews; the labels of the first days are known by then."""
DRIFTS = (47, 59, 71, 83)
DAYS = 60
EVERY = 4
"""Days between two trainings."""
SAMPLED = 0.15
"""The share of genuine payments without a verdict that is learned, with the weight of all of them."""
WAYS = ("delayed", "one", "joined", "weighted")
PLAN = Plan(size=100)
EXPLORE = 0.1
_RESAMPLES = 10_000


def saved(world: World, way: str, seed: int) -> float:
    """Return the share of the amount of fraud that is saved in the days of the reviews."""
    begins = np.searchsorted(world.day, np.arange(world.days + 1))
    reviewed = np.zeros(len(world.day), bool)
    stands_for = np.ones(len(world.day))
    known_on = reported_on(world, seed)
    model: Classifier | None = None
    found, total = 0.0, 0.0
    for day in range(BEGIN, BEGIN + DAYS):
        if (day - BEGIN) % EVERY == 0:
            model = trained(world, way, day, reviewed, stands_for, known_on) or model
        assert model is not None
        rows = np.arange(begins[day], begins[day + 1])
        probability = model.probabilities(world.rows.features[rows])
        accounts, of = np.unique(world.rows.account[rows], return_inverse=True)
        at_risk, is_case = cases(probability, world.rows.amount[rows], of, ALERTS * PLAN.size)
        items = queue_of(world.start + timedelta(days=day), accounts, at_risk, is_case, PLAN, EXPLORE, seed)
        represented = 1 / items["inclusion_probability"].to_numpy()
        listed = np.array(items["account_id"].to_pylist(), np.int64)
        order = np.argsort(listed)
        at = order[np.minimum(np.searchsorted(listed, world.rows.account[rows], sorter=order), len(listed) - 1)]
        is_reviewed = listed[at] == world.rows.account[rows]
        reviewed[rows] = is_reviewed
        stands_for[rows] = np.where(is_reviewed, represented[at], 1.0)
        lost = world.rows.amount[rows] * world.rows.fraud[rows]
        found, total = found + float(lost[is_reviewed].sum()), total + float(lost.sum())
    return found / total


def reported_on(world: World, seed: int) -> np.ndarray:
    """Return the day on which each payment is reported if it is fraud; all of an account's day are reported at once."""
    _, of = np.unique(np.column_stack([world.rows.account, world.day]), axis=0, return_inverse=True)
    late = np.random.default_rng(seed).integers(REPORTED[0], REPORTED[1], of.max() + 1, endpoint=True)
    return world.day + late[of.ravel()]


def trained(
    world: World, way: str, day: int, reviewed: np.ndarray, stands_for: np.ndarray, known_on: np.ndarray
) -> Classifier | None:
    """Train the model of a way on a day; None if there is too little to learn from."""
    is_late = (world.day >= day - DELAY) & (world.day < day)
    is_known = is_late & (reviewed | ((world.rows.fraud == 1) & (known_on <= day)))
    is_sampled = np.random.default_rng(day).random(len(world.day)) < SAMPLED
    is_old = (world.day < day - DELAY) & (is_sampled | (world.rows.fraud == 1))
    weights = np.where(is_known | (world.rows.fraud == 1), 1.0, 1 / SAMPLED)
    if way in ("delayed", "one"):
        chosen = is_old if way == "delayed" else is_old | is_known
        return learned(world, np.flatnonzero(chosen), weights[chosen])
    of_feedback = stands_for if way == "weighted" else weights
    model = learned(world, np.flatnonzero(is_old), weights[is_old])
    feedback = learned(world, np.flatnonzero(is_known), of_feedback[is_known])
    return model and replace(model, feedback=feedback)


def difference(of: np.ndarray) -> dict[str, float]:
    """Return the mean of paired differences, and the 90 % interval of a bootstrap of seeds."""
    draws = np.random.default_rng(1).choice(of, (_RESAMPLES, len(of))).mean(axis=1)
    low, high = np.quantile(draws, (0.05, 0.95))
    return {"mean": round(float(of.mean()), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--accounts", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shares: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(1, options.seeds + 1):
        world = drifting(seed, options.accounts, BEGIN + DAYS, DRIFTS)
        say(f"seed {seed}: {len(world.day):,} payments, {int(world.rows.fraud.sum()):,} fraud")
        for way in WAYS:
            began = time.monotonic()
            shares[way].append(saved(world, way, seed))
            say(f"seed {seed}, {way}: {shares[way][-1]:.3f} in {time.monotonic() - began:.0f} s")
    values = {way: np.array(of) for way, of in shares.items()}
    result = {
        "saved": {way: difference(of) for way, of in values.items()},
        "differences": {f"{new} - {old}": difference(values[new] - values[old]) for old, new in combinations(WAYS, 2)},
    }
    print(json.dumps(result, indent=None if options.json else 1))


if __name__ == "__main__":
    main()
