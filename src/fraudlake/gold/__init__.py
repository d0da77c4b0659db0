"""Gold: aggregates for analysts and the risk team."""

from __future__ import annotations

from fraudlake.gold import account_daily, alert_windows, detector_agreement, lane_agreement
from fraudlake.gold.aggregate import Aggregate, GroupAggregate

GROUPED: tuple[GroupAggregate, ...] = (account_daily.AGGREGATE, detector_agreement.AGGREGATE)
"""The aggregates by group, which the declarative pipeline computes as well."""
AGGREGATES: tuple[Aggregate, ...] = (*GROUPED, alert_windows.AGGREGATE, lane_agreement.AGGREGATE)
"""The tables that ``fraudlake aggregate`` writes."""
