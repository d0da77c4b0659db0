"""Promotion: decides from the metrics of two versions on the same rows whether one may replace the other, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.model.registry import AREA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fraudlake.settings import Settings

_AT_BUDGET = ("precision_at_budget", "recall_at_budget")


def compared(
    old: str, old_figures: Mapping[str, float], new: str, new_figures: Mapping[str, float], settings: Settings
) -> tuple[bool, str]:
    """Return whether version ``new`` beats ``old`` in ``promotion_metric``, by a margin, and why.

    If the metric is the area under PR, precision and recall at the budget must not be lower, either: a lead among
    scores that nobody reviews does not count. An undefined metric counts as 0.
    """
    metric = settings.promotion_metric
    margin = settings.promotion_margin

    def values(name: str) -> tuple[float, float]:
        return old_figures.get(name, 0.0), new_figures.get(name, 0.0)

    before, after = values(metric)
    lead = margin * abs(before) if metric == "amount_saved" else margin
    held = {name: values(name) for name in _AT_BUDGET if metric == AREA}
    is_better = after >= before + lead and all(new >= old for old, new in held.values())
    name = "area under PR" if metric == AREA else metric.replace("_", " ")
    further = "".join(
        f"; {name.replace('_', ' ')} {after:.4f} against {before:.4f}, not to be lower"
        for name, (before, after) in held.items()
    )
    return is_better, (
        f"version {new} {'beats' if is_better else 'does not beat'} version {old} "
        f"({name} {after:.4f} against {before:.4f}, to be higher by {lead:g}{further})"
    )
