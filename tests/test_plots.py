from __future__ import annotations

import pandas as pd
import pytest

from fraudlake import plots


def test_precision_and_recall_by_hand_with_the_threshold_marked() -> None:
    scored = pd.DataFrame({"probability": [0.6, 0.9, 0.1, 0.8, 0.7], "label": [True, True, False, False, None]})
    curve, spread = plots.precision_recall(scored, 0.5, "Precision and recall").axes
    line, mark = curve.get_lines()
    assert list(line.get_xdata()) == [0, 0.5, 0.5, 1, 1]
    assert list(line.get_ydata()) == [1, 1, 0.5, pytest.approx(2 / 3), 0.5]
    assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([1], [pytest.approx(2 / 3)])
    assert sum(bar.get_height() for bar in spread.patches) == 4


def test_every_interval_has_its_bar_and_those_without_rows_have_none() -> None:
    hours = pd.to_datetime(["2026-03-07 10:00", "2026-03-07 11:00", "2026-03-07 13:00"])
    (axes,) = plots.over_time(pd.DataFrame({"alerts": [3, 5, 2]}, index=hours), "Alerts", "an hour").axes
    assert [bar.get_height() for bar in axes.patches] == [3, 5, 2]
    assert [bar.get_width() for bar in axes.patches] == [pytest.approx(1 / 24)] * 3


def test_the_first_count_is_on_top_and_nothing_is_drawn_of_nothing() -> None:
    (axes,) = plots.bars(pd.Series({"small": 1, "large": 1200}), "Counts", "rows").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["large", "small"]
    assert [text.get_text() for text in axes.texts] == ["1,200", "1"]
    (empty,) = plots.bars(pd.Series({}, dtype="int64"), "Counts", "rows").axes
    assert not empty.patches


def test_each_alert_joins_its_two_payments() -> None:
    at = pd.to_datetime(["2026-03-07 10:00:00", "2026-03-07 10:00:20"])
    alert = {"small_timestamp": [at[0]], "small_amount": [0.5], "timestamp": [at[1]], "amount": [600.0]}
    payments = pd.DataFrame({"timestamp": at, "amount": [0.5, 600.0]})
    (axes,) = plots.timeline(payments, pd.DataFrame(alert), "Account 1").axes
    (pair,) = axes.get_lines()
    assert list(pair.get_ydata()) == [0.5, 600.0]
    assert [text.get_text() for text in axes.texts] == ["0.50 → 600.00"]
