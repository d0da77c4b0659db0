"""Charts: draws small data as SVG, with colours from classes of the page's style sheet, so that they follow its theme.

Texts are escaped and invisible letters are shown; no chart has a style or a script of its own, since the pages'
content policy forbids both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from typing import Literal

from markupsafe import Markup, escape

from fraudlake_desk.documents.letters import replace_invisible

_WIDTH = 960
_LEFT = 64
_RIGHT = 24
_TOP = 22
_PLOT = 190
_STRIP = 44
"""Heights: above the amounts, of the amounts, and of the strip of scores."""
_LONGEST = 24
"""The longest name next to a bar, in letters."""
_SERIES = 4
"""The number of colours of lines."""
_STEPS = tuple(
    timedelta(**{unit: number})
    for unit, numbers in (("minutes", (1, 5, 15, 30)), ("hours", (1, 3, 6, 12)), ("days", (1, 2, 7, 14, 30, 90, 365)))
    for number in numbers
)


@dataclass(frozen=True)
class Mark:
    """A transaction on a time axis."""

    at: datetime
    """Event time (UTC)."""
    amount: float
    text: str
    """Its description, shown as a tooltip."""
    is_of_case: bool = False
    alert: Literal["live", "shadow"] | None = None
    """The kind of alert that it completed."""
    probability: float | None = None
    verdict: Literal["fraud", "genuine"] | None = None
    is_labelled: bool = False
    """Whether Flink's label says fraud."""
    label: str = ""
    """Its label, such as the number of its account in a list."""


@dataclass(frozen=True)
class Node:
    """A box with a name, in a column of boxes."""

    name: str
    note: str
    """The text below the name."""
    address: str
    """The address that it links to."""
    kind: Literal["fraud", "alert", ""] = ""
    """Its mark: a triangle, a ring, or none."""


def layers(
    titles: Sequence[str],
    columns: Sequence[Sequence[Node]],
    lines: Iterable[tuple[int, int, int]],
    description: str,
) -> Markup:
    """Draw boxes in columns, with lines from boxes to those of the next column.

    Args:
        titles: the heading of each column.
        columns: the boxes.
        lines: the column of a line's first box, the number of that box, and that of the other one.
        description: a description for screen readers.
    """
    across = 192
    down = 46
    width = 156
    height = 38
    top = 26

    def left(column: int) -> float:
        return 2.0 + across * column

    def middle(number: int) -> float:
        return top + down * number + height / 2

    parts = [_text(title, left(number), 14, "start") for number, title in enumerate(titles)]
    for column, first, second in lines:
        begin = left(column) + width
        end = left(column + 1)
        bend = (begin + end) / 2
        y = middle(first)
        to = middle(second)
        path = f"M{begin:.1f} {y:.1f}C{bend:.1f} {y:.1f} {bend:.1f} {to:.1f} {end:.1f} {to:.1f}"
        parts.append(_tag("path", class_="link", d=path))
    for column, nodes in enumerate(columns):
        for number, node in enumerate(nodes):
            parts.append(_box(node, left(column), middle(number), width, height))
    tallest = max((len(nodes) for nodes in columns), default=0)
    # An image would hide the links in it from a screen reader.
    return _svg("chart layers", across * 5, top + down * max(tallest, 1), description, parts, role="group")


def _box(node: Node, x: float, y: float, width: float, height: float) -> Markup:
    place = {"x": x, "y": y - height / 2, "width": width, "height": height, "rx": 6}
    parts = [
        _tag("title", f"{node.name}: {node.note}"),
        _tag("rect", class_=f"box {node.kind}".strip(), **place),
        _tag("text", _short(node.name, 15 if node.kind else 19), class_="name", x=x + 8, y=y - 3),
        _text(_short(node.note, 26), x + 8, y + 12, "start"),
    ]
    if node.kind == "fraud":
        parts.append(_tag("path", class_="verdict-fraud", d=f"M{x + width - 13:.1f} {y - 3:.1f}l-6 -9h12z"))
    elif node.kind == "alert":
        parts.append(_tag("circle", class_="ring live", cx=x + width - 13, cy=y - 7, r=5))
    return _tag("a", *parts, href=node.address)


