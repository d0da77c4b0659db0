"""The oracle: the rule, tiles and alert windows, as a person would write them. Nothing of the package is used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
DELAY = 10 * SECOND
"""How far the watermark is behind the newest event time."""
Window = tuple[Any, ...]
"""Kind, account, number, start, end (microseconds), transactions, sum in cents, largest amount, alerts, state."""


class Row(NamedTuple):
    account_id: str
    time: int  # microseconds
    amount: float
    source: str = "part-0"
    position: int = 0


def alerts(
    rows: Iterable[Row], small_below: float = 1.0, large_above: float = 500.0, within: int = 60_000_000
) -> list[tuple[Row, Row]]:
    """Pairs (small, large), ordered by the large row; the rows are processed in the order given."""
    flags: dict[str, Row] = {}
    pairs = []
    for row in rows:
        small = flags.pop(row.account_id, None)
        if small and row.amount > large_above and abs(row.time - small.time) <= within:
            pairs.append((small, row))
        if row.amount < small_below:
            flags[row.account_id] = row
    return pairs


def in_event_time(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.time, row.source, row.position))


def tiles(rows: Iterable[Row], alerted: Iterable[Row] = ()) -> list[tuple[Any, ...]]:
    """All account tiles: account, start, day, transactions, cents, largest amount, alerts, first and last time."""
    members, alerts = defaultdict(list), Counter(alerted)
    for row in rows:
        members[row.account_id, row.time // (10 * MINUTE) * 10 * MINUTE].append(row)
    return [
        (account, start, str(datetime.fromtimestamp(start // SECOND, UTC).date()), len(own),
         round(sum(100 * row.amount for row in own)), max(row.amount for row in own), sum(alerts[row] for row in own),
         min(row.time for row in own), max(row.time for row in own))
        for (account, start), own in members.items()
    ]  # fmt: skip


def windows(rows: Iterable[Row], alerted: Iterable[Row] = ()) -> set[Window]:
    """All alert windows of some rows; ``alerted`` are the large rows of alerts."""
    by_account = defaultdict(list)
    for row in in_event_time(rows):
        by_account[row.account_id].append(row)
    watermark = max(row.time for row in rows) - DELAY
    alerts = Counter(alerted)
    all_windows = set()

    def add(kind: str, number: int | None, start: int, end: int, members: list[Row], closed: bool) -> None:
        cents, most = round(sum(100 * row.amount for row in members)), max(row.amount for row in members)
        figures = len(members), cents, most, sum(alerts[row] for row in members)
        all_windows.add((kind, members[0].account_id, number, start, end, *figures, "closed" if closed else "open"))

    for own in by_account.values():
        for kind, step in (("tumbling", HOUR), ("sliding", 10 * MINUTE)):
            starts = {row.time // step * step - back for row in own for back in range(0, HOUR, step)}
            for start in starts:
                add(kind, None, start, start + HOUR, [r for r in own if start <= r.time < start + HOUR],
                    start + HOUR <= watermark)  # fmt: skip
        sessions = [[own[0]]]
        for row in own[1:]:
            if row.time - sessions[-1][-1].time <= 30 * MINUTE:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        for members in sessions:
            end = members[-1].time + 30 * MINUTE
            add("session", None, members[0].time, end, members, end <= watermark)
        for first in range(0, len(own), 100):
            members = own[first : first + 100]
            closed = len(members) == 100 and members[-1].time < watermark
            add("count", first // 100 + 1, members[0].time, members[-1].time, members, closed)
    return all_windows
