"""Aggregate: silver and the alerts of both lanes become the tables of ``gold/``."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.gold import alert_windows
from fraudlake.streams import groups, lanes

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.streams.stream import Hook, Stream

FORMER_STEP = "alert_windows"
"""The stream that wrote ``gold_alert_windows`` before it was a view."""


def streams(lake: Lake) -> list[Stream]:
    """``silver_transactions`` and ``silver_alerts`` → the aggregates by group.

    If there is a topic of fast alerts: also ``bronze_fast_alerts`` and ``silver_alerts`` → ``gold_lane_agreement``.
    """
    first, *others = groups.shared(lake)
    compared = [] if lake.settings.fast_alerts_topic is None else [lanes.stream(lake)]
    return [replace(first, before=partial(_prepare, lake, first.before)), *others, *compared]


def _prepare(lake: Lake, take_on: Hook) -> None:
    """Have all tables follow their stream; then the view takes the place of an earlier version's table of its name.

    Raises:
        UsageError: the table has windows of days that have left silver, so that nothing could compute them again.
    """
    view = alert_windows.VIEW
    is_former = lake.has(view)
    if is_former:
        _require_computable(lake)
    take_on()
    if is_former:
        shutil.rmtree(lake.checkpoint(FORMER_STEP).folder, ignore_errors=True)
        lake.remove_former(view)


def _require_computable(lake: Lake) -> None:
    """Check that silver has all days of which an earlier version's table has windows."""
    view = alert_windows.VIEW
    windows = lake.query(view, "min(date) AS day", "WHERE kind = 'tumbling'")["day"][0].as_py()
    transactions = lake.query(tables.SILVER_TRANSACTIONS, "min(date) AS day")["day"][0].as_py()
    if windows is not None and (transactions is None or windows < transactions):
        where = lake.folder / "tables" / view.name if lake.folder else f"{lake.name}.{view.name}"
        raise UsageError(
            f"{view.name} has become a view of gold_account_tiles, and its windows since {windows} cannot be computed "
            f"again, as silver_transactions begins on {transactions}: copy what you need of the table {where}, and "
            "drop it"
        )