def timeline(marks: Sequence[Mark], description: str) -> Markup:
    """Draw transactions on a time axis: amounts on a logarithmic scale, scores in a strip below."""
    if not marks:
        return Markup()
    first = min(mark.at for mark in marks)
    last = max(mark.at for mark in marks)
    margin = max((last - first) * 0.02, timedelta(minutes=1))
    first = first - margin
    last = last + margin
    low, high = _powers(mark.amount for mark in marks)
    right = _WIDTH - _RIGHT
    bottom = _TOP + _PLOT
    floor = _TOP + _PLOT + 12 + _STRIP

    def x(at: datetime) -> float:
        return _LEFT + (right - _LEFT) * ((at - first) / (last - first))

    def y(amount: float) -> float:
        return bottom - _PLOT * (math.log10(max(amount, 10.0**low)) - low) / (high - low)

    parts = [_text("score", _LEFT - 8, floor - 16, "end"), _line("axis", _LEFT, floor, right, floor)]
    for power in range(low, high + 1):
        height = y(10.0**power)
        parts += [
            _line("grid", _LEFT, height, right, height),
            _text(_number(10.0**power), _LEFT - 8, height + 4, "end"),
        ]
    for at, text in _ticks(first, last):
        parts += [_line("grid", x(at), _TOP, x(at), floor), _text(text, x(at), floor + 16, "middle")]
    # What belongs to the case is drawn last, above the rest.
    for mark in sorted(marks, key=lambda mark: (mark.is_of_case, mark.alert is not None, mark.at)):
        parts.append(_mark(mark, x(mark.at), y(mark.amount), floor))
    return _svg("chart timeline", _WIDTH, floor + 24, description, parts)


def _mark(mark: Mark, x: float, y: float, floor: float) -> Markup:
    parts = [_tag("title", mark.text)]
    if mark.probability is not None:
        height = max(1.0, mark.probability * _STRIP)
        parts.append(_tag("rect", class_="score", x=x - 1.5, y=floor - height, width=3, height=height))
    if mark.alert is not None:
        parts.append(_tag("circle", class_=f"ring {mark.alert}", cx=x, cy=y, r=8))
    kinds = "dot" + " of-case" * mark.is_of_case + " labelled" * mark.is_labelled
    parts.append(_tag("circle", class_=kinds, cx=x, cy=y, r=4.5 if mark.is_of_case else 3))
    if mark.verdict == "fraud":
        parts.append(_tag("path", class_="verdict-fraud", d=f"M{x:.1f} {y - 11:.1f}l-6 -9h12z"))
    elif mark.verdict == "genuine":
        parts.append(_tag("path", class_="verdict-genuine", d=f"M{x - 4:.1f} {y - 15:.1f}l3 4l6 -8"))
    if mark.label:
        parts.append(_text(mark.label, x + 10, y + 4, "start"))
    return _tag("g", *parts, class_="mark", data_value=str(mark.amount))


def bars(
    days: Sequence[date], values: Sequence[float], description: str, width: int = 480, height: int = 120
) -> Markup:
    """Draw a number for each day as bars, with the largest number and the first and the last day."""
    if not days:
        return Markup()
    top = 14
    left = 56
    bottom = height - 20
    each = min((width - left) / len(days), 40.0)
    scale = (bottom - top) / max(*values, 1)
    parts = [_text(_number(max(*values, 1)), left - 6, top + 4, "end"), _line("axis", left, bottom, width, bottom)]
    for number, (day, value) in enumerate(zip(days, values, strict=True)):
        place = {"x": left + each * (number + 0.1), "y": bottom - scale * value}
        size = {"width": each * 0.8, "height": scale * value}
        title = _tag("title", f"{day}: {_number(value)}")
        parts.append(_tag("rect", title, class_="bar", data_value=str(value), **place, **size))
    parts.append(_text(f"{days[0]:%-d %b}", left, height - 4, "start"))
    if each * len(days) > 100:
        parts.append(_text(f"{days[-1]:%-d %b}", left + each * len(days), height - 4, "end"))
    return _svg("chart", width, height, description, parts)


