"""Lake figures: what ``status`` and ``run`` count in a lake, and estimate of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fraudlake_cli.output.progress import console

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.operations.status import Status
    from fraudlake_desk.queue.missed import Missed


class LakeFigures(NamedTuple):
    """The rows of each layer, and the fraud that review queues missed."""

    status: Status
    missed: Missed | None
    """None if analysts have decided none of the random draws."""

    @classmethod
    def of(cls, lake: Lake) -> LakeFigures:
        """Count the rows of an open lake, while a line says so."""
        from fraudlake.operations.status import status
        from fraudlake_desk.queue import reviewed

        with console.status("counting rows"):
            return cls(status(lake), reviewed.latest_missed(lake))

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return self.status.as_dict() | {"missed": self.missed.as_dict() if self.missed else None}
