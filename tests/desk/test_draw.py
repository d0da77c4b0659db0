from __future__ import annotations

from collections import Counter
from datetime import date, timedelta

from fraudlake_desk.queue import draw

ACCOUNTS = [str(number) for number in range(20)]
DAY = date(2026, 3, 7)


def test_a_draw_is_that_of_its_day_and_seed_in_whatever_order_the_accounts_come() -> None:
    drawn = draw.drawn(ACCOUNTS, 5, DAY, 1)
    assert len({*drawn}) == 5 and {*drawn} < {*ACCOUNTS}
    assert draw.drawn([*reversed(ACCOUNTS), *ACCOUNTS], 5, DAY, 1) == drawn
    assert draw.drawn(ACCOUNTS, 5, DAY, 2) != drawn != draw.drawn(ACCOUNTS, 5, DAY + timedelta(days=1), 1)
    assert sorted(draw.drawn(ACCOUNTS, 30, DAY, 1)) == sorted(ACCOUNTS)


def test_each_account_is_drawn_as_often_as_another() -> None:
    counts = Counter(name for seed in range(2000) for name in draw.drawn(ACCOUNTS, 5, DAY, seed))
    # Each is drawn 500 times on average, with a standard deviation of 19.
    assert all(420 < counts[account] < 580 for account in ACCOUNTS)


def test_a_tenth_of_a_queue_is_drawn_by_default() -> None:
    assert (draw.size(100, 0.1), draw.size(4, 0.1), draw.size(5, 0), draw.size(5, 1)) == (10, 0, 0, 5)
