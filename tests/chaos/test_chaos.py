"""A few kills of real processes, the same ones each time; `python -m benchmarks.chaos` makes hundreds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import harness
from tests.chaos.schedule import ONE_START, TO_ITS_END, Kill
from tests.conftest import PROGRAM, SHORT_LIVED, run

pytestmark = [pytest.mark.stream, pytest.mark.long, pytest.mark.timeout(1200)]

KILLS = [
    Kill(12, "ingest", "checkpoints/ingest/commits", 0.0, 0),
    Kill(10, ONE_START, "tables/silver_transactions/_delta_log", 0.0, 0),
    Kill(0, "refine", TO_ITS_END, 0.0, 0),
    Kill(0, "train", TO_ITS_END, 0.0, 0),
    Kill(0, "score", "tables/gold_fraud_predictions/_delta_log", 0.0, 0),
    Kill(0, "score", "tables/silver_alerts/_delta_log", 0.0, 0),
]


class Warm(harness.Program):
    """Runs what is not killed in this process."""

    def killed(self, kill: Kill, meanwhile: Callable[[], None]) -> bool:
        if kill.moment != TO_ITS_END:
            return super().killed(kill, meanwhile)
        self.ended(kill.step)
        return False

    def ended(self, step: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            run(self.lake, *step.split())


def test_killed_behind_a_commit_and_between_two_commits_every_table_is_right(
    spark: Any, tmp_path: Path, each_writer: str
) -> None:
    command, folder = PROGRAM[each_writer], tmp_path / "lake"
    outcome = harness.run(folder, 1, KILLS, environment=SHORT_LIVED, command=command, program=Warm)
    assert (outcome.killed["ingest"], outcome.killed[ONE_START], outcome.killed["score"]) == (1, 1, 2)
    assert outcome.differences == []
