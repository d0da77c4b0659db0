"""Gold tables: lists gold's tables and views."""

from __future__ import annotations

from fraudlake.gold import (
    account_daily,
    account_tiles,
    alert_windows,
    cases,
    detector_agreement,
    lane_agreement,
)
from fraudlake.gold.aggregate import Aggregate, GroupAggregate
from fraudlake.tables import View

GROUPED: tuple[GroupAggregate, ...] = (
    account_daily.AGGREGATE,
    account_tiles.AGGREGATE,
    detector_agreement.AGGREGATE,
)
"""The aggregates by group, which the declarative pipeline computes as well."""
CASES: Aggregate = cases.AGGREGATE
"""The alerts of an entity that belong together; they share a stream with the aggregates of the same sources."""
AGGREGATES: tuple[Aggregate, ...] = (*GROUPED, CASES, lane_agreement.AGGREGATE)
"""The tables that ``fraudlake aggregate`` writes."""
VIEWS: tuple[View, ...] = (alert_windows.VIEW,)
"""Their views, which nothing writes."""