def ranked(names: Sequence[str], values: Sequence[float], description: str) -> Markup:
    """Draw a number for each name as horizontal bars, each with its number."""
    if not names:
        return Markup()
    row = 22
    left = 200
    width = 480
    scale = (width - left - 76) / max(*values, 1)
    parts: list[Markup] = []
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        y = row * number
        length = max(scale * value, 0.75)
        bar = {"x": left, "y": y + 4, "width": length, "height": 14}
        parts += [
            _text(_short(name), left - 8, y + 15, "end"),
            _tag("rect", _tag("title", f"{name}: {_number(value)}"), class_="bar", data_value=str(value), **bar),
            _text(_number(value), left + length + 6, y + 15, "start"),
        ]
    return _svg("chart", width, row * len(names), description, parts)


def lines(days: Sequence[date], series: Mapping[str, Sequence[float | None]], description: str) -> Markup:
    """Draw shares from 0 to 1 over days, a line for each series; a day without a value interrupts it."""
    if not days or not any(value is not None for values in series.values() for value in values):
        return Markup()
    width = 480
    height = 190
    left = 44
    top = 30
    bottom = height - 20
    right = width - 8
    span = max((days[-1] - days[0]).days, 1)

    def x(day: date) -> float:
        return (left + right) / 2 if len(days) == 1 else left + 6 + (right - left - 12) * (day - days[0]).days / span

    parts: list[Markup] = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - (bottom - top) * share
        parts += [_line("grid", left, y, right, y), _text(f"{share:.0%}", left - 6, y + 4, "end")]
    place = float(left)
    for number, (name, values) in enumerate(series.items()):
        class_ = f"series-{number % _SERIES}"
        points = [(day, value) for day, value in zip(days, values, strict=True)]
        for part in _whole(points):
            path = " ".join(f"{x(day):.1f},{bottom - (bottom - top) * value:.1f}" for day, value in part)
            parts.append(_tag("polyline", class_=f"line {class_}", points=path))
            for day, value in part:
                title = _tag("title", f"{day}, {name}: {value:.2%}")
                at = {"cx": x(day), "cy": bottom - (bottom - top) * value, "r": 2.5}
                parts.append(_tag("circle", title, class_=f"dot {class_}", data_value=str(value), **at))
        parts += [_line(f"line {class_}", place, 10, place + 16, 10), _text(name, place + 22, 14, "start")]
        place += 32 + 6.8 * len(name)
    parts.append(_text(f"{days[0]:%-d %b}", left, height - 4, "start"))
    if len(days) > 1:
        parts.append(_text(f"{days[-1]:%-d %b}", right, height - 4, "end"))
    return _svg("chart", width, height, description, parts)


def heat(
    names: Sequence[str], days: Sequence[date], values: Sequence[Sequence[float | None]], top: float, description: str
) -> Markup:
    """Draw a number for each name and day as a cell, the darker the nearer it is to ``top``.

    Args:
        names: names of the rows.
        days: days of the columns.
        values: for each name, a number for each day; None leaves the cell out.
        top: the number from which a cell has the full colour.
        description: a description for screen readers.
    """
    if not names or not days:
        return Markup()
    row = 18
    left = 190
    width = 960
    each = min((width - left) / len(days), 48.0)
    parts: list[Markup] = []
    for line, (name, of_name) in enumerate(zip(names, values, strict=True)):
        parts.append(_text(_short(name), left - 8, row * line + 13, "end"))
        for column, (day, value) in enumerate(zip(days, of_name, strict=True)):
            if value is None:
                continue
            cell = {"x": left + each * column, "y": row * line + 1, "width": each - 1, "height": row - 2}
            level = min(max(round(10 * value / top), 0), 10)
            title = _tag("title", f"{name}, {day}: {value:.3f}")
            parts.append(_tag("rect", title, class_=f"cell level-{level}", data_value=str(value), **cell))
    parts.append(_text(f"{days[0]:%-d %b}", left, row * len(names) + 14, "start"))
    if len(days) > 2:
        parts.append(_text(f"{days[-1]:%-d %b}", left + each * len(days), row * len(names) + 14, "end"))
    return _svg("chart heat", width, row * len(names) + 20, description, parts)


