"""Charts: what is drawn has the numbers that were given, and texts are escaped."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from xml.etree import ElementTree

import pytest

from fraudlake_desk.documents import charts
from fraudlake_desk.documents.charts import Mark, Node

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
HOSTILE = "<script>alert('x')</script>\" onload=\"x"


def values(svg: str) -> list[float]:
    return [float(value) for value in re.findall(r'data-value="([^"]*)"', svg)]


def test_a_bar_is_drawn_for_each_day() -> None:
    svg = charts.bars([date(2026, 3, 7), date(2026, 3, 8), date(2026, 3, 9)], [4, 0, 12], "alerts a day")
    assert values(svg) == [4, 0, 12]
    heights = [float(bar.get("height") or 0) for bar in ElementTree.fromstring(svg).iter("rect")]
    assert heights[0] * 3 == pytest.approx(heights[2], abs=0.2) and heights[1] == 0


def test_transactions_are_in_the_order_of_time_and_larger_ones_are_higher() -> None:
    marks = [Mark(NOON + timedelta(hours=hour), amount, "paid") for hour, amount in ((0, 1.0), (5, 10.0), (9, 1000.0))]
    circles = [*ElementTree.fromstring(charts.timeline(marks, "payments")).iter("circle")]
    at, height = ([float(circle.get(name) or 0) for circle in circles] for name in ("cx", "cy"))
    assert at == sorted(at)
    assert height == sorted(height, reverse=True)
    assert height[0] - height[1] == pytest.approx((height[1] - height[2]) / 2, abs=0.2)


def test_alerts_scores_and_verdicts_are_marked() -> None:
    marks = [
        Mark(NOON, 500.0, "paid", is_of_case=True, alert="live", probability=0.9, verdict="fraud"),
        Mark(NOON, 20.0, "paid", alert="shadow", verdict="genuine", is_labelled=True),
    ]
    drawn = charts.timeline(marks, "payments")
    for name in (
        "ring live",
        "ring shadow",
        "score",
        "verdict-fraud",
        "verdict-genuine",
        "dot of-case",
        "dot labelled",
    ):
        assert drawn.count(f'class="{name}"') == 1


@pytest.mark.parametrize("amounts", [[0.0], [-5.0, 3.0], [1e300, 1e-300], [7.0, 7.0]])
def test_any_amounts_can_be_drawn(amounts: list[float]) -> None:
    svg = charts.timeline([Mark(NOON, amount, "paid") for amount in amounts], "payments")
    assert values(svg) == pytest.approx(amounts)
    assert "nan" not in svg and "inf" not in svg


def test_a_label_is_next_to_its_mark() -> None:
    marks = [Mark(NOON, 500.0, "paid", label="12"), Mark(NOON, 20.0, "paid")]
    groups = [*ElementTree.fromstring(charts.timeline(marks, "payments")).iter("g")]
    assert [[text.text for text in group.iter("text")] for group in groups] == [["12"], []]


def test_nothing_is_drawn_of_nothing() -> None:
    assert (charts.timeline([], "x"), charts.bars([], [], "x")) == ("", "")


def test_texts_are_escaped() -> None:
    drawn = charts.timeline([Mark(NOON, 1.0, HOSTILE)], HOSTILE) + charts.bars([NOON.date()], [1], HOSTILE)
    assert "<script" not in drawn and '" onload' not in drawn
    ElementTree.fromstring(f"<all>{drawn}</all>")


def test_a_share_is_drawn_within_its_interval() -> None:
    svg = ElementTree.fromstring(charts.interval(0.5, 0.25, 0.75, "precision"))
    span = next(line for line in svg.iter("line") if line.get("class") == "span")
    (dot,) = svg.iter("circle")
    assert float(span.get("x1") or 0) < float(dot.get("cx") or 0) < float(span.get("x2") or 0)


def test_a_line_has_a_mark_for_each_day_with_a_value_and_a_gap_interrupts_it() -> None:
    days = [date(2026, 3, 7) + timedelta(days=number) for number in range(4)]
    svg = charts.lines(days, {HOSTILE: [0.5, None, 1.0, 0.25]}, HOSTILE)
    assert values(svg) == [0.5, 1.0, 0.25]
    root = ElementTree.fromstring(svg)
    assert [len(str(line.get("points")).split()) for line in root.iter("polyline")] == [1, 2]
    circles = [float(circle.get("cy") or 0) for circle in root.iter("circle")]
    assert circles[1] < circles[0] < circles[2]
    assert "<script" not in svg


def test_a_cell_is_the_darker_the_larger_its_value() -> None:
    days = [date(2026, 3, 7), date(2026, 3, 8)]
    svg = charts.heat([HOSTILE, "amount"], days, [[0.0, None], [0.25, 9.0]], 0.5, "drift")
    assert values(svg) == [0.0, 0.25, 9.0]
    assert re.findall("level-([0-9]+)", svg) == ["0", "5", "10"]
    assert "<script" not in svg


def test_a_ranked_bar_is_as_long_as_its_number_and_has_its_name() -> None:
    svg = charts.ranked(["large", HOSTILE], [40, 10], "alerts")
    assert values(svg) == [40, 10]
    widths = [float(bar.get("width") or 0) for bar in ElementTree.fromstring(svg).iter("rect")]
    assert widths[0] == pytest.approx(4 * widths[1], abs=0.5)
    assert "<script" not in svg


def test_no_line_cell_or_ranked_bar_is_drawn_of_nothing() -> None:
    assert charts.lines([], {}, "") == charts.heat([], [], [], 1.0, "") == charts.ranked([], [], "") == ""
    assert charts.lines([date(2026, 3, 7)], {"precision": [None]}, "") == ""


def test_a_line_leads_from_a_box_to_that_of_the_next_column_and_each_box_is_a_link() -> None:
    columns = [[Node("a", "1 alert", "/a", "alert")], [Node(HOSTILE, "b", "/b", "fraud"), Node("c", "c", "#c")]]
    drawn = ElementTree.fromstring(charts.layers(["first", "then"], columns, [(0, 0, 1)], "links"))
    assert [link.get("href") for link in drawn.iter("a")] == ["/a", "/b", "#c"]
    boxes = list(drawn.iter("rect"))
    begin, end = re.findall(r"([\d.]+) ([\d.]+)(?=C|$)", str(drawn.find("path[@class='link']").get("d")))
    first, third = (
        [float(box.get(name) or 0) for name in ("x", "y", "width", "height")] for box in (boxes[0], boxes[2])
    )
    assert [float(one) for one in begin] == [first[0] + first[2], first[1] + first[3] / 2]
    assert [float(one) for one in end] == [third[0], third[1] + third[3] / 2]
    assert (len([*drawn.iter("circle")]), len([*drawn.iter("path")])) == (1, 2)  # a ring; the line and a triangle
