"""Whether a model that learns from what analysts review goes blind, and whether the estimates of it are honest.

    python -m benchmarks.learning_loop [--seeds 20] [--handbook DATA] [--plot benchmarks/learning_loop.png] [--json]

Each day, analysts decide on a queue of items: the accounts that the model finds most valuable, and, in the loops that
explore, a tenth that is drawn at random among all others. A verdict is right, and known seven days later. Each week the
model learns again, from a first period whose labels are all known and from the verdicts known by then. The loops:

- top: no draws, all items are the most valuable accounts;
- explore: draws, and every verdict counts once in training;
- weighted: draws, and a verdict counts as often as it has accounts to stand for.

The simulator's fraud is of one kind until the change of regime, from which on there is another kind, too. The
Handbook's kinds do not change. Truth is hidden from the loops: it only judges them. Classifier, training, queue and
estimates are the package's own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.learning_worlds import World, handbook, simulated, taken
from fraudlake.errors import FraudlakeError
from fraudlake.model import search
from fraudlake.model.classifier import Classifier
from fraudlake_desk.queue import draw, missed, queue

LABEL_DELAY = 7
"""Days after which a verdict is known."""
COLORS = {"top": "#c0392b", "explore": "#2f5d8a", "weighted": "#1e8449"}
LOOPS = {"top": (0.0, False), "explore": (0.1, False), "weighted": (0.1, True)}
"""For each loop the share of a queue that is drawn, and whether verdicts are weighted in training."""
HOLDOUT = 0.3
HANDBOOK_DAYS = 63
ALERTS = 2
"""The accounts that the model raises alerts on, in sizes of the queue."""


@dataclass(frozen=True)
class Plan:
    """The days of a loop, and the size of a day's queue."""

    labelled: int = 14
    """The first days, whose labels are all known when the loop begins."""
    size: int = 40


@dataclass(frozen=True)
class Week:
    """A week of a loop: its truth, by accounts' days, and what the draws say of it (none without draws)."""

    number: int
    """Weeks since the change of regime; without one, since the beginning."""
    fraud: int
    listed: int
    """Fraud that the lists had; with that which was drawn it is ``found``."""
    found: int
    new: int
    new_found: int
    """Fraud of the new kind, and how much of it was found."""
    missed: dict[str, tuple[int, float]]
    """Accounts and amount of the fraud that no list had: of accounts with alerts ``unreviewed``, else ``unflagged``."""
    estimated: missed.Missed | None

    @property
    def held(self) -> dict[str, bool]:
        """Whether each interval holds the truth."""
        assert self.estimated is not None
        held = {"reviewed": _holds(self.estimated.reviewed, self.listed / self.fraud)}
        for name, (accounts, amount) in self.missed.items():
            others: missed.Others = getattr(self.estimated, name)
            held[name], held[f"{name}_amount"] = _holds(others.accounts, accounts), _holds(others.amount, amount)
        return held


def _holds(estimate: missed.Estimate, truth: float) -> bool:
    slack = 1e-9 * max(1.0, abs(truth))
    return estimate.low - slack <= truth <= estimate.high + slack


