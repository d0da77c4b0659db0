from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fraudlake.delivery import event
from fraudlake.forget import own_files
from tests.delivery.alerts import alert


def test_a_delivered_alert_of_an_account_with_a_line_separator_is_removed(tmp_path: Path) -> None:
    alerts = [alert(1, "one\u2028name"), alert(2, "next\u0085line")]
    file = tmp_path / "alerts-1.jsonl"
    file.write_text("".join(f"{event.as_json(event.make_event(one, 'lake'))}\n" for one in alerts))
    lake = cast("Any", SimpleNamespace(settings=SimpleNamespace(delivery_folder=str(tmp_path))))

    assert own_files.delivered(lake, {"one\u2028name"}, erase=True) == Counter({"one\u2028name": 1})
    assert [json.loads(line)["id"] for line in file.read_text().split("\n")[:-1]] == [alerts[1]["alert_id"]]


def test_a_delivered_alert_of_a_a_terminal_is_no_trace_of_an_account_of_the_same_name(tmp_path: Path) -> None:
    alerts = [alert(1, "7"), alert(2, "8", terminal="7"), alert(3, "7", terminal="9")]
    file = tmp_path / "alerts-1.jsonl"
    file.write_text("".join(f"{event.as_json(event.make_event(one, 'lake'))}\n" for one in alerts))
    lake = cast("Any", SimpleNamespace(settings=SimpleNamespace(delivery_folder=str(tmp_path))))

    assert own_files.delivered(lake, {"7"}, erase=True) == Counter({"7": 2})
    assert [line["id"] for line in map(json.loads, file.read_text().splitlines())] == [alerts[1]["alert_id"]]
