from __future__ import annotations

from datetime import timedelta
from typing import Any

from fraudlake.delivery.suppression import LIMITED, SUPPRESSED, held_back

from .alerts import alert

MINUTE = timedelta(minutes=1)
NONE = timedelta(0)


def statuses(
    alerts: list[dict[str, Any]], sent: list[dict[str, Any]], within: timedelta, most: int
) -> list[str | None]:
    return [reason and reason.status for reason in held_back(alerts, sent, within, most)]


def test_by_default_every_alert_is_sent() -> None:
    assert statuses([alert(1), alert(2), alert(3)], [alert(0)], NONE, 0) == [None, None, None]


def test_an_alert_near_one_of_its_account_that_was_sent_is_suppressed() -> None:
    new = [alert(1, "a", 59), alert(2, "a", 60), alert(3, "a", 61), alert(4, "b", 61)]
    assert statuses(new, [alert(0, "a", 0)], MINUTE, 0) == [SUPPRESSED, None, SUPPRESSED, None]


def test_an_alert_of_a_terminal_is_suppressed_by_one_of_the_terminal_whatever_the_account() -> None:
    new = [alert(1, "a", 1, terminal="t"), alert(2, "b", 2, terminal="t"), alert(3, "a", 3), alert(4, "t", 4)]
    assert statuses(new, [], MINUTE, 0) == [None, SUPPRESSED, None, None]
    reason = held_back(new, [], MINUTE, 0)[1]
    assert reason is not None and reason.reason == "the terminal's alert of 2026-03-07 12:00:01 UTC was sent"


def test_an_empty_text_is_a_key_like_any_other() -> None:
    empty = [alert(number, account, number, terminal="t") | {"entity_key": ""} for number, account in enumerate("ab")]
    assert statuses(empty, [], MINUTE, 0) == [None, SUPPRESSED]


def test_an_alert_of_before_entities_is_about_its_account() -> None:
    before = alert(0, "a", 0) | {"entity": None, "entity_key": None}
    assert statuses([alert(1, "a", 1), before], [], MINUTE, 0) == [None, SUPPRESSED]
    assert statuses([alert(1, "a", 1)], [before], MINUTE, 0) == [SUPPRESSED]


def test_a_suppressed_alert_does_not_prolong_the_suppression() -> None:
    new = [alert(1, "a", 0), alert(2, "a", 50), alert(3, "a", 100)]
    assert statuses(new, [], MINUTE, 0) == [None, SUPPRESSED, None]


def test_an_alert_that_comes_late_is_suppressed_by_a_later_one() -> None:
    assert statuses([alert(1, "a", 0)], [alert(2, "a", 30)], MINUTE, 0) == [SUPPRESSED]


def test_a_minute_has_so_many_alerts_by_detection() -> None:
    new = [alert(1, "a", 900, detected=10), alert(2, "b", 800, detected=59), alert(3, "c", 700, detected=60)]
    assert statuses(new, [alert(0, "d", 0, detected=0)], NONE, 2) == [None, LIMITED, None]


def test_a_suppressed_alert_takes_no_place_of_its_minute() -> None:
    new = [alert(1, "a", 0), alert(2, "a", 1), alert(3, "b", 2), alert(4, "c", 3)]
    assert statuses(new, [], MINUTE, 2) == [None, SUPPRESSED, None, LIMITED]


def test_a_repetition_is_decided_as_before() -> None:
    new = [alert(1, "a", 0), alert(2, "a", 1), alert(3, "b", 2), alert(4, "c", 3)]
    first = held_back(new, [], MINUTE, 2)
    sent = [one for one, reason in zip(new, first, strict=True) if reason is None]
    assert held_back(new, sent, MINUTE, 2) == first


def test_the_reason_says_what_held_it_back() -> None:
    suppressed, limited = held_back([alert(1, "a", 30), alert(2, "b", 40)], [alert(0, "a", 5)], MINUTE, 1)
    assert suppressed is not None and suppressed.reason == "the account's alert of 2026-03-07 12:00:05 UTC was sent"
    assert limited is not None and limited.reason == "already 1 alert of 12:00 UTC"
