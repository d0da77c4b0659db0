"""The settings that docs/tutorials/own-columns.md shows are valid together."""

from __future__ import annotations

import re
from pathlib import Path

from fraudlake import settings
from fraudlake.detection import rule_table
from fraudlake.settings.features import require_declared

PAGE = Path(__file__).parents[1] / "docs" / "tutorials" / "own-columns.md"


def test_the_pages_settings_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "fraudlake.toml"
    file.write_text("\n".join(re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    given = settings.load(file)
    assert [rule.entity for rule in given.rules] == ["terminal"]
    assert [feature.entity for feature in given.features] == ["terminal", "terminal"]
    rule_table.require_valid(given.rules, given)
    require_declared(given.features, given.columns, given.entities, given.label_delay)
