"""The settings of the examples: columns, entities and features that a lake takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fraudlake import settings
from fraudlake.settings.features import require_declared, require_kept

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["five_kinds", "handbook"])
def test_the_features_of_an_example_can_be_declared(name: str) -> None:
    given = settings.load(EXAMPLES / name / "fraudlake.toml")
    require_declared(given.features, given.columns, given.entities, given.flink_delay)
    require_kept(given.features, given.row_retention)
    assert len(given.features) > 20
