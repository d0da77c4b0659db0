"""The record of approvals stays: no limit of days removes its rows, and no restore takes them back."""

from __future__ import annotations

import pytest

from fraudlake.errors import UsageError
from fraudlake.operations import restore, retention
from fraudlake.settings import load


@pytest.mark.parametrize("table", ["silver_approval_events", "silver_review_events"])
def test_chained_events_have_no_limit_of_days(table: str) -> None:
    given = load(row_retention=f'{{"{table}": "30 days"}}')
    with pytest.raises(UsageError, match="who decided what stays"):
        retention.require_known(given)


def test_the_record_of_approvals_is_not_restored() -> None:
    with pytest.raises(UsageError, match="events are only added to it"):
        restore.require_table("silver_approval_events")
