"""Aggregate: updates the tables of ``gold/`` from silver and the alerts of both lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.streams import groups, lanes

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.streams.stream import Stream


def streams(lake: Lake) -> list[Stream]:
    """``silver_transactions`` and ``silver_alerts`` → the aggregates by group.

    If there is a topic of fast alerts: also ``bronze_fast_alerts`` and ``silver_alerts`` → ``gold_lane_agreement``.
    """
    compared = [] if lake.settings.fast_alerts_topic is None else [lanes.stream(lake)]
    return [*groups.shared(lake), *compared]
