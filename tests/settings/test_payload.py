"""The declared payload: what is read, what is refused in one line, and how a lake records it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fraudlake import settings
from fraudlake.errors import UsageError
from fraudlake.lake import open_lake
from fraudlake.settings import time_pattern
from fraudlake.settings.payload import PayloadField

GIVEN: dict[str, Any] = {
    "accountId": {"from": "card.number"},
    "dt": {"from": "ts", "unit": "seconds"},
    "amount": {"from": "amount_minor", "unit": "minor"},
    "alert": {"from": "is_fraud"},
}


def test_a_field_is_its_name_or_a_table(tmp_path: Path) -> None:
    file = tmp_path / "its.toml"
    file.write_text(
        '[payload]\naccountId = "card.number"\ndt = { from = "ts", unit = "seconds" }\n'
        'amount = { from = "amount_minor", unit = "minor" }\nalert = "is_fraud"\n'
    )
    assert settings.load(file).definition["payload"] == GIVEN
    assert settings.load(payload=json.dumps(GIVEN)).payload == settings.load(file).payload
    assert settings.load(payload='{"dt": {"unit": "seconds"}}').payload["dt"].field == "dt"
    assert settings.load().payload == {}


def test_two_names_may_be_of_one_field() -> None:
    payload = settings.load(payload='{"accountId": "id", "alert": "id"}').payload
    assert {field.field for field in payload.values()} == {"id"}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ("{", "--payload = '{': must be JSON"),
        ("3", 'must be a table of fields, such as accountId = "card"'),
        ('{"acount": "x"}', "'acount' cannot come from another field; only accountId, dt, amount"),
        ('{"dt": 3}', "'dt' must be a field's name, or a table of 'from' and its unit or form"),
        ('{"dt": {"units": "seconds"}}', "there is no setting 'payload.dt.units'"),
        ('{"dt": {"unit": "hours"}}', "dt.unit = 'hours': input should be 'minor', 'seconds', 'milliseconds' or"),
        ('{"dt": {"unit": "minor"}}', "'dt' cannot be in 'minor': its unit is seconds or milliseconds or microseconds"),
        ('{"amount": {"unit": "seconds"}}', "'amount' cannot be in 'seconds': its unit is minor"),
        ('{"alert": {"unit": "minor"}}', "'alert' cannot be in 'minor': it has no unit"),
        ('{"amount": {"zone": "UTC"}}', "'amount' has no pattern and no zone: only dt is a time"),
        ('{"dt": {"zone": "Berlin"}}', "dt.zone = 'Berlin': must be a time zone such as 'UTC' or 'Europe/Berlin'"),
        (
            '{"dt": {"pattern": "dd.MM.yy HH:mm"}}',
            "dt.pattern = 'dd.MM.yy HH:mm': has 'yy'; the known ones are yyyy",
        ),
        ('{"accountId": "items[0].id"}', "accountId.from = 'items[0].id': must be a field's name, or names in objects"),
        ('{"accountId": "card."}', "accountId.from = 'card.': must be a field's name, or names in objects such as"),
    ],
)
def test_a_wrong_payload_is_one_line(payload: str, message: str) -> None:
    with pytest.raises(UsageError, match="--payload") as refused:
        settings.load(payload=payload)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "text", "iso"),
    [
        ("dd.MM.yyyy HH:mm:ss", "07.03.2026 12:00:01", "2026-03-07T12:00:01"),
        ("yyyyMMddHHmm", "202603071200", "2026-03-07T12:00:00"),
        ("MM/dd/yyyy HH:mm:ss.SSS", "03/07/2026 12:00:01.180", "2026-03-07T12:00:01.180"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2026-03-07T12:00:01+01:00", "2026-03-07T12:00:01+01:00"),
        ("yyyy-MM-dd 'o''clock' HH:mm", "2026-03-07 o'clock 12:00", None),
        ("yyyy.MM.dd HH:mm", "2026-03-07 12:00", None),
    ],
)
def test_a_pattern_makes_iso_of_its_texts(pattern: str, text: str, iso: str | None) -> None:
    regex, template = time_pattern.as_regex(pattern)
    match = re.fullmatch(regex, text)
    assert (match and match.expand(template)) == iso


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("dd.MM.yyyy", "lacks HH, mm"),
        ("dd.dd.MM.yyyy HH:mm", "has 'dd' twice"),
        ("dd.MM.yyyy HH:mm.SSS", "has a fraction without ss"),
        ("dd.MM.yyyy hh:mm a", "has 'hh'; the known ones are"),
        ("dd.MM.yyyy 'at HH:mm", "has an unterminated quote"),
    ],
)
def test_a_pattern_that_is_no_time_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        PayloadField.model_validate({"from": "dt", "pattern": pattern})


def test_a_lake_records_its_payload_and_refuses_another_one(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    open_lake(settings.load(lake=root, payload=json.dumps(GIVEN)))
    assert open_lake(settings.load(lake=root)).settings.definition["payload"] == GIVEN
    other = {**GIVEN, "dt": {"from": "ts", "unit": "milliseconds"}, "alert": "alert"}
    with pytest.raises(UsageError) as refused:
        open_lake(settings.load(lake=root, payload=json.dumps(other)))
    assert str(refused.value) == (
        f"--payload contradicts {root} in payload (dt is 'ts' in milliseconds instead of 'ts' in seconds; alert is "
        "'alert' instead of 'is_fraud'): leave it out, or change the lake with 'fraudlake define'"
    )


def test_a_lake_that_was_made_without_a_payload_has_flinks(tmp_path: Path) -> None:
    open_lake(settings.load(lake=tmp_path / "lake"))
    with pytest.raises(UsageError, match=r"in payload \(accountId is 'card' instead of 'accountId'\)"):
        open_lake(settings.load(lake=tmp_path / "lake", payload='{"accountId": "card"}'))
