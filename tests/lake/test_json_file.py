from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from fraudlake.lake import json_file
from fraudlake.lake.checkpoint import Checkpoint

TRIALS, PROCESSES = 100, 4
_together: Any = None


def _meet(barrier: Any) -> None:
    global _together
    _together = barrier


def _ids(root: Path) -> list[str]:
    """Make the ids of checkpoints at the same moments as other processes."""
    ids = []
    for trial in range(TRIALS):
        _together.wait(timeout=10)
        ids.append(Checkpoint("refine", root / str(trial)).notes.id)
    return ids


def test_processes_that_start_a_step_at_once_see_one_id_of_its_checkpoint(tmp_path: Path) -> None:
    context = get_context("fork")
    with ProcessPoolExecutor(PROCESSES, context, _meet, (context.Barrier(PROCESSES),)) as pool:
        first, *others = [task.result() for task in [pool.submit(_ids, tmp_path) for _ in range(PROCESSES)]]
    assert others == [first] * (PROCESSES - 1)
    assert len(set(first)) == TRIALS


def test_what_is_created_is_created_once_where_the_disk_has_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    file = tmp_path / "object.json"
    assert [json_file.create(file, {"number": number}) for number in (1, 2)] == [True, False]
    assert json.loads(file.read_text()) == {"number": 1}
    assert list(tmp_path.iterdir()) == [file]
