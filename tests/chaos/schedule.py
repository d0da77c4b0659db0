"""Schedules: a seed becomes the commands that are run, the files that land meanwhile, and the moments of the kills."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

MOMENTS = {
    "ingest": ("checkpoints/ingest/offsets", "tables/bronze_transactions", "tables/bronze_transactions/_delta_log",
               "tables/bronze_files/_delta_log", "checkpoints/ingest/commits"),
    "refine": ("checkpoints/refine/offsets", "tables/silver_transactions", "tables/silver_transactions/_delta_log",
               "tables/silver_quarantine/_delta_log", "checkpoints/refine/commits"),
    "detect": ("checkpoints/detect/offsets", "checkpoints/detect/state", "tables/silver_alerts/_delta_log",
               "checkpoints/detect/commits"),
    "aggregate": ("checkpoints/alert_windows/offsets", "tables/gold_alert_windows", "checkpoints/account_daily/commits",
                  "tables/gold_account_daily/_delta_log", "tables/gold_alert_windows/_delta_log"),
    "train": ("models", "tables/gold_models/_delta_log"),
    "score": ("checkpoints/score/offsets", "checkpoints/score/state", "tables/gold_fraud_predictions",
              "tables/gold_fraud_predictions/_delta_log", "checkpoints/score/commits"),
    "optimize": ("tables/silver_transactions", "tables/silver_transactions/_delta_log",
                 "tables/gold_account_daily/_delta_log"),
}  # fmt: skip
"""Folders of the lake by step: a new file in one is a moment to kill at. A table's own folder holds its data files."""
AT_ANY_TIME = "any time"


@dataclass(frozen=True)
class Kill:
    """A command that is run and killed: when ``delay`` seconds have passed after a new file in ``moment``."""

    files: int
    """How many files land before it, and one more while it runs."""
    step: str
    moment: str
    delay: float
    skip: int
    """How many new files in the folder are let pass."""


def schedule(seed: int, kills: int, files: int, slowness: float = 1.0) -> list[Kill]:
    """Draw the kills of a run: the steps in the order of the main job, again and again, some left out each time.

    Args:
        seed: gives the same schedule each time.
        kills: how many.
        files: how many files land in all, before and during the kills of ``ingest``.
        slowness: by what the seconds of kills at any time are multiplied; a start of Spark takes about ten.
    """
    draw = random.Random(seed)
    steps = ["ingest"]
    while len(steps) < kills:
        steps += [step for step in MOMENTS if draw.random() < (0.3 if step == "train" else 0.8)]
    steps = steps[:kills]
    begins = sorted(draw.sample(range(1, files), steps.count("ingest") - 1))
    shares = [end - begin for begin, end in zip([0, *begins], [*begins, files], strict=True)]
    return [_kill(draw, step, shares.pop() if step == "ingest" else 0, slowness) for step in steps]


def _kill(draw: random.Random, step: str, files: int, slowness: float) -> Kill:
    if draw.random() < 0.3:
        return Kill(files, step, AT_ANY_TIME, round(draw.uniform(1, 30) * slowness, 2), 0)
    return Kill(files, step, draw.choice(MOMENTS[step]), draw.choice((0.0, 0.0, 0.01, 0.1)), draw.choice((0, 0, 1, 3)))


def shortest(kills: list[Kill], fails: Callable[[list[Kill]], bool]) -> list[Kill]:
    """Leave kills out of a schedule that fails, as long as it still fails; what landed before them lands with the next.

    ``fails`` runs a schedule on a new lake.
    """
    at = 0
    while at < len(kills):
        fewer = without(kills, at)
        if fewer and fails(fewer):
            kills = fewer
        else:
            at += 1
    return kills


def without(kills: list[Kill], at: int) -> list[Kill]:
    """Return a schedule without one of its kills; the same files land."""
    left = [*kills[:at], *kills[at + 1 :]]
    if not left:
        return left
    heir = min(at, len(left) - 1)
    left[heir] = replace(left[heir], files=left[heir].files + kills[at].files)
    return left