def spark(values: Sequence[float], description: str) -> Markup:
    """Draw numbers as bars without an axis, for the cell of a table."""
    height = 18
    scale = 18 / max([*values, 1])
    tops = [max(scale * value, 0.75) for value in values]
    parts = [
        _tag("rect", class_="bar", data_value=str(value), x=5 * number, y=height - top, width=4, height=top)
        for number, (value, top) in enumerate(zip(values, tops, strict=True))
    ]
    return _svg("spark", 5 * len(values), height, description, parts)


def interval(value: float | None, low: float, high: float, description: str) -> Markup:
    """Draw a share with its interval, on a scale from 0 to 1."""
    parts = [_line("axis", 4, 6, 80, 6), _line("span", 4 + 76 * low, 6, 4 + 76 * high, 6)]
    if value is not None:
        parts.append(_tag("circle", class_="of-case", data_value=str(value), cx=4 + 76 * value, cy=6, r=3.5))
    return _svg("spark", 84, 12, description, parts)


def _whole(points: Sequence[tuple[date, float | None]]) -> list[list[tuple[date, float]]]:
    """Return the parts of a line between its gaps."""
    parts: list[list[tuple[date, float]]] = [[]]
    for day, value in points:
        if value is None:
            parts.append([])
        else:
            parts[-1].append((day, value))
    return [part for part in parts if part]


def _svg(class_: str, width: int, height: int, description: str, parts: Sequence[Markup], role: str = "img") -> Markup:
    """Return a chart; the class ``chart`` fills the width of its container, others have a fixed size."""
    size = {} if class_.startswith("chart") else {"width": width, "height": height}
    described = {"role": role, "aria_label": description}
    return _tag("svg", *parts, class_=class_, viewBox=f"0 0 {width} {height}", **size, **described)


def _text(text: str, x: float, y: float, anchor: str) -> Markup:
    return _tag("text", text, class_="tick", x=x, y=y, text_anchor=anchor)


def _line(class_: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return _tag("line", class_=class_, x1=x1, y1=y1, x2=x2, y2=y2)


def _tag(name: str, *inside: str, **attributes: object) -> Markup:
    """Return an element; its text and attributes are escaped, and numbers have one decimal place."""
    # A page has hundreds of elements: Markup.format would take half of its time.
    pairs = [
        f'{_attribute(key)}="{f"{one:.1f}" if isinstance(one, float) else escape(replace_invisible(str(one)))}"'
        for key, one in attributes.items()
    ]
    parts = "".join(part if isinstance(part, Markup) else escape(replace_invisible(part)) for part in inside)
    return Markup(f"<{' '.join((name, *pairs))}>{parts}</{name}>")  # noqa: S704 (escaped above)


@cache
def _attribute(name: str) -> str:
    """Return the name of an attribute, given as a Python name: ``class`` for ``class_``."""
    return name.rstrip("_").replace("_", "-")


def _powers(amounts: Iterable[float]) -> tuple[int, int]:
    """Return the powers of ten between which the amounts lie."""
    positive = [amount for amount in amounts if amount > 0 and math.isfinite(amount)] or [1.0]
    low = math.floor(math.log10(min(positive)))
    high = math.ceil(math.log10(max(positive)))
    return low, max(high, low + 1)


def _ticks(first: datetime, last: datetime) -> list[tuple[datetime, str]]:
    """Return up to ten round times with their labels."""
    step = next((step for step in _STEPS if (last - first) / step <= 9), _STEPS[-1])
    epoch = datetime(1970, 1, 1, tzinfo=first.tzinfo)
    at = epoch + ((first - epoch) // step + 1) * step
    ticks = []
    while at < last:
        is_day = step >= timedelta(days=1) or at.time() == datetime.min.time()
        ticks.append((at, f"{at:%-d %b}" if is_day else f"{at:%H:%M}"))
        at += step
    return ticks


def _short(name: str, longest: int = _LONGEST) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _number(value: float) -> str:
    return f"{value:,.12g}"
