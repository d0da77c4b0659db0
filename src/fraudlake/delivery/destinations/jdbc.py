"""Database: the destination that upserts each event's data into a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.delivery.destination import Destination, required
from fraudlake.process import extras
from fraudlake.settings.delivery import Jdbc

if TYPE_CHECKING:
    from fraudlake.delivery.sink import Sink
    from fraudlake.lake import Lake


def sink(settings: Jdbc, lake: Lake) -> Sink:
    """Return the sink of a database; SQLAlchemy is an extra of the package."""
    with extras.required("jdbc"):
        from fraudlake.delivery.database import DatabaseSink
    return DatabaseSink(required(settings.jdbc_url, "jdbc_url").get_secret_value(), settings.jdbc_table)


DESTINATION = Destination("jdbc", sink, Jdbc)
