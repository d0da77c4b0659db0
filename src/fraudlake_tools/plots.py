"""Plots: draws figures for notebooks and reports from small pandas frames of the lake's tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_QUIET, _MAIN, _ACCENT = "#9aa5b1", "#2f5d8a", "#c0392b"
_OF_RULES = (_ACCENT, _MAIN, "#d68910", "#1e8449", "#7d3c98")
_STYLE: dict[str, Any] = {
    "figure.dpi": 110,
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _QUIET,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e4e7eb",
    "legend.frameon": False,
    "date.converter": "concise",
}
_WIDTHS = {"hour": np.timedelta64(1, "h"), "day": np.timedelta64(1, "D")}
_NAMED = 8
"""Maximum number of alerts in a timeline with amounts; more would hide the payments."""


def bars(counts: pd.Series[Any], title: str, unit: str) -> Figure:
    """Draw numbers as horizontal bars, the first on top, each labelled with its number.

    Args:
        counts: numbers, indexed by the names of the bars.
        title: the title of the figure.
        unit: the label of the axis, such as "rows".
    """
    ordered = counts[::-1]
    with plt.style.context(_STYLE):
        figure, axes = plt.subplots(figsize=(9, 1.2 + 0.42 * max(len(ordered), 2)), layout="constrained")
        drawn = axes.barh([str(name) for name in ordered.index], ordered.to_numpy(), color=_MAIN, height=0.62)
        axes.bar_label(drawn, labels=[_number(count) for count in ordered], padding=4, fontsize=9)
        axes.set(title=title, xlabel=unit)
        axes.grid(axis="y", visible=False)
        _numbers(axes.xaxis, ordered.to_numpy())
        axes.set_xlim(0, 1.1 * max(ordered.max(), 0) or 1) if len(ordered) else _say_nothing(axes)
    return _done(figure)


def over_time(
    counts: pd.DataFrame,
    title: str,
    unit: str,
    every: Literal["hour", "day"] = "hour",
    accented: Collection[str] = (),
) -> Figure:
    """Draw numbers over time, a panel for each column.

    Args:
        counts: numbers, indexed by the time (UTC) at which each interval begins.
        title: the title of the figure.
        unit: the label of the axes, such as "rows an hour".
        every: the length of an interval.
        accented: the columns whose bars are highlighted.
    """
    names = list(counts.columns) or [""]
    with plt.style.context(_STYLE):
        figure, panels = plt.subplots(
            len(names), figsize=(9, 1 + 1.9 * len(names)), sharex=True, layout="constrained", squeeze=False
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        for axes, name in zip(panels[:, 0], names, strict=True):
            axes.set_title(name, fontsize=10, fontweight="normal")
            if not counts.size:
                _say_nothing(axes)
                continue
            values = counts[name].to_numpy()
            colour = _ACCENT if name in accented else _MAIN
            axes.bar(counts.index, values, _WIDTHS[every], align="edge", color=colour)
            axes.set(ylabel=unit, ylim=(0, 1.1 * max(values.max(), 0) or 1))
            _numbers(axes.yaxis, values)
        panels[-1, 0].set_xlabel("event time, UTC")
    return _done(figure)


def timeline(transactions: pd.DataFrame, evidence: pd.DataFrame, title: str) -> Figure:
    """Draw an account's payments over time, with the alerts that they raised.

    Each alert is a line through its payments, with a ring around each and the amount next to the last, which completed
    it; a rule has one colour. The scale is logarithmic, unless an amount is zero or below.

    Args:
        transactions: ``timestamp`` (UTC), ``amount`` (account currency).
        evidence: a row for each payment of each alert, in order: ``rule, alert_id, timestamp, amount``.
        title: the title of the figure.
    """
    with plt.style.context(_STYLE):
        figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
        axes.scatter(transactions["timestamp"], transactions["amount"], s=22, color=_QUIET, label="payment", zorder=3)
        for number, (rule, of_rule) in enumerate(evidence.groupby("rule", sort=True)):
            colour = _OF_RULES[number % len(_OF_RULES)]
            ring: dict[str, Any] = {"marker": "o", "markersize": 8 + 4 * number, "markerfacecolor": "none"}
            label: str | None = f"alert of {rule}"
            for _, alert in of_rule.groupby("alert_id", sort=False):
                axes.plot(alert["timestamp"], alert["amount"], color=colour, lw=1.2, label=label, **ring)
                label = None
        amounts = np.concatenate([transactions["amount"].to_numpy(float), evidence["amount"].to_numpy(float)])
        axes.set_title(title)
        axes.set(ylabel="amount, account currency", xlabel="event time, UTC")
        if not amounts.size:
            _say_nothing(axes)
            return _done(figure)
        if amounts.min() > 0:
            _logarithmic(axes, amounts.min() / 1.4, amounts.max() * 1.4)
            axes.set_ylabel("amount, account currency (log scale)")
        else:
            _numbers(axes.yaxis, amounts)
        axes.margins(x=0.08)
        lasts = evidence.groupby("alert_id", sort=False).last().drop_duplicates(["timestamp", "amount"])
        for last in lasts.to_dict(orient="records") if len(lasts) <= _NAMED else ():
            axes.annotate(
                f"{last['amount']:,.2f}",
                (last["timestamp"], last["amount"]),
                xytext=(9, 4),
                textcoords="offset points",
                fontsize=9,
            )
        figure.legend(loc="outside lower left", ncols=3)
    return _done(figure)


def precision_recall(predictions: pd.DataFrame, threshold: float, title: str) -> Figure:
    """Draw precision against recall over all thresholds, and how the scores of both classes are spread.

    Args:
        predictions: ``probability``, ``label``; rows without a label are left out.
        threshold: the probability from which a transaction is predicted fraud; the figure shows it.
        title: the title of the figure.
    """
    labelled = predictions.dropna(subset=["label"]).sort_values("probability", ascending=False)
    label = labelled["label"].to_numpy(dtype=bool)
    score = labelled["probability"].to_numpy(dtype=float)
    last_of_score = np.append(score[1:] != score[:-1], True) if len(score) else np.array([], dtype=bool)
    hits = np.cumsum(label)[last_of_score]
    flagged = np.arange(1, len(label) + 1)[last_of_score]
    recall = hits / max(label.sum(), 1)
    precision = hits / flagged
    with plt.style.context(_STYLE):
        figure, (curve, spread) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        curve.set(xlabel="recall: share of fraud that is detected", ylabel="precision")
        spread.set(xlabel="probability of fraud", ylabel="transactions (log scale)")
        spread.set_title("Scores by label", fontsize=10, fontweight="normal")
        if label.any():
            curve.step(np.append(0, recall), np.append(1, precision), where="pre", color=_MAIN, lw=2)
            curve.set(xlim=(-0.03, 1.03), ylim=(0, 1.05))
            at = int((score[last_of_score] >= threshold).sum()) - 1
            if at >= 0:
                curve.plot(recall[at], precision[at], "o", color="black", label=f"at the threshold {threshold:g}")
        else:
            _say_nothing(curve)
        if len(label):
            edges = np.linspace(0, 1, 26).tolist()
            counts = [
                spread.hist(score[chosen], bins=edges, color=colour, alpha=0.8, label=name)[0]
                for chosen, colour, name in ((~label, _QUIET, "not fraud"), (label, _ACCENT, "fraud"))
            ]
            spread.axvline(threshold, color="black", lw=1, ls=":", label=f"the threshold {threshold:g}")
            _logarithmic(spread, 0.7, 1.4 * max(np.max(counts), 10))
            figure.legend(loc="outside lower left", ncols=4)
        else:
            _say_nothing(spread)
    return _done(figure)


def drift(psi: pd.DataFrame, title: str) -> Figure:
    """Draw the population stability index of each feature by day.

    Args:
        psi: ``date, feature, psi``. By convention up to 0.1 is stable, and from 0.25 on is drift.
        title: the title of the figure.
    """
    table = psi.pivot_table(index="feature", columns="date", values="psi")
    table = table.loc[table.max(axis=1).sort_values().index]
    with plt.style.context(_STYLE):
        figure, axes = plt.subplots(figsize=(9, 1.4 + 0.34 * max(len(table), 3)), layout="constrained")
        image = axes.pcolormesh(table.to_numpy(), cmap="Reds", vmin=0, vmax=0.5, edgecolors="white", lw=1)
        for (row, column), value in np.ndenumerate(table.to_numpy()):
            if np.isfinite(value):
                colour = "white" if value > 0.3 else "black"
                text = f"{abs(value):.2f}"
                axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, color=colour)
        axes.set_xticks(np.arange(len(table.columns)) + 0.5, [str(day)[:10] for day in table.columns], rotation=30)
        axes.set_yticks(np.arange(len(table)) + 0.5, list(table.index))
        axes.grid(visible=False)
        axes.set_title(title)
        figure.colorbar(image, label="population stability index", shrink=0.9, extend="max")
        if not len(table):
            _say_nothing(axes)
    return _done(figure)


def _number(value: float, _: object = None) -> str:
    """Write a number in full: 2.5 as 2.5, without -0 or powers of ten."""
    return f"{round(float(value), 9) + 0.0:,.12g}"


def _numbers(axis: Axis, values: Any) -> None:
    """Label an axis with plain numbers, and with whole ones if all values are whole."""
    axis.set_major_locator(
        MaxNLocator("auto", steps=[1, 2, 5, 10], integer=bool(np.all(np.mod(values, 1) == 0)), min_n_ticks=2)
    )
    axis.set_major_formatter(FuncFormatter(_number))


def _logarithmic(axes: Axes, low: float, high: float) -> None:
    """Use a logarithmic scale between two limits above zero, with at least two labels."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1,) if len(powers) > 4 else (1, 2, 5)
    marks = [step * 10.0**power for power in powers for step in steps]
    inside = [mark for mark in marks if low <= mark <= high]
    if len(inside) < 2:
        low = max(mark for mark in marks if mark <= low)
        high = min(mark for mark in marks if mark >= high)
        inside = [mark for mark in marks if low <= mark <= high]
    axes.set(yscale="log", ylim=(low, high))
    axes.yaxis.set_major_locator(FixedLocator(inside))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(_number))


def _say_nothing(axes: Axes) -> None:
    """Write that there is no data, instead of drawing an empty axis."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(NullLocator())
        axis.set_major_formatter(NullFormatter())  # that of dates fails without a date (seen in matplotlib 3.11)
    axes.text(0.5, 0.5, "nothing to show yet", transform=axes.transAxes, ha="center", va="center", color=_QUIET)


def _done(figure: Figure) -> Figure:
    """Close the figure, so that a notebook shows it only once, as the value of its cell."""
    plt.close(figure)
    return figure
