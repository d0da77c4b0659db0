"""Status: the figures of a lake by subject, and the problems that checks find in them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fraudlake.operations import retention
from fraudlake.operations.status import alerts, checks, model, review, rows, source, streams, unfinished
from fraudlake.operations.status.alerts import Alerts
from fraudlake.operations.status.model import Model
from fraudlake.operations.status.review import Review
from fraudlake.operations.status.rows import Rows
from fraudlake.operations.status.source import Source
from fraudlake.operations.status.streams import Streams
from fraudlake.operations.status.unfinished import Unfinished
from fraudlake.sources.landing_folder import landing_folder

if TYPE_CHECKING:
    from fraudlake.lake import Lake


@dataclass(frozen=True)
class Status:
    """The state of a lake."""

    lake: str
    landing: str
    definition: dict[str, Any]
    """The lake's definition: its columns, entities, features, delay of labels, order, buckets and clustering."""
    source: Source
    rows: Rows
    alerts: Alerts
    model: Model
    streams: Streams
    unfinished: Unfinished
    review: Review

    @property
    def gaps(self) -> list[str]:
        """Problems that the checks find, a sentence each."""
        return [str(problem) for check in checks.CHECKS for problem in check(self)]

    def as_dict(self) -> dict[str, Any]:
        """Everything in one object, for ``--json``."""
        shown = {"lake": self.lake, "landing": self.landing, "definition": self.definition}
        groups = (self.source, self.rows, self.alerts, self.model, self.streams, self.unfinished, self.review)
        for group in groups:
            shown |= asdict(group)
        gaps = self.gaps
        return {**shown, "reconciles": not gaps, "gaps": gaps}


def status(lake: Lake) -> Status:
    """Count the current rows of the lake."""
    removed = retention.removed(lake)
    return Status(
        lake=lake.name,
        landing=landing_folder(lake).path,
        definition=lake.settings.definition,
        source=source.read(lake, removed),
        rows=rows.read(lake, removed),
        alerts=alerts.read(lake),
        model=model.read(lake),
        streams=streams.read(lake),
        unfinished=unfinished.read(lake),
        review=review.read(lake),
    )
