"""Log: writes each event as a line of the process's log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fraudlake.delivery import event
from fraudlake.delivery.destination import Destination
from fraudlake.delivery.event import Event
from fraudlake.delivery.sink import Outcome

# The level is WARNING, since that of a micro-batch's own process in a workspace shows nothing below it.
log = logging.getLogger("fraudlake.alerts")


class LogSink:
    """Logs events under ``fraudlake.alerts``."""

    def send(self, events: Sequence[Event], name: str) -> list[Outcome]:
        """Log a line for each event."""
        for sent in events:
            log.warning("%s", event.as_json(sent))
        return [Outcome(1)] * len(events)


DESTINATION = Destination("log", lambda settings, lake: LogSink())
