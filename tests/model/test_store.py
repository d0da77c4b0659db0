from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fraudlake.model.registry import Registry
from fraudlake.model.store import has_models, model_store

PATIENCE = 120
OPEN = """
import sys
from pathlib import Path
from types import SimpleNamespace
from fraudlake.model.registry import Registry
from fraudlake.model.store import model_store

Registry(model_store(SimpleNamespace(models=Path(sys.argv[1]))), "model", "model").champion()
"""


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_makes_the_store_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    lake: Any = SimpleNamespace(models=tmp_path / "models")
    with subprocess.Popen([sys.executable, "-c", OPEN, str(lake.models)], stderr=subprocess.DEVNULL) as process:
        begun = time.monotonic()
        while not any(file.stat().st_size for file in lake.models.glob("*.db")):
            assert process.poll() is None and time.monotonic() - begun < PATIENCE
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not has_models(lake)

    assert Registry(model_store(lake), "model", "model").champion() is None
    assert [file.name for file in lake.models.glob("*.db")] == ["mlflow.db"]
