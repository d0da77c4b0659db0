from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fraudlake_tools import plots


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


def test_each_alert_joins_its_payments_whatever_the_kind_of_its_rule() -> None:
    at = pd.to_datetime([f"2026-03-07 10:00:{second:02}" for second in (0, 20, 40, 50)])
    payments = pd.DataFrame({"timestamp": at, "amount": [0.5, 600.0, 20.0, 30.0]})
    rows = [
        ("pair", "a", 0),
        ("pair", "a", 1),
        *(("busy", "b", n) for n in range(3)),
        *(("busy", "c", n) for n in range(4)),
    ]
    evidence = pd.DataFrame(
        [(rule, alert, at[n], payments["amount"][n]) for rule, alert, n in rows],
        columns=["rule", "alert_id", "timestamp", "amount"],
    )
    figure = plots.timeline(payments, evidence, "Account 1")
    (axes,) = figure.axes
    drawn = [list(line.get_ydata()) for line in axes.get_lines()]
    assert drawn == [[0.5, 600.0, 20.0], [0.5, 600.0, 20.0, 30.0], [0.5, 600.0]]
    assert [text.get_text() for text in axes.texts] == ["600.00", "20.00", "30.00"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["payment", "alert of busy", "alert of pair"]


def labels(axis: Any) -> list[str]:
    axis.axes.figure.canvas.draw()
    low, high = sorted(axis.get_view_interval())
    marks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return [label.get_text() for at, label in marks if low <= at <= high]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1], ["0", "1"]),
        ([2, 1], ["0", "1", "2"]),
        ([5, 12.5], ["0", "2", "4", "6", "8", "10", "12"]),
        ([0.5, 0.25], ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]),
        ([0, 0], ["0", "1"]),
        ([3_000_000, 1], ["0", "500,000", "1,000,000", "1,500,000", "2,000,000", "2,500,000", "3,000,000"]),
    ],
)
def test_an_axis_has_the_numbers_that_are_there(values: list[float], expected: list[str]) -> None:
    (axes,) = plots.bars(pd.Series(values, index=["a", "b"]), "Counts", "rows").axes
    assert labels(axes.xaxis) == expected


@pytest.mark.parametrize("values", [[1], [0, 0], [2.5, 12.5], [7, 3], [0.001], [90_000_000], [-0.0, 0.3]])
def test_each_number_of_an_axis_is_where_it_says(values: list[float]) -> None:
    days = pd.date_range("2026-03-07", periods=len(values))
    (axes,) = plots.over_time(pd.DataFrame({"x": values}, index=days), "x", "a day", "day").axes
    shown, top = labels(axes.yaxis), axes.get_ylim()[1]
    assert [float(text.replace(",", "")) for text in shown] == pytest.approx(
        [at for at in axes.get_yticks() if at <= top]
    )
    assert len({*shown}) == len(shown) >= 2
    assert not [text for text in shown if text.startswith("-")]


@pytest.mark.parametrize("amounts", [[20.0], [600.0, 601.0], [0.01, 99_999.0], [0.5, 900.0], [3.0, 4.0]])
def test_a_logarithmic_axis_has_plain_numbers(amounts: list[float]) -> None:
    at = pd.date_range("2026-03-07", periods=len(amounts))
    evidence = pd.DataFrame({"rule": [], "alert_id": [], "timestamp": [], "amount": []})
    (axes,) = plots.timeline(pd.DataFrame({"timestamp": at, "amount": amounts}), evidence, "Account 1").axes
    shown = [float(text.replace(",", "")) for text in labels(axes.yaxis)]
    low, high = axes.get_ylim()
    assert low < min(amounts) <= max(amounts) < high
    assert len([number for number in shown if low <= number <= high]) >= 2


@pytest.mark.parametrize(
    "figure",
    [
        plots.bars(pd.Series({}, dtype="int64"), "Nothing", "rows"),
        plots.over_time(pd.DataFrame(), "Nothing", "rows"),
        plots.over_time(pd.DataFrame({"alerts": []}), "Nothing", "rows"),
        plots.timeline(
            pd.DataFrame({"timestamp": [], "amount": []}),
            pd.DataFrame({"rule": [], "alert_id": [], "timestamp": [], "amount": []}),
            "Nothing",
        ),
        plots.precision_recall(pd.DataFrame({"probability": [], "label": []}), 0.5, "Nothing"),
        plots.drift(pd.DataFrame({"date": [], "feature": [], "psi": []}), "Nothing"),
    ],
)
def test_a_chart_of_nothing_says_so(figure: Any) -> None:
    figure.canvas.draw()
    assert "nothing to show yet" in [text.get_text() for text in figure.axes[0].texts]
    assert labels(figure.axes[0].xaxis) == labels(figure.axes[0].yaxis) == []


def test_without_fraud_there_is_no_curve_but_the_scores_are_drawn() -> None:
    curve, spread = plots.precision_recall(pd.DataFrame({"probability": [0.1, 0.9], "label": False}), 0.5, "x").axes
    assert not curve.get_lines()
    assert sum(bar.get_height() for bar in spread.patches) == 2
    assert labels(spread.yaxis) == ["1", "2", "5", "10"]


def test_a_legend_stands_beside_what_is_drawn() -> None:
    scored = pd.DataFrame({"probability": [0.6, 0.9, 0.1, 0.8], "label": [True, True, False, False]})
    figure = plots.precision_recall(scored, 0.5, "Precision and recall")
    figure.canvas.draw()
    (legend,) = figure.legends
    assert not [axes for axes in figure.axes if axes.get_legend()]
    assert all(legend.get_window_extent().y1 <= axes.get_window_extent().y0 for axes in figure.axes)
