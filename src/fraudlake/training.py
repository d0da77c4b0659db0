"""Training: silver becomes a registered model, which takes over where it is better than the one that scores."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pandas as pd

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.gold import drift, features, figures, history, model, published
from fraudlake.gold.registry import CHAMPION, OutdatedModelError, Registry, Trained, Version
from fraudlake.silver import verdicts

if TYPE_CHECKING:
    from fraudlake.gold.history import History, Rows
    from fraudlake.gold.published import Model
    from fraudlake.lake import Lake

_DAY = timedelta(days=1)
_RATE, _AREA = "true_prediction_rate", "area_under_pr"


@dataclass(frozen=True)
class Outcome:
    """What a training came to: the version, whether it is new, whether it scores from now on, and why."""

    version: Version
    is_new: bool
    is_champion: bool
    told: str


@dataclass(frozen=True)
class Comparison:
    """Two versions on the same rows, which neither was fitted on: figures by name, and what follows."""

    champion: str
    challenger: str
    rows: str
    figures: dict[str, dict[str, float]]
    is_better: bool
    told: str


def registry_of(lake: Lake) -> Registry:
    """Open the lake's model registry."""
    settings = lake.settings
    return Registry(
        lake.tracking_uri,
        lake.registry_uri,
        settings.model_name,
        experiment=settings.experiment or settings.model_name,
        artifacts=lake.artifacts,
    )


def versions(lake: Lake) -> list[Version]:
    """Return all versions of the lake's model, the newest first; nothing is made where there is none."""
    return registry_of(lake).versions() if lake.has_models else []


def publish(lake: Lake, champion: Model) -> None:
    """Let micro-batches score with a model, where they do not yet."""
    if not published.is_champion(lake.rows(tables.GOLD_MODELS), champion):
        lake.write(published.row(champion, datetime.now(UTC)), tables.GOLD_MODELS, "append")


def train(lake: Lake, progress: model.Progress = lambda *_: None) -> Outcome:
    """``silver_transactions`` → a registered model; nothing, where the latest saw the same rows in the same way.

    The first becomes the champion at once, and so does one that follows a champion of an earlier fraudlake; another
    one where it is better by :func:`_compared`. ``settings.auto_promote`` must allow it, but for the first.

    Raises:
        FraudlakeError: there is too little to learn from, or the store cannot be reached.
    """
    settings, registry = lake.settings, registry_of(lake)
    with lake.exclusive("train"):
        trained_on: dict[str, Any] = {
            "silver_version": lake.data_version(tables.SILVER_TRANSACTIONS),
            "verdicts_version": lake.data_version(tables.SILVER_VERDICTS),
            **{name: getattr(settings, name) for name in ("labels", "holdout", "algorithm", "max_training_rows")},
        }
        champion = registry.champion()
        for known in registry.versions()[:1] if champion else ():
            if known.trained_on == trained_on:
                scores = CHAMPION in known.aliases
                told = "" if scores else f"version {champion.number} goes on scoring" if champion else ""
                return Outcome(known, False, scores, told)

        past = _history(lake)
        labelled, by, cut = _labelled(past, settings.labels, settings.holdout)
        fitted = model.search(labelled, cut, settings.algorithm, progress)
        test_rows = labelled.between(cut.tested_from, None)
        metrics = model.metrics(fitted.classifier, test_rows, settings.threshold)
        baseline = model.metrics(fitted.baseline, test_rows, settings.threshold)
        version = registry.register(
            Trained(
                fitted.classifier,
                _profile(past, fitted, test_rows, cut),
                pd.DataFrame(labelled.features[:3].astype(float), columns=list(features.NAMES)),
                trained_on,
                str(cut.tested_from),
                metrics | {f"baseline_{name}": value for name, value in baseline.items()},
                {
                    **trained_on,
                    "labelled_by": by,
                    "split": str(cut),
                    "candidate": str(fitted.candidate),
                    "threshold": settings.threshold,
                    **{f"chosen by: {name}": round(area, 4) for name, area in fitted.areas.items()},
                },
                figures.figures(fitted.classifier, test_rows),
            )
        )
        teacher = "analysts' verdicts" if by == "verdicts" else "Flink's label"
        is_better, why = _takes_over(lake, registry, champion, version, metrics, test_rows)
        told = f"learned from {teacher}: {cut}; {why}"
        if is_better and (champion is None or settings.auto_promote):
            return Outcome(_promoted(lake, registry, version.number), True, True, f"{told}: it scores now")
        stays = "'fraudlake model promote --force' lets it score" if is_better else "the champion goes on scoring"
        return Outcome(version, True, False, f"{told}: {stays}")


def _takes_over(
    lake: Lake,
    registry: Registry,
    champion: Version | None,
    version: Version,
    metrics: dict[str, float],
    test_rows: Rows,
) -> tuple[bool, str]:
    """Tell whether a new version may take over from the champion, and why."""
    if champion is None:
        return True, "the first model"
    try:
        loaded = registry.load(champion.number)
    except OutdatedModelError as error:
        return True, str(error).partition(": train again")[0]
    except FraudlakeError as error:
        return False, f"not compared, the champion cannot be used: {error}"
    old = model.metrics(loaded.classifier, test_rows, lake.settings.threshold)
    return _compared(champion.number, old, version.number, metrics, lake.settings.promotion_margin)


