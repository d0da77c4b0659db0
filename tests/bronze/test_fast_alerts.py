from __future__ import annotations

import json
from typing import Any

import pytest

from fraudlake.bronze import fast_alerts

DATA = {
    "alert_id": "0123",
    "rule": "small_then_large",
    "account_id": "7",
    "transaction_id": "b-4",
    "timestamp": "2026-03-07T00:00:01.250000Z",
    "amount": 900.5,
    "kind": "small_then_large",
}
FIRST = {"transaction_id": "b-3", "timestamp": "2026-03-07T00:00:00Z"}
EVENT = {
    "specversion": "1.0",
    "id": "0123",
    "type": "fraudlake.alert.v1",
    "data": {**DATA, "evidence": [FIRST, {}]},
    "transactionpartition": 1,
    "transactionoffset": 4,
    "transactiontime": "2026-03-07T00:00:02.125Z",
}


def without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in fields.items() if other != name}


def test_an_event_gives_the_columns_of_the_alert_and_the_place_of_its_transaction() -> None:
    optional = {"rule_version": 2, "detected_at": None}
    event = {**EVENT, "data": {**EVENT["data"], **optional, "explanation": "not needed"}}
    assert fast_alerts.parse(json.dumps(event).encode()) == {
        **DATA,
        **optional,
        "timestamp": 1772841601250000,
        "first_transaction_id": "b-3",
        "first_timestamp": 1772841600000000,
        "transaction_partition": 1,
        "transaction_offset": 4,
        "transaction_appended_at": 1772841602125000,
    }


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ([], "not an object"),
        ({}, "data is not an object"),
        (without(EVENT, "transactionoffset"), "transactionoffset is missing"),
        ({**EVENT, "transactionpartition": 2**31}, "transactionpartition does not fit"),
        ({**EVENT, "transactiontime": "soon"}, "transactiontime does not fit"),
        ({**EVENT, "data": without(DATA, "rule")}, "data.rule is missing"),
        ({**EVENT, "data": {**DATA, "alert_id": None}}, "data.alert_id is missing"),
        ({**EVENT, "data": {**DATA, "amount": "900"}}, "data.amount does not fit"),
        ({**EVENT, "data": DATA}, "data.evidence[0].transaction_id is missing"),
        ({**EVENT, "data": {**DATA, "evidence": "b-3"}}, "data.evidence[0].transaction_id is missing"),
        (
            {**EVENT, "data": {**DATA, "evidence": [{**FIRST, "timestamp": "soon"}]}},
            "data.evidence[0].timestamp does not fit",
        ),
        ({**EVENT, "data": {**DATA, "evidence": [FIRST], "rule_version": 1.5}}, "data.rule_version does not fit"),
        ({**EVENT, "data": {**DATA, "timestamp": "2026-02-30T00:00:00Z"}}, "data.timestamp does not fit"),
    ],
)
def test_an_event_without_what_the_comparison_needs_is_no_fast_alert(event: Any, reason: str) -> None:
    assert fast_alerts.parse(json.dumps(event).encode()) == {"_error": reason}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b"", "empty"),
        (b"\xff{", "not UTF-8"),
        (b"{", "not JSON"),
        (b'{"data": {}, "data": {}}', "duplicate key"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_message_that_is_no_json_object_is_no_fast_alert(value: bytes | None, reason: str) -> None:
    assert fast_alerts.parse(value) == {"_error": reason}
