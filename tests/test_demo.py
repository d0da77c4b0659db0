"""``make demo``: what it lands, and what it prints."""

from __future__ import annotations

import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from fraudlake_tools.simulator import Traffic, batches
from tests.conftest import FLINK, FraudlakeHere

HOME = Path(__file__).parents[1]
TERMINALS = HOME / "fixtures" / "terminals"
SHOWN = re.search(r"ends like this:\n\n(.*?)\n\n\[", (HOME / "README.md").read_text(), re.DOTALL)


def terminals() -> pd.DataFrame:
    return pq.read_table(TERMINALS).to_pandas()


def test_the_terminals_are_those_of_a_simulation() -> None:
    traffic = Traffic(accounts=2000, rate=0.5, fraud=0, columns=True)
    pd.testing.assert_frame_equal(terminals(), next(batches(traffic, 5000)).to_pandas())


def crowds() -> pd.DataFrame:
    """The payments at whose terminal more than five accounts paid within an hour."""
    rows = terminals()
    for _, group in rows.groupby("terminalId"):
        for at, time in group["dt"].items():
            near = group[(group["dt"] >= time - timedelta(hours=1)) & (group["dt"] <= time)]
            rows.loc[at, "accounts"] = near["accountId"].nunique()
    return rows.query("accounts > 5")


@pytest.mark.long
@pytest.mark.stream
def test_the_demo_prints_what_the_readme_shows(spark: Any, tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    root = tmp_path / "lake"
    for folder, name in (
        (FLINK / "tutorial/int96", "tutorial"),
        (FLINK / "twodays", "twodays"),
        (TERMINALS, "terminals"),
    ):
        shutil.copytree(folder, root / "landing" / name)
    done = fraudlake_here(
        "--lake", str(root), "--config", str(HOME / "examples/terminals/fraudlake.toml"), "run", COLUMNS="200"
    )

    assert SHOWN is not None
    printed = {line.strip() for line in done.stdout.splitlines()}
    assert {line.strip() for line in SHOWN[1].splitlines() if line.strip() not in ("", "…")} <= printed
    crowded = crowds()
    assert f"Alerts by terminal ({len(crowded)})" in printed
    assert f"crowded_terminal: {crowded['terminalId'].nunique()} different keys" in printed
