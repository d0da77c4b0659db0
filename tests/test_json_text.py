"""JSON text, read back by parsers that take nothing but JSON."""

from __future__ import annotations

import ast
import json
import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as some

import fraudlake
from fraudlake.delivery import event
from fraudlake.text import json_text

ROOT = Path(fraudlake.__file__).parents[1]


def strictly(text: str) -> Any:
    """Parse JSON as RFC 8259 has it: Python's own parser takes NaN and Infinity, too."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_numbers_that_json_does_not_have_are_texts() -> None:
    value = {"amounts": [1.5, math.inf, -math.inf, math.nan], "deep": ({"sum": np.float64("inf")},)}
    assert strictly(json_text.dumps(value)) == {
        "amounts": [1.5, "Infinity", "-Infinity", "NaN"],
        "deep": [{"sum": "Infinity"}],
    }


def test_dates_and_times_are_their_texts() -> None:
    value = {"day": date(2026, 3, 7), "at": datetime(2026, 3, 7, 1, 2, tzinfo=UTC)}
    assert strictly(json_text.dumps(value)) == {"day": "2026-03-07", "at": "2026-03-07 01:02:00+00:00"}


@pytest.mark.slow
@hypothesis.given(
    some.recursive(
        some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
        lambda inner: some.lists(inner) | some.dictionaries(some.text() | some.floats(), inner),
    )
)
def test_whatever_a_result_holds_is_json(value: Any) -> None:
    strictly(json_text.dumps(value))


def test_a_delivered_event_is_json_though_an_amount_is_not_finite() -> None:
    alert = {"alert_id": "a", "account_id": "1", "entity_key": "1", "detected_at": None}
    alert |= {"amount": math.inf, "measures": [("sum", "NaN")]}
    data = strictly(event.as_json(event.make_event(alert, "lake")))["data"]
    assert (data["amount"], data["measures"]) == ("Infinity", {"sum": "NaN"})


@pytest.mark.parametrize("folder", ["fraudlake_cli", "fraudlake/delivery"])
def test_what_others_read_is_written_in_one_place(folder: str) -> None:
    calls = {
        node.func.attr
        for module in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "json"
    }
    assert calls <= {"loads"}
