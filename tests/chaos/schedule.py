"""Schedules: a seed becomes the commands that are run, the files that land meanwhile, and the moments of the kills."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

AT_ANY_TIME = "any time"
TO_ITS_END = "no such folder"
"""The command runs to its end."""
SHADOW = "rules apply shadow.toml --yes"
ONE_START = "run --steps ingest,refine,detect"
MOMENTS = {
    ONE_START: ("checkpoints/ingest/commits", "tables/bronze_transactions/_delta_log", "checkpoints/refine/offsets",
                "tables/silver_transactions/_delta_log", "checkpoints/refine/commits", "checkpoints/detect/offsets",
                "tables/silver_alerts/_delta_log", "checkpoints/detect/commits"),
    "ingest": ("checkpoints/ingest/offsets", "tables/bronze_transactions", "tables/bronze_transactions/_delta_log",
               "tables/bronze_files/_delta_log", "checkpoints/ingest/commits"),
    SHADOW: ("tables/silver_rules/_delta_log",),
    "refine": ("checkpoints/refine/offsets", "spool", "tables/silver_transactions",
               "tables/silver_transactions/_delta_log", "tables/silver_quarantine/_delta_log",
               "checkpoints/refine/commits"),
    "detect": ("checkpoints/detect/offsets", "checkpoints/detect/state", "tables/silver_alerts/_delta_log",
               "checkpoints/detect/commits"),
    "rules apply live.toml --yes": ("tables/silver_rules/_delta_log",),
    "deliver --to file": ("checkpoints/deliver_file/offsets", "delivered/file", "tables/silver_deliveries/_delta_log",
                          "checkpoints/deliver_file/commits"),
    "deliver --to webhook": ("checkpoints/deliver_webhook/offsets", "tables/silver_deliveries/_delta_log",
                             "checkpoints/deliver_webhook/commits"),
    "aggregate": ("checkpoints/account_daily/offsets", "tables/gold_account_tiles", "checkpoints/account_daily/commits",
                  "tables/gold_account_daily/_delta_log", "tables/gold_account_tiles/_delta_log",
                  "tables/gold_cases/_delta_log"),
    "train": ("models", "tables/gold_models/_delta_log", TO_ITS_END, TO_ITS_END),
    "score": ("checkpoints/score/offsets", "checkpoints/score/state", "tables/gold_fraud_predictions",
              "tables/gold_fraud_predictions/_delta_log", "tables/silver_alerts/_delta_log",
              "tables/silver_alerts", "checkpoints/score/commits"),
    "optimize": ("spool/rewriting_silver_transactions/_delta_log", "tables/silver_transactions/_delta_log",
                 "tables/bronze_transactions", "tables/gold_account_daily/_delta_log"),
}  # fmt: skip
"""Folders of the lake by step: a new file in one is a moment to kill at. A table's own folder holds its data files."""
FORGET = "forget departing --yes"
INGEST_KAFKA = "ingest --source kafka"
KAFKA_MOMENTS = {
    INGEST_KAFKA: ("checkpoints/ingest_kafka/offsets", "spool", "tables/bronze_transactions",
                   "tables/bronze_transactions/_delta_log", "checkpoints/ingest_kafka/commits"),
}  # fmt: skip
STANDSTILL_MOMENTS = {
    "replay --from 2026-03-07 --to 2026-03-08 --apply": ("replays", "tables/silver_shadow_alerts/_delta_log"),
    FORGET: ("tables/silver_quarantine/_delta_log", "tables/bronze_transactions/_delta_log",
             "tables/gold_account_tiles/_delta_log", "tables/gold_forgotten/_delta_log", "checkpoints/detect"),
}  # fmt: skip
"""Of commands before which all that landed must be read, and which must be repeated when they were killed."""
LIKELY = (
    {"train": 0.3}
    | dict.fromkeys((step for step in MOMENTS if step.startswith(("rules", "deliver"))), 0.4)
    | dict.fromkeys(STANDSTILL_MOMENTS, 0.2)
)
"""How likely a step is in a round; the others are in four of five."""


@dataclass(frozen=True)
class Kill:
    """A command that is run and killed: when ``delay`` seconds have passed after a new file in ``moment``."""

    files: int
    """How many files land before it and while it runs."""
    step: str
    """What follows ``fraudlake`` on the command line."""
    moment: str
    delay: float
    skip: int
    """How many new files in the folder are let pass."""
    sigterm: bool = False
    """Whether the process gets SIGTERM; else it and all that it started get SIGKILL."""
    beside: str = ""
    """A command that runs in parallel, to its end."""
    broker_away: bool = False
    """Whether the broker is killed at the moment, and the step when the broker is back."""


def schedule(
    seed: int, kills: int, files: int, slowness: float = 1.0, *, kafka: bool = False, only: Collection[str] = ()
) -> list[Kill]:
    """Draw the kills of a run: the steps in the order of the main job, again and again, some left out each time.

    Args:
        seed: gives the same schedule each time.
        kills: how many.
        files: how many files land in all, before and during the kills of ``ingest``; as many groups of messages.
        slowness: by what the seconds of kills at any time are multiplied; a start of Spark takes about ten.
        kafka: whether messages are ingested, too.
        only: first words of the commands that every round has; by default each has most of all commands.
    """
    draw, moments = random.Random(seed), {**(KAFKA_MOMENTS if kafka else {}), **MOMENTS, **STANDSTILL_MOMENTS}
    steps = ["ingest"]
    while len(steps) < kills:
        likely = {step: float(step.split()[0] in only) for step in moments} if only else LIKELY
        steps += [step for step in moments if draw.random() < likely.get(step, 0.8)]
    steps = steps[:kills]
    landing = [step for step in steps if step in ("ingest", ONE_START, INGEST_KAFKA)]
    begins = sorted(draw.sample(range(1, files), len(landing) - 1))
    shares = [end - begin for begin, end in zip([0, *begins], [*begins, files], strict=True)]
    return [_kill(draw, step, moments[step], shares.pop() if step in landing else 0, slowness) for step in steps]


def _kill(draw: random.Random, step: str, moments: tuple[str, ...], files: int, slowness: float) -> Kill:
    if step == INGEST_KAFKA and draw.random() < 0.3:
        return Kill(files, step, draw.choice(moments), 0.0, 0, broker_away=True)
    beside = draw.choice(("", "model promote --force", "model rollback")) if step == "score" else ""
    sigterm = draw.random() < 0.2
    if draw.random() < 0.3:
        return Kill(files, step, AT_ANY_TIME, round(draw.uniform(1, 30) * slowness, 2), 0, sigterm, beside)
    delay, skip = draw.choice((0.0, 0.0, 0.01, 0.1)), draw.choice((0, 0, 1, 3))
    return Kill(files, step, draw.choice(moments), delay, skip, sigterm, beside)


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
