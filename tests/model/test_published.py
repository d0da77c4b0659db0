"""The published champion: what is said before it loses a feature."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner

from fraudlake import tables
from fraudlake.lake import open_lake
from fraudlake.model.classifier import Classifier, Logistic
from fraudlake.settings import Settings
from fraudlake_cli.commands import cli
from tests import plain_lake

DECLARED = [{"name": name, "aggregate": "count", "window": "7 days"} for name in ("n", "other")]


def test_retiring_a_feature_that_the_champion_needs_names_its_version(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    open_lake(Settings(lake=root, features=json.dumps(DECLARED)))
    (root / "landing").mkdir()
    model = Classifier(("amount", "n"), Logistic([0.0] * 2, [1.0] * 2, [1.0, 1.0], 0.0), 1.0, 0.0)
    row = {"model_version": "7", "model": model.to_bytes(), "profile": "{}", "published_at": datetime.now(UTC)}
    plain_lake.fill(root, tables.GOLD_MODELS, row)

    def apply(*kept: str) -> str:
        lines = [f'[[features]]\nname = "{name}"\naggregate = "count"\nwindow = "7 days"\n' for name in kept]
        (tmp_path / "features.toml").write_text("".join(lines) or "features = []\n")
        arguments = ["--lake", str(root), "features", "apply", str(tmp_path / "features.toml")]
        applied = CliRunner().invoke(cli, arguments)
        assert applied.exit_code == 0, applied.output
        return applied.stderr

    assert apply("n") == ""
    assert "version 7, the champion, needs n and cannot score without: run 'fraudlake train'" in apply("other")
    assert "version 7, the champion, needs n" in apply()
