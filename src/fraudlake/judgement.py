"""Judgement: what a micro-batch of bronze is judged by, kept so that its repetition after a crash judges the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake import tables

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.settings import Settings


@dataclass(frozen=True)
class Judgement:
    """The settings, and the versions of the tables that hold what came before."""

    settings: Settings
    silver_version: int
    quarantine_version: int


def of(file: Path, batch_id: int, lake: Lake) -> Judgement:
    """Return the judgement that ``file`` keeps of this micro-batch; where it keeps none, make and keep one."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    if kept.get("batch") != batch_id:
        kept = {
            "batch": batch_id,
            "timestamp_floor": lake.settings.timestamp_floor,
            "max_ahead": lake.settings.max_ahead.total_seconds(),
            "warn": lake.settings.warn,
            "silver": lake.version(tables.SILVER_TRANSACTIONS),
            "quarantine": lake.version(tables.SILVER_QUARANTINE),
        }
        draft = file.with_suffix(".tmp")
        draft.write_text(json.dumps(kept) + "\n")
        draft.replace(file)
    bounds = {
        "timestamp_floor": kept["timestamp_floor"],
        "max_ahead": timedelta(seconds=kept["max_ahead"]),
        "warn": tuple(kept["warn"]),
    }
    return Judgement(lake.settings.model_copy(update=bounds), kept["silver"], kept["quarantine"])
