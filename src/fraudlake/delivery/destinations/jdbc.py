"""Database: the destination that upserts each event's data into a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, SecretStr

from fraudlake.delivery.destination import Destination, required
from fraudlake.process import extras

if TYPE_CHECKING:
    from fraudlake.delivery.sink import Sink
    from fraudlake.lake import Lake


class Jdbc(BaseModel):
    """The database and its table."""

    jdbc_url: SecretStr | None = Field(
        None, description="Database for delivered alerts, as an address of SQLAlchemy; never shown."
    )
    jdbc_table: str = Field(
        "fraud_alerts", pattern=r"^\w+(\.\w+)?$", description="Table for delivered alerts, optionally with its schema."
    )


def sink(settings: Jdbc, lake: Lake) -> Sink:
    """Return the sink of a database; SQLAlchemy is an extra of the package."""
    with extras.required("jdbc"):
        from fraudlake.delivery.database import DatabaseSink
    return DatabaseSink(required(settings.jdbc_url, "jdbc_url").get_secret_value(), settings.jdbc_table)


DESTINATION = Destination("jdbc", sink, Jdbc)
