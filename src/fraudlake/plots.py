"""Plots: small pandas frames of the lake's tables become figures for a notebook or a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_QUIET, _MAIN, _ACCENT = "#9aa5b1", "#2f5d8a", "#c0392b"
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
_COUNT = FuncFormatter(lambda value, _: f"{value:,.0f}")


def bars(counts: pd.Series[int], title: str, unit: str) -> Figure:
    """Draw counts as horizontal bars, the first on top, each labelled with its number.

    Args:
        counts: numbers, indexed by the names of the bars.
        title: the title of the figure.
        unit: the label of the axis, such as "rows".
    """
    ordered = counts[::-1]
    with plt.style.context(_STYLE):
        figure, axes = plt.subplots(figsize=(9, 1.2 + 0.42 * max(len(ordered), 2)), layout="constrained")
        drawn = axes.barh([str(name) for name in ordered.index], ordered.to_numpy(), color=_MAIN, height=0.62)
        axes.bar_label(drawn, labels=[f"{count:,.0f}" for count in ordered], padding=4, fontsize=9)
        axes.set(title=title, xlabel=unit)
        axes.margins(x=0.1)
        if counts.empty:
            axes.set(yticks=[], xticks=[0])
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_formatter(_COUNT)
    return _done(figure)


def over_time(counts: pd.DataFrame, title: str, unit: str) -> Figure:
    """Draw counts over time, a panel for each column, the last panel accented.

    Args:
        counts: numbers, indexed by the time (UTC) at which each interval begins.
        title: the title of the figure.
        unit: the length of an interval, such as "an hour", for the label of the axis.
    """
    width = np.diff(counts.index.to_numpy()).min() if len(counts) > 1 else np.timedelta64(1, "h")
    with plt.style.context(_STYLE):
        figure, panels = plt.subplots(
            len(counts.columns),
            figsize=(9, 1 + 1.9 * len(counts.columns)),
            sharex=True,
            layout="constrained",
            squeeze=False,
        )
        for axes, name in zip(panels[:, 0], counts.columns, strict=True):
            last = name == counts.columns[-1]
            axes.bar(counts.index, counts[name].to_numpy(), width, align="edge", color=_ACCENT if last else _MAIN)
            axes.set(ylabel=f"{name}\n{unit}", ylim=(0, None))
            axes.yaxis.set_major_formatter(_COUNT)
        panels[0, 0].set_title(title)
        panels[-1, 0].set_xlabel("event time, UTC")
    return _done(figure)


def timeline(transactions: pd.DataFrame, alerts: pd.DataFrame, title: str) -> Figure:
    """Draw an account's payments over time on a logarithmic scale, with the pairs that alerted.

    Args:
        transactions: ``timestamp`` (UTC), ``amount`` (account currency).
        alerts: ``small_timestamp, small_amount, timestamp, amount`` of the same account.
        title: the title of the figure.
    """
    with plt.style.context(_STYLE):
        figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
        axes.scatter(transactions["timestamp"], transactions["amount"], s=22, color=_QUIET, label="payment")
        for number, pair in enumerate(alerts.to_dict(orient="records")):
            axes.plot(
                [pair["small_timestamp"], pair["timestamp"]],
                [pair["small_amount"], pair["amount"]],
                color=_ACCENT,
                marker="o",
                markersize=6,
                lw=1.4,
                label=None if number else "alert: small payment, then a large one",
            )
            axes.annotate(
                f"{pair['small_amount']:,.2f} → {pair['amount']:,.2f}",
                (pair["timestamp"], pair["amount"]),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=_ACCENT,
            )
        axes.set(title=title, ylabel="amount, account currency (log scale)", yscale="log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.margins(y=0.12)
        figure.legend(loc="outside lower left", ncols=2)
        axes.set_xlabel("event time, UTC")
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
    hits, flagged = np.cumsum(label)[last_of_score], np.arange(1, len(label) + 1)[last_of_score]
    recall, precision = hits / max(label.sum(), 1), hits / flagged
    with plt.style.context(_STYLE):
        figure, (curve, spread) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
        curve.step(np.append(0, recall), np.append(1, precision), where="pre", color=_MAIN, lw=2)
        at = int((score[last_of_score] >= threshold).sum()) - 1
        if at >= 0:
            curve.plot(recall[at], precision[at], "o", color=_ACCENT, label=f"at the threshold {threshold:g}")
            curve.legend(loc="lower left")
        curve.set(title=title, xlabel="recall: share of fraud that is detected", ylabel="precision", ylim=(0, 1.05))
        edges = np.linspace(0, 1, 26)
        spread.hist(score[~label], bins=edges.tolist(), color=_QUIET, label="not fraud")
        spread.hist(score[label], bins=edges.tolist(), color=_ACCENT, alpha=0.8, label="fraud")
        spread.axvline(threshold, color="black", lw=1, ls=":")
        spread.set(
            title="Scores by label", xlabel="probability of fraud", ylabel="transactions (log scale)", yscale="log"
        )
        spread.yaxis.set_major_formatter(_COUNT)
        spread.legend()
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
        figure, axes = plt.subplots(figsize=(9, 1.4 + 0.34 * len(table)), layout="constrained")
        image = axes.pcolormesh(table.to_numpy(), cmap="Reds", vmin=0, vmax=0.5, edgecolors="white", lw=1)
        for (row, column), value in np.ndenumerate(table.to_numpy()):
            if np.isfinite(value):
                colour = "white" if value > 0.3 else "black"
                axes.text(column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
        axes.set_xticks(np.arange(len(table.columns)) + 0.5, [str(day)[:10] for day in table.columns], rotation=30)
        axes.set_yticks(np.arange(len(table)) + 0.5, list(table.index))
        axes.grid(visible=False)
        axes.set_title(title)
        figure.colorbar(image, label="population stability index", shrink=0.9)
    return _done(figure)


def _done(figure: Figure) -> Figure:
    """Close the figure, so that a notebook shows it only once, as the value of its cell."""
    plt.close(figure)
    return figure
