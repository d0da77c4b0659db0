"""Suppression: which alerts stay in the lake, as their entity had one just before or as they are too many."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fraudlake.counts import counted
from fraudlake.entity import ACCOUNT

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

    Only the alerts decide, and no clock: a micro-batch that is repeated is decided as before.

    Args:
        alerts: new alerts, in the order in which they are to be sent.
        sent: the alerts that were sent earlier, as far back as they count; those that are new are passed over.
        within: an alert is suppressed that is nearer than this, in event time, to one that is sent of the same account,
            or terminal, or whatever its rule is by; 0 suppresses none.
        most_a_minute: how many of the alerts that were detected in one minute (UTC) are sent; 0 means no limit.
    """
    new = {alert["alert_id"] for alert in alerts}
    times: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    minutes: Counter[datetime] = Counter()

    def add(alert: Alert) -> None:
        times[_of(alert)].append(alert["timestamp"])
        minutes[minute_of(alert)] += 1

    for alert in sent:
        if alert["alert_id"] not in new:
            add(alert)
    reasons: list[HeldBack | None] = []
    for alert in alerts:
        near = [time for time in times[_of(alert)] if abs(alert["timestamp"] - time) < within]
        if near:
            name = _of(alert)[0]
            reasons.append(HeldBack(SUPPRESSED, f"the {name}'s alert of {near[-1]:%Y-%m-%d %H:%M:%S} UTC was sent"))
        elif most_a_minute and minutes[minute_of(alert)] >= most_a_minute:
            reasons.append(
                HeldBack(LIMITED, f"already {counted(most_a_minute, 'alert')} of {minute_of(alert):%H:%M} UTC")
            )
        else:
            reasons.append(None)
            add(alert)
    return reasons


def _of(alert: Alert) -> tuple[str, str]:
    """Return what an alert is about: an entity and its key; an alert of an earlier version is about its account."""
    by, key = alert["entity"], alert["entity_key"]
    return (ACCOUNT, alert["account_id"]) if by is None else (by, key)


def minute_of(alert: Alert) -> datetime:
    """Return the minute (UTC) in which an alert was detected."""
    detected_at: datetime = alert["detected_at"]
    return detected_at.replace(second=0, microsecond=0)
