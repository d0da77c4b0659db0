"""Alerts: how many there are, what suppressed or delivered them, and which other detectors agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.gold import detector_agreement, lane_agreement
from fraudlake.streams import deliver

if TYPE_CHECKING:
    from fraudlake.lake import Lake


@dataclass(frozen=True)
class Alerts:
    """Counts of alerts."""

    alerts: int = 0
    suppressed: Mapping[str, int] = field(default_factory=dict)
    """Alerts that list entries suppress, by rule."""
    deliveries: dict[str, dict[str, int]] = field(default_factory=dict)
    """Number of alerts by outcome, by destination; dead letters only while their alerts exist."""
    agreement: dict[str, int] = field(default_factory=dict)
    """Agreement with Flink's own detector over all compared days."""
    lanes: dict[str, Any] = field(default_factory=dict)
    """Agreement of the lanes on the latest days with alerts, if there is a fast lane: the number of ``days``, alerts of
    ``both`` lanes and of only one, those with an ``unknown`` reason, and the highest ``latency_p99`` (milliseconds)."""


def read(lake: Lake) -> Alerts:
    """Read the figures."""
    return Alerts(
        alerts=lake.store.count(tables.SILVER_ALERTS),
        suppressed=_suppressed(lake),
        deliveries=_deliveries(lake),
        agreement=_agreement(lake),
        lanes=_lanes(lake),
    )


def _suppressed(lake: Lake) -> dict[str, int]:
    by_rule = lake.store.query(
        f"SELECT rule, count(*) AS alerts FROM {tables.SILVER_SUPPRESSED_ALERTS.name} GROUP BY rule ORDER BY rule",
        tables.SILVER_SUPPRESSED_ALERTS,
    )
    return {row["rule"]: row["alerts"] for row in by_rule.to_pylist()}


def _deliveries(lake: Lake) -> dict[str, dict[str, int]]:
    """Count the outcomes of alerts, by destination, without the dead letters that nobody can send any more."""
    counts: dict[str, dict[str, int]] = {}
    table = tables.SILVER_DELIVERIES
    # Without dead letters, the ids of all alerts need not be read.
    dead = lake.store.query(f"SELECT alert_id FROM {table.name} WHERE status = '{deliver.DEAD}' LIMIT 1", table)
    which = f"WHERE status <> '{deliver.DEAD}' OR {deliver.HAS_ALERT}" if len(dead) else ""
    by_outcome = (
        f"SELECT destination, status, count(*) AS alerts FROM {table.name} {which} "
        "GROUP BY destination, status ORDER BY destination, status"
    )
    for row in lake.store.query(by_outcome, table, tables.SILVER_ALERTS).to_pylist():
        counts.setdefault(row["destination"], {})[row["status"]] = row["alerts"]
    return counts


def _agreement(lake: Lake) -> dict[str, int]:
    """Add up the agreement of both detectors over all compared days."""
    names = ("transactions", "both", "only_flink", "only_spark")
    sums = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in names)
    (row,) = lake.store.query(
        f"SELECT {sums} FROM {detector_agreement.TABLE.name}", detector_agreement.TABLE
    ).to_pylist()
    return dict(row)


def _lanes(lake: Lake) -> dict[str, Any]:
    """Add up the agreement of the lanes over the latest seven days with alerts."""
    if lake.settings.fast_alerts_topic is None:
        return {}
    counts = {name: f"sum({name})" for name in ("both", "only_fast", "only_exact")}
    counts["unknown"] = "sum(only_fast_unknown + only_exact_unknown)"
    columns = ", ".join(f"{sum_} AS {name}" for name, sum_ in counts.items())
    days = lake.store.query(
        f"SELECT {columns}, max(latency_p99) AS latency_p99 FROM {lane_agreement.TABLE.name} GROUP BY date "
        "ORDER BY date DESC LIMIT 7",
        lane_agreement.TABLE,
    ).to_pylist()
    if not days:
        return {}
    latencies = [day["latency_p99"] for day in days if day["latency_p99"] is not None]
    added = {name: sum(day[name] for day in days) for name in counts}
    return {"days": len(days), **added, "latency_p99": max(latencies, default=None)}
