from __future__ import annotations

import json

from fraudlake.delivery import event

from .alerts import alert


def test_an_alert_is_a_cloud_event_with_its_columns_as_data() -> None:
    assert event.make_event(alert(7, account="a-1"), "main.fraud") == {
        "specversion": "1.0",
        "id": "00000000000000000000000000000007",
        "source": "/fraudlake/main.fraud",
        "type": "fraudlake.alert.v1",
        "subject": "a-1",
        "time": "2026-03-07T12:00:07.000000Z",
        "datacontenttype": "application/json",
        "data": {
            "alert_id": "00000000000000000000000000000007",
            "rule": "small_then_large",
            "account_id": "a-1",
            "transaction_id": "large-7",
            "timestamp": "2026-03-07T12:00:07.000000Z",
            "amount": 900.5,
            "explanation": "Konto a-1 „zahlte“ 'klein', dann groß\n7",
            "detected_at": "2026-03-07T12:00:07.000000Z",
            "kind": "small_then_large",
            "evidence": [
                {
                    "variable": "SMALL",
                    "transaction_id": "small-7",
                    "timestamp": "2026-03-07T12:00:05.750000Z",
                    "amount": 0.1,
                },
                {
                    "variable": "LARGE",
                    "transaction_id": "large-7",
                    "timestamp": "2026-03-07T12:00:07.000000Z",
                    "amount": 900.5,
                },
            ],
            "measures": {"seconds_between": "1.25"},
            "rule_version": 1,
            "entity": "account",
            "entity_key": "a-1",
        },
    }


def test_an_alert_by_another_entity_is_about_its_key() -> None:
    assert event.make_event(alert(7, account="a-1", terminal="t-9"), "lake")["subject"] == "t-9"


def test_an_event_is_one_line_of_json() -> None:
    made = event.make_event(alert(7), "lake")
    line = event.as_json(made)
    assert "\n" not in line
    assert json.loads(line) == made