def compare(lake: Lake, number: str | None = None) -> Comparison:
    """Judge a version, by default the challenger, against the champion on rows that neither was fitted on.

    Raises:
        FraudlakeError: there is no champion, no such version, or no challenger.
    """
    if not lake.has_models:
        raise FraudlakeError("there is no model to compare: run 'fraudlake train' first")
    settings, registry = lake.settings, registry_of(lake)
    champion = registry.required_champion()
    other = registry.version(number) if number else registry.challenger()
    if other is None or other.number == champion.number:
        raise FraudlakeError(f"there is nothing to compare version {champion.number}, the champion, with: train first")
    loaded = [registry.load(one.number) for one in (champion, other)]
    labelled, _, _ = _labelled(_history(lake), settings.labels, settings.holdout)
    begin = max(champion.tested_from, other.tested_from)
    test_rows = labelled.between(datetime.fromisoformat(begin), None)
    metrics = {one.number: model.metrics(one.classifier, test_rows, settings.threshold) for one in loaded}
    is_better, why = _compared(
        champion.number, metrics[champion.number], other.number, metrics[other.number], settings.promotion_margin
    )
    return Comparison(champion.number, other.number, f"transactions since {begin} UTC", metrics, is_better, why)


def promote(lake: Lake, number: str | None = None, force: bool = False) -> tuple[Version, str]:
    """Make a version, by default the challenger, the champion, where it is better or ``force`` is given.

    Raises:
        FraudlakeError: it is not better, or there is no such version.
    """
    registry = registry_of(lake)
    chosen = registry.version(number) if number else registry.challenger()
    if chosen is None:
        raise FraudlakeError("there is no challenger to promote: train first, or name a version")
    if force or registry.champion() is None:
        return _promoted(lake, registry, chosen.number), "promoted without a comparison"
    compared = compare(lake, chosen.number)
    if not compared.is_better:
        raise FraudlakeError(f"{compared.told}: not promoted; --force promotes it all the same")
    return _promoted(lake, registry, chosen.number), compared.told


def rollback(lake: Lake) -> Version:
    """Make the version the champion again that the champion took over from.

    Raises:
        FraudlakeError: it took over from none, or that one cannot be used.
    """
    registry = registry_of(lake)
    loaded = registry.load(registry.replaced().number)
    version = registry.rollback()
    publish(lake, loaded)
    return version


def _promoted(lake: Lake, registry: Registry, number: str) -> Version:
    """Make a version the champion that micro-batches score with; one that cannot be loaded is refused first."""
    loaded = registry.load(number)
    version = registry.promote(number)
    publish(lake, loaded)
    return version


def _compared(
    old: str, old_figures: dict[str, float], new: str, new_figures: dict[str, float], margin: float
) -> tuple[bool, str]:
    """Tell whether a version beats another: in the area under PR by a margin, and in the true prediction rate."""
    areas, rates = ([figures.get(name, 0.0) for figures in (old_figures, new_figures)] for name in (_AREA, _RATE))
    is_better = areas[1] >= areas[0] + margin and rates[1] > rates[0]
    return is_better, (
        f"version {new} {'beats' if is_better else 'does not beat'} version {old} "
        f"(area under PR {areas[1]:.4f} against {areas[0]:.4f}, to be higher by {margin:g}; "
        f"true prediction rate {rates[1]:.5f} against {rates[0]:.5f}, to be higher)"
    )


def _history(lake: Lake) -> History:
    """Bring the history into this process, or of a long one all fraud and a share of the rest."""
    transactions = lake.read(tables.SILVER_TRANSACTIONS)
    share = min(1.0, lake.settings.max_training_rows / max(transactions.count(), 1))
    return history.of(transactions, verdicts.latest(lake.read(tables.SILVER_VERDICTS)), share, lake.settings)


def _profile(past: History, fitted: model.Fitted, test_rows: Rows, cut: model.Split) -> drift.Profile:
    """Measure the shapes of the features, and of the scores on the test rows.

    The first day of a longer history is left out: what its rows say of the day before is still filling up.
    """
    first, last = past.span
    columns = past.columns(first + _DAY if last - first >= 2 * _DAY else None)
    shapes = {name: drift.shape(columns[name], columns["weight"]) for name in features.NAMES}
    scores = drift.shape(fitted.classifier.probabilities(test_rows.features), test_rows.weights)
    return drift.Profile(shapes=shapes | {drift.SCORE: scores}, until=cut.parts["tested"].last.date().isoformat())


def _labelled(past: History, labels: str, holdout: float) -> tuple[Rows, history.Labels, model.Split]:
    """Label a history as the setting ``labels`` says, and split it.

    ``auto`` takes the verdicts where there are enough of them for every part, and else Flink's label.
    """
    if labels != "flink":
        by_verdict = past.labelled("verdicts")
        try:
            return by_verdict, "verdicts", model.split(by_verdict, holdout)
        except model.TooLittleError:
            if labels == "verdicts":
                raise
    by_flink = past.labelled("flink")
    return by_flink, "flink", model.split(by_flink, holdout)
