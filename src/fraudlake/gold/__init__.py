"""Gold: aggregates for analysts and the risk team."""

from __future__ import annotations

from fraudlake.gold import account_daily, detector_agreement

AGGREGATES = (account_daily.AGGREGATE, detector_agreement.AGGREGATE)
"""The aggregates that ``fraudlake aggregate`` and the declarative pipeline compute by day."""
