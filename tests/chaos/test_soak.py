from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.soak import Soak
from tests.conftest import SHORT_LIVED

pytestmark = [pytest.mark.stream, pytest.mark.long]


def test_streams_maintenance_files_and_messages_go_on_beside_each_other_and_each_alert_is_raised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SHORT_LIVED.items():
        monkeypatch.setenv(name, value)
    done = Soak(seconds=25, rate=320, source="both", between_maintenance=25, history=2_000).run(tmp_path)
    assert (done["rows"], done["gaps"], done["ended_with"]) == (8_000, [], [143, 143])
    assert (done["missing"], done["wrong"], done["doubled"]) == (0, 0, 0)
    assert done["alerts"] > 30
