"""Machine clock: checks the time of this machine against the lake's own rows and commits.

A clock that is ahead makes every row and file look old. So nothing is removed if the newest transaction or the commits
of silver are much older than the clock.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.text.sql_text import value

if TYPE_CHECKING:
    from fraudlake.lake.lake import Lake

_DAY = timedelta(days=1)


def first_day(lake: Lake, *names: str) -> date | None:
    """Return the first day (UTC) whose rows all of these tables keep; None if ``row_retention`` names none of them.

    Days are counted back from now or, if that is earlier, from ``max_idle`` after the newest transaction.
    """
    limits = [limit for name, limit in lake.settings.row_retention.items() if name in names]
    if not limits:
        return None
    now = datetime.now(UTC)
    newest = _newest_transaction(lake, now) or now
    return (min(now, newest + lake.settings.longest_idle) - min(limits)).date()


def require(lake: Lake) -> None:
    """Refuse to remove rows if the newest transaction or the commits contradict the clock.

    Raises:
        FraudlakeError: the message says what contradicts the clock, and how to remove rows nevertheless.
    """
    now = datetime.now(UTC)
    newest = _newest_transaction(lake, now) or now
    interruption = _interruption(lake, now)
    idle = max(now - newest, interruption[1] - interruption[0] if interruption else timedelta())
    if idle > lake.settings.longest_idle:
        what = f"the newest transaction is of {newest:%Y-%m-%d}"
        if interruption and interruption[1] - interruption[0] > now - newest:
            what = f"before that, the last commit is of {interruption[0]:%Y-%m-%d}"
        raise FraudlakeError(
            f"no row was removed: the clock says {now:%Y-%m-%d %H:%M} UTC, but {what}: correct the clock, or if it is "
            f"right add --max-idle {idle // _DAY + 1}d"
        )


def is_in_doubt(lake: Lake) -> bool:
    """Return whether, judging by the commits of silver, the clock has recently jumped by more than ``max_idle``."""
    return _interruption(lake, datetime.now(UTC)) is not None


def _newest_transaction(lake: Lake, now: datetime) -> datetime | None:
    """Return the end of the latest day with transactions, or now if that is earlier; future days do not count."""
    until = f"WHERE date <= {value(now.date())}"
    (row,) = lake.store.query(
        f"SELECT max(date) AS day FROM {tables.SILVER_TRANSACTIONS.name} {until}", tables.SILVER_TRANSACTIONS
    ).to_pylist()
    return min(now, datetime.combine(row["day"], time(), UTC) + _DAY) if row["day"] else None


def _interruption(lake: Lake, now: datetime) -> tuple[datetime, datetime] | None:
    """Return the beginning and end of a time without commits to silver that is longer than ``max_idle``.

    None if there is no such time, or if the commits after it already span more than ``max_idle``, which confirms the
    clock.
    """
    idle = lake.settings.longest_idle
    commits = sorted(commit.at for commit in lake.store.history(tables.SILVER_TRANSACTIONS) if commit.at <= now)
    before = [at for at in commits if at <= now - idle]
    recent = [at for at in commits if at > now - idle]
    if not before:
        return None
    end = recent[0] if recent else now
    return (before[-1], end) if end - before[-1] > idle else None
