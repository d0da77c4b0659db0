"""Streams: when each was last active, and how far it lags."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from fraudlake.delivery.destinations import DESTINATIONS
from fraudlake.lake import contents
from fraudlake.operations import lag
from fraudlake.streams import deliver

if TYPE_CHECKING:
    from fraudlake.lake import Lake

DELIVERING = {deliver.step_of(to) for to in DESTINATIONS}
"""The steps that deliver alerts."""


@dataclass(frozen=True)
class Streams:
    """Times and unread commits of each stream."""

    last_batches: dict[str, datetime] = field(default_factory=dict)
    """When each stream began the last micro-batch that it has committed (UTC)."""
    lag: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each step that lags, the number of unread commits, by table."""
    expiring: dict[str, dict[str, datetime]] = field(default_factory=dict)
    """For each step that lags so far that VACUUM may remove unread files, the time of the oldest unread commit (UTC),
    by table."""


def read(lake: Lake) -> Streams:
    """Read the figures."""
    unread_commits, expiring = _lag(lake)
    return Streams(last_batches=_last_batches(lake), lag=unread_commits, expiring=expiring)


def _last_batches(lake: Lake) -> dict[str, datetime]:
    """Return when each stream began its last committed micro-batch, from its checkpoint."""
    begun = {folder.name: lake.checkpoint(folder.name).last_batch_at() for folder in sorted(lake.checkpoints.glob("*"))}
    return {step: at for step, at in begun.items() if at is not None}


def _lag(lake: Lake) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, datetime]]]:
    """Return :attr:`Streams.lag` and :attr:`Streams.expiring`."""
    unread_commits: dict[str, dict[str, int]] = {}
    expiring: dict[str, dict[str, datetime]] = {}
    for table in contents.TABLES:
        unread = lag.unread(lake, table)
        if lake.settings.fast_alerts_topic is None:  # lanes may have been compared earlier, but no longer
            unread.pop("lane_agreement", None)
        for step, commits in unread.items():
            unread_commits.setdefault(step, {})[table.name] = len(commits)
        for step, at in lag.expiring(lake, table, unread).items():
            if step not in DELIVERING:  # a destination of alerts may be out of use
                expiring.setdefault(step, {})[table.name] = at
    return unread_commits, expiring
