"""Batch inputs: the settings and table versions for checking a micro-batch, recorded so that it can be repeated.

``refine`` commits twice, first to ``silver_transactions``, then to ``silver_quarantine``. After a crash in between,
only the first commit exists. The repeated micro-batch must then send each row to the same table as before. So the first
commit carries the inputs as metadata, and the repeated micro-batch reads them from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.lake.store import Snapshot
from fraudlake.settings.columns import DeclaredColumn
from fraudlake.silver import duplicates
from fraudlake.silver.source_position import POSITION, SOURCE
from fraudlake.text.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fraudlake.lake import Lake
    from fraudlake.settings import Settings


@dataclass(frozen=True)
class BatchInputs:
    """The settings, and the versions of the two silver tables before the micro-batch."""

    settings: Settings
    silver_version: int
    quarantine_version: int

    @classmethod
    def now(cls, lake: Lake) -> BatchInputs:
        """Return the inputs of a new micro-batch: the current settings and versions."""
        return cls(
            lake.settings, lake.store.version(tables.SILVER_TRANSACTIONS), lake.store.version(tables.SILVER_QUARANTINE)
        )

    @classmethod
    def recorded(cls, lake: Lake, application: str, batch_id: int) -> BatchInputs | None:
        """Return the inputs in a micro-batch's first commit; None if there is no such commit."""
        for commit in lake.store.history(tables.SILVER_TRANSACTIONS):
            record = commit.record
            if commit.is_of(application, batch_id):
                bounds = {
                    "timestamp_floor": record["timestamp_floor"],
                    "max_ahead": timedelta(seconds=record["max_ahead"]),
                    "warn": tuple(record["warn"]),
                    "max_amount": record["max_amount"],
                    "columns": {name: DeclaredColumn(**column) for name, column in record["columns"].items()},
                }
                settings = lake.settings.model_copy(update=bounds)
                return cls(settings, record["silver_version"], record["quarantine_version"])
        return None

    def stored(self, lake: Lake) -> duplicates.StoredTables:
        """Return both tables in their versions before the micro-batch."""
        return _StoredVersions(
            lambda: lake.read_version(tables.SILVER_TRANSACTIONS, self.silver_version),
            lambda: lake.read_version(tables.SILVER_QUARANTINE, self.quarantine_version),
            lake,
            self,
        )

    def as_record(self) -> dict[str, Any]:
        """Return the record that the first commit has in addition to its micro-batch."""
        return {
            "timestamp_floor": self.settings.timestamp_floor,
            "max_ahead": self.settings.max_ahead.total_seconds(),
            "max_amount": self.settings.max_amount,
            "warn": self.settings.warn,
            "columns": {name: column.model_dump(by_alias=True) for name, column in self.settings.columns.items()},
            "silver_version": self.silver_version,
            "quarantine_version": self.quarantine_version,
        }


@dataclass(frozen=True)
class _StoredVersions(duplicates.StoredTables):
    lake: Lake
    inputs: BatchInputs

    def ranges(
        self, dates: duplicates.Dates, near: Sequence[duplicates.SourceRange] = ()
    ) -> Iterable[tuple[str, int, int]]:
        """Return the ranges by one query, for which a laptop needs no Spark.

        Every row of quarantine counts, even if it is stored elsewhere, too, since it has the same position there.
        """

        def of(table: tables.Table, source: str, position: str, condition: str) -> str:
            conditions = [condition]
            if near:
                names = ", ".join(literal(span.source) for span in near)
                low = min(span.low for span in near)
                high = max(span.high for span in near)
                conditions.append(f"{source} IN ({names}) AND {position} BETWEEN {low} AND {high}")
            columns = f"{source} AS source, min({position}) AS low, max({position}) AS high"
            return f"SELECT {columns} FROM {table.name} WHERE {' AND '.join(conditions)} GROUP BY {source}"

        on_dates = "false" if dates is None else f"date BETWEEN DATE '{dates[0]}' AND DATE '{dates[1]}'"
        silver = of(tables.SILVER_TRANSACTIONS, "source", "position", on_dates)
        quarantine = of(tables.SILVER_QUARANTINE, SOURCE, POSITION, f"{SOURCE} IS NOT NULL")
        ranges = self.lake.store.query(
            f"{silver} UNION ALL {quarantine}",
            Snapshot(tables.SILVER_TRANSACTIONS, self.inputs.silver_version),
            Snapshot(tables.SILVER_QUARANTINE, self.inputs.quarantine_version),
        )
        return zip(*(ranges[name].to_pylist() for name in ("source", "low", "high")), strict=True)
