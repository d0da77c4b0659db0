"""The queue in a terminal: what one command prints, the next one takes."""

from __future__ import annotations

from pathlib import Path

from fraudlake import tables
from tests.conftest import FraudlakeHere
from tests.desk import small_lake


def test_an_item_can_be_taken_by_the_id_that_the_list_shows(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    lake, day = small_lake.make(tmp_path / "lake"), "2026-03-08"
    drawn = {**small_lake.queue()[-1], "item_id": "0123456789abcdef" * 4, "day": small_lake.DAY.replace(day=8)}
    small_lake.write(lake, tables.GOLD_REVIEW_QUEUE, [drawn])

    (line, *_) = fraudlake_here("--lake", str(lake), "queue", "list", "--day", day).stdout.splitlines()
    shown = line.split()[1]
    taken = fraudlake_here("--lake", str(lake), "review", "take", shown, "--analyst", "ann")

    assert shown == drawn["item_id"]
    assert (taken.returncode, shown in taken.stdout) == (0, True), taken.stderr