class Reviewed:
    """The transactions that verdicts are about: their numbers in the world, when they are known, and weights."""

    def __init__(self, first: np.ndarray) -> None:
        """Begin with transactions whose labels are known."""
        self.rows, self.known, self.weights = [first], [0], [1.0]

    def add(self, rows: np.ndarray, known: int, weight: float) -> None:
        self.rows.append(rows)
        self.known.append(known)
        self.weights.append(weight)

    def known_on(self, day: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the transactions whose labels are known on a day, and their weights."""
        chosen = [at for at, known in enumerate(self.known) if known <= day]
        rows = np.concatenate([self.rows[at] for at in chosen])
        weights = np.concatenate([np.full(len(self.rows[at]), self.weights[at]) for at in chosen])
        return rows, weights


def loop(world: World, plan: Plan, explore: float, is_weighted: bool, seed: int) -> Iterator[Week]:
    """Review and learn from the end of the labelled days to the world's last whole week."""
    begins = np.searchsorted(world.day, np.arange(world.days + 1))
    reviewed = Reviewed(np.arange(begins[plan.labelled]))
    classifier: Classifier | None = None
    for monday in range(plan.labelled, world.days - 6, 7):
        classifier = learned(world, *reviewed.known_on(monday)) or classifier
        assert classifier is not None
        of_week = slice(begins[monday], begins[monday + 7])
        probability = np.full(len(world.day), np.nan)
        probability[of_week] = classifier.probabilities(world.rows.features[of_week])
        queues, verdicts, amounts = [], {}, {}
        fraud, new, found, new_found = 0, 0, 0, 0
        left = {"unflagged": (0, 0.0), "unreviewed": (0, 0.0)}
        for day in range(monday, monday + 7):
            rows = np.arange(begins[day], begins[day + 1])
            accounts, of = np.unique(world.rows.account[rows], return_inverse=True)
            is_fraud, is_new = (flags[rows].astype(bool) for flags in (world.rows.fraud, world.is_new))
            has_fraud, has_new = (np.bincount(of, flags) > 0 for flags in (is_fraud, is_new))
            fraud_amount = np.bincount(of, world.rows.amount[rows] * is_fraud)
            at_risk, is_case = cases(probability[rows], world.rows.amount[rows], of, ALERTS * plan.size)
            items = queue_of(world.start + timedelta(days=day), accounts, at_risk, is_case, plan, explore, seed)
            at = np.searchsorted(accounts, np.array(items["account_id"].to_pylist(), np.int64))
            is_drawn = np.array(items["kind"].to_pylist()) == "drawn"
            population = items["population"].to_pylist()[0]
            weight = population / max(int(is_drawn.sum()), 1)
            for account, drawn, item in zip(at, is_drawn, items["item_id"].to_pylist(), strict=True):
                stands_for = weight if drawn and is_weighted else 1.0
                reviewed.add(rows[of == account], day + LABEL_DELAY, stands_for)
                verdicts[item] = "fraud" if has_fraud[account] else "genuine"
                amounts[item] = float(fraud_amount[account])
            queues.append(items)
            fraud, new = fraud + int(has_fraud.sum()), new + int(has_new.sum())
            found, new_found = found + int(has_fraud[at].sum()), new_found + int(has_new[at].sum())
            is_missed = has_fraud.copy()
            is_missed[at[~is_drawn]] = False
            for name, chosen in (("unflagged", is_missed & ~is_case), ("unreviewed", is_missed & is_case)):
                count, amount = left[name]
                left[name] = count + int(chosen.sum()), amount + float(fraud_amount[chosen].sum())
        estimated = missed.over(pa.concat_tables(queues), verdicts, amounts=amounts)
        drawn_fraud = estimated.unflagged.drawn + estimated.unreviewed.drawn if estimated else 0
        number = (monday - (world.change if world.change is not None else plan.labelled)) // 7
        yield Week(number, fraud, found - drawn_fraud, found, new, new_found, left, estimated)


def learned(world: World, at: np.ndarray, weights: np.ndarray) -> Classifier | None:
    """Train as the package does; None if there is too little to learn from."""
    order = np.argsort(at, kind="stable")
    rows = taken(world.rows, at[order], weights[order])
    try:
        return search.search(rows, search.split(rows, HOLDOUT), "trees").final
    except FraudlakeError:
        return None


def cases(probability: np.ndarray, amount: np.ndarray, of: np.ndarray, alerts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each account's priority (probability times the amount of its alerts), and whether it has alerts.

    Alerts are raised on the transactions that are as probable as those of the most probable accounts, ``alerts`` many.
    """
    highest = np.full(of.max() + 1, -1.0)
    np.maximum.at(highest, of, probability)
    level = np.sort(highest)[-min(alerts, len(highest))]
    is_alert = probability >= level
    at_risk = np.bincount(of, amount * is_alert)
    return highest * at_risk, highest >= level


def queue_of(
    day: date, accounts: np.ndarray, priority: np.ndarray, is_case: np.ndarray, plan: Plan, explore: float, seed: int
) -> pa.Table:
    """Return the queue of a day, as the package chooses it among the accounts with alerts and all others."""
    draws = draw.size(plan.size, explore)
    candidates = [
        {"item_id": f"{day} {accounts[at]}", "kind": "case", "account_id": str(accounts[at]), "priority": priority[at]}
        for at in np.flatnonzero(is_case)
    ]
    listed = queue.listed(candidates, plan.size - draws)
    others = set(accounts.astype(str)).difference(row["account_id"] for row in listed)
    flagged = set(accounts[is_case].astype(str))
    drawn = [
        {"item_id": queue.drawn_id(day, account), "kind": "drawn", "account_id": account, "priority": 0.0}
        for account in draw.drawn(others, draws, day, seed)
    ]
    common = {"day": day, "population": len(others)}
    of_case = common | {"is_flagged": None, "inclusion_probability": 1.0}
    of_drawn = common | {"amount_at_risk": 0.0, "inclusion_probability": min(1.0, len(drawn) / max(len(others), 1))}
    rows = [
        *({**row, **of_case, "amount_at_risk": row["priority"]} for row in listed),
        *({**row, **of_drawn, "is_flagged": row["account_id"] in flagged} for row in drawn),
    ]
    return pa.Table.from_pylist(rows)


@dataclass(frozen=True)
class Run:
    """The weeks of a loop, by seed."""

    world: str
    loop: str
    seed: int
    weeks: list[Week]


def runs(world: World, plan: Plan, loops: list[str], seed: int) -> Iterator[Run]:
    """Run the loops in a world."""
    for name in loops:
        began = time.monotonic()
        yield Run(world.name, name, seed, list(loop(world, plan, *LOOPS[name], seed)))
        say(f"{world.name}, seed {seed}, {name}: {time.monotonic() - began:.0f} s")


def table(done: list[Run]) -> dict[str, Any]:
    """Return the figures of all runs, by world and loop."""
    result: dict[str, Any] = {}
    for world, name in dict.fromkeys((run.world, run.loop) for run in done):
        of = [run.weeks for run in done if (run.world, run.loop) == (world, name)]
        result.setdefault(world, {})[name] = figures(of)
    return result


def figures(of: list[list[Week]]) -> dict[str, Any]:
    """Return the figures of the runs of a loop: medians over the seeds by week, and how many intervals hold the truth.

    Recalls are shares of accounts' days with fraud: of all that was found, of the new kind, of what the lists had, and
    the naive one, the share of the known fraud that lists had.
    """
    weeks = [week for of_seed in of for week in of_seed]
    estimated = [(week, week.estimated) for week in weeks if week.estimated is not None]
    back = [week for of_seed in of if (week := found_again(of_seed)) is not None]
    result = {
        "seeds": len(of),
        "found": medians((week.number, week.found / week.fraud) for week in weeks),
        "new_found": medians((week.number, week.new_found / week.new) for week in weeks if week.new),
        "found_again": len(back),
        "weeks_until": float(np.median(back)) if back else None,
    }
    if estimated:
        held = [week.held for week, _ in estimated]
        result |= {
            "listed": medians((week.number, week.listed / week.fraud) for week in weeks),
            "naive": medians(
                (week.number, one.naive_recall) for week, one in estimated if one.naive_recall is not None
            ),
            "weeks": len(held),
            "held": {name: round(float(np.mean([one[name] for one in held])), 3) for name in held[0]},
        }
    return result


def medians(values: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return the median of each week's values."""
    by_week: dict[int, list[float]] = {}
    for week, value in values:
        by_week.setdefault(week, []).append(value)
    return {week: round(float(np.median(of_week)), 3) for week, of_week in sorted(by_week.items())}


def found_again(weeks: list[Week]) -> int | None:
    """Return the week after the change from which on at least half of the new fraud is found; None if there is none."""
    share = [(week.number, week.new_found / week.new >= 0.5) for week in weeks if week.new]
    lost = [at for at, (_, is_found) in enumerate(share) if not is_found]
    after = share[lost[-1] + 1 if lost else 0 :]
    return after[0][0] if after else None


def plot(done: list[Run], file: Path) -> None:
    """Draw the share of the new fraud that is found, and a seed's intervals of recall, of each world."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    worlds = [*dict.fromkeys(run.world for run in done)]
    figure, axes = pyplot.subplots(1, 1 + len(worlds), figsize=(5.2 * (1 + len(worlds)), 3.8), layout="constrained")
    for (name, color), label in zip(COLORS.items(), ("only the top", "a tenth drawn", "drawn, weighted"), strict=True):
        by_week: dict[int, list[float]] = {}
        for run in done:
            for week in run.weeks if run.loop == name else ():
                if week.new:
                    by_week.setdefault(week.number, []).append(week.new_found / week.new)
        if by_week:
            low, middle, high = np.percentile([*by_week.values()], (10, 50, 90), axis=1)
            axes[0].fill_between([*by_week], low, high, color=color, alpha=0.15, linewidth=0)
            axes[0].plot([*by_week], middle, color=color, marker="o", markersize=3, label=label)
    axes[0].set(title="New fraud that is found", xlabel="weeks since the change of regime", ylim=(-0.03, 1.03))
    axes[0].legend(frameon=False)
    axes[0].xaxis.set_major_locator(pyplot.MaxNLocator(integer=True))
    for world, axis in zip(worlds, axes[1:], strict=True):
        run = next(run for run in done if run.world == world and run.loop == "explore")
        for week in run.weeks:
            if week.estimated is not None:
                _, low, high = week.estimated.reviewed
                axis.plot([week.number] * 2, [low, high], color="#2f5d8a", linewidth=5, alpha=0.35)
                axis.plot(week.number, week.estimated.naive_recall, "x", color="#c0392b")
            axis.plot(week.number, week.listed / week.fraud, "o", color="#222222", markersize=4)
        axis.set(title=f"Recall of the lists, {world}, seed {run.seed}", xlabel="week", ylim=(-0.03, 1.03))
        axis.plot([], [], color="#2f5d8a", linewidth=5, alpha=0.35, label="90 % interval")
        axis.plot([], [], "o", color="#222222", markersize=4, label="truth")
        axis.plot([], [], "x", color="#c0392b", label="naive")
        axis.legend(frameon=False, loc="lower right", fontsize=8)
    figure.savefig(file, dpi=110)


_BEGUN = time.monotonic()


def say(text: str) -> None:
    """Report progress on standard error."""
    print(f"{time.monotonic() - _BEGUN:6.1f} s  {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--accounts", type=int, default=700, help="accounts of the simulator")
    parser.add_argument("--days", type=int, default=56, help="days of the simulator")
    parser.add_argument("--change", type=int, default=21, help="the day of the change of regime")
    parser.add_argument("--handbook", type=Path, metavar="DATA", help="folder of the Handbook's frames")
    parser.add_argument("--loops", default=",".join(LOOPS), help="loops of the simulator; the Handbook has explore")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    plan, loops = Plan(), options.loops.split(",")
    done: list[Run] = []
    for seed in range(1, options.seeds + 1):
        say(f"simulating with seed {seed}")
        done += runs(simulated(seed, options.accounts, options.days, options.change), plan, loops, seed)
    if options.handbook:
        world = handbook(options.handbook, HANDBOOK_DAYS)
        for seed in range(1, options.seeds + 1):
            done += runs(world, plan, ["explore"], seed)
    if options.plot:
        plot(done, options.plot)
    print(json.dumps(table(done), indent=None if options.json else 1))


if __name__ == "__main__":
    main()
