"""Window: a range of days, with the SQL conditions that select it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

_END_OF_TIMES = 2262


@dataclass(frozen=True)
class Window:
    """A range of days, both included."""

    first: date
    last: date

    @property
    def days(self) -> list[date]:
        """The days."""
        return [self.first + timedelta(days=number) for number in range((self.last - self.first).days + 1)]

    @property
    def sql(self) -> str:
        """The SQL condition that ``date`` is in the range."""
        return self.has("date")

    def has(self, column: str) -> str:
        """Return the SQL condition that a column or an expression is one of the days."""
        return f"{column} BETWEEN DATE '{self.first}' AND DATE '{self.last}'"

    @property
    def times(self) -> str:
        """The SQL condition that ``timestamp`` is in the range."""
        since = f"timestamp >= TIMESTAMP '{datetime.combine(self.first, time())} UTC'"
        # DataFusion compares times in nanoseconds, which end in 2262; silver may have rows of 9999.
        if self.last.year >= _END_OF_TIMES:
            return since
        end = datetime.combine(self.last, time()) + timedelta(days=1)
        return f"{since} AND timestamp < TIMESTAMP '{end} UTC'"
