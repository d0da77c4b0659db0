"""Suppression: decides which alerts are not sent, because their entity had one recently or there are too many."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fraudlake.entity import ACCOUNT
from fraudlake.text.counts import counted

SUPPRESSED = "suppressed"
LIMITED = "limited"

Alert = Mapping[str, Any]
"""At least ``alert_id, account_id, entity, entity_key, timestamp, detected_at``."""


class HeldBack(NamedTuple):
    """Why an alert is not sent: ``suppressed`` or ``limited``, and a sentence."""

    status: str
    reason: str


def held_back(
    alerts: Sequence[Alert], sent: Sequence[Alert], within: timedelta, most_a_minute: int
) -> list[HeldBack | None]:
    """Return for each alert why it is not sent, or None.

    The result depends only on the alerts and no clock, so it is the same for a repeated micro-batch.

    Args:
        alerts: new alerts, in the order in which they are to be sent.
        sent: the alerts sent earlier, as far back as they count; new alerts among them are ignored.
        within: an alert is suppressed if an alert of the same entity is sent that is nearer than this in event time;
            0 suppresses none.
        most_a_minute: the most alerts to send of those detected in one minute (UTC); 0 means no limit.
    """
    new = {alert["alert_id"] for alert in alerts}
    times: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    minutes: Counter[datetime] = Counter()

    def add(alert: Alert) -> None:
        times[_entity_key(alert)].append(alert["timestamp"])
        minutes[minute_of(alert)] += 1

    for alert in sent:
        if alert["alert_id"] not in new:
            add(alert)
    reasons: list[HeldBack | None] = []
    for alert in alerts:
        near = [time for time in times[_entity_key(alert)] if abs(alert["timestamp"] - time) < within]
        if near:
            name = _entity_key(alert)[0]
            reasons.append(HeldBack(SUPPRESSED, f"the {name}'s alert of {near[-1]:%Y-%m-%d %H:%M:%S} UTC was sent"))
        elif most_a_minute and minutes[minute_of(alert)] >= most_a_minute:
            reasons.append(
                HeldBack(LIMITED, f"already {counted(most_a_minute, 'alert')} of {minute_of(alert):%H:%M} UTC")
            )
        else:
            reasons.append(None)
            add(alert)
    return reasons


def _entity_key(alert: Alert) -> tuple[str, str]:
    """Return the entity of an alert and its key; an alert of an earlier version has the account."""
    by = alert["entity"]
    key = alert["entity_key"]
    return (ACCOUNT, alert["account_id"]) if by is None else (by, key)


def minute_of(alert: Alert) -> datetime:
    """Return the minute (UTC) in which an alert was detected."""
    detected_at: datetime = alert["detected_at"]
    return detected_at.replace(second=0, microsecond=0)
