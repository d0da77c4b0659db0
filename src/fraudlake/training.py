"""Training: silver becomes a registered model, which takes over where it is better than the one that scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.gold import drift, features, figures, model
from fraudlake.gold.registry import CHAMPION, Registry, Trained, Version
from fraudlake.rows import kept
from fraudlake.silver import verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake

_Keep = Callable[["DataFrame"], "DataFrame"]
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
        scratch=lake.scratch,
    )


def train(lake: Lake, progress: model.Progress = lambda *_: None) -> Outcome:
    """``silver_transactions`` → a registered model; nothing, where the latest saw the same rows in the same way.

    The first becomes the champion at once; another one where it is better by :func:`_compared`, and
    ``settings.auto_promote`` allows it.

    Raises:
        FraudlakeError: there is too little to learn from, or the store cannot be reached.
    """
    settings, registry = lake.settings, registry_of(lake)
    with lake.exclusive("train"):
        trained_on: dict[str, Any] = {
            "silver_version": lake.data_version(tables.SILVER_TRANSACTIONS),
            "verdicts_version": lake.data_version(tables.SILVER_VERDICTS),
            **{name: getattr(settings, name) for name in ("labels", "holdout", "algorithm")},
        }
        champion = registry.champion()
        for known in registry.versions()[:1] if champion else ():
            if known.trained_on == trained_on:
                scores = CHAMPION in known.aliases
                told = "" if scores else f"version {champion.number} goes on scoring" if champion else ""
                return Outcome(known, False, scores, told)

        with _kept() as keep:
            history = keep(features.of_history(lake.read(tables.SILVER_TRANSACTIONS), settings))
            labelled, by, cut = _labelled(lake, history, keep)
            fitted = model.search(labelled, cut, settings.algorithm, progress)
            held = keep(labelled.where(f"timestamp >= TIMESTAMP'{cut.judged_from}'"))
            scored = keep(model.score(held, fitted.pipeline, settings.threshold))
            metrics = model.judge(scored)
            baseline = model.judge(model.score(held, fitted.baseline, settings.threshold))
            shapes = drift.shapes(_settled(history), features.NAMES) | drift.shapes(scored, (drift.SCORE,))
            until = cut.parts["judged"][3].date().isoformat()
            version = registry.register(
                Trained(
                    fitted.pipeline,
                    drift.Profile(shapes=shapes, until=until),
                    history.select(*features.NAMES).limit(3).toPandas(),
                    trained_on,
                    str(cut.judged_from),
                    metrics | {f"baseline_{name}": value for name, value in baseline.items()},
                    {
                        **trained_on,
                        "labelled_by": by,
                        "split": str(cut),
                        "candidate": str(fitted.candidate),
                        "threshold": settings.threshold,
                        **{f"chosen by: {name}": round(area, 4) for name, area in fitted.areas.items()},
                    },
                    figures.figures(scored, fitted.pipeline),
                )
            )
            teacher = "analysts' verdicts" if by == "verdicts" else "Flink's label"
            told = f"learned from {teacher}: {cut}"
            if champion is None:
                return Outcome(registry.promote(version.number), True, True, f"{told}; the first model: it scores now")
            try:
                old = model.judge(model.score(held, registry.load(champion.number).pipeline, settings.threshold))
            except FraudlakeError as error:
                return Outcome(version, True, False, f"{told}; not compared, the champion cannot be used: {error}")
            is_better, why = _compared(champion.number, old, version.number, metrics, settings.promotion_margin)
            if is_better and settings.auto_promote:
                return Outcome(registry.promote(version.number), True, True, f"{told}; {why}: it scores now")
            return Outcome(version, True, False, f"{told}; {why}: version {champion.number} goes on scoring")


def compare(lake: Lake, number: str | None = None) -> Comparison:
    """Judge a version, by default the challenger, against the champion on rows that neither was fitted on.

    Raises:
        FraudlakeError: there is no champion, no such version, or no challenger.
    """
    settings, registry = lake.settings, registry_of(lake)
    champion = registry.required_champion()
    other = registry.version(number) if number else registry.challenger()
    if other is None or other.number == champion.number:
        raise FraudlakeError(f"there is nothing to compare version {champion.number}, the champion, with: train first")
    with _kept() as keep:
        history = keep(features.of_history(lake.read(tables.SILVER_TRANSACTIONS), settings))
        labelled, _, _ = _labelled(lake, history, keep)
        begin = max(champion.judged_from, other.judged_from)
        held = keep(labelled.where(f"timestamp >= TIMESTAMP'{begin}'"))
        found = {
            one.number: model.judge(model.score(held, registry.load(one.number).pipeline, settings.threshold))
            for one in (champion, other)
        }
    is_better, why = _compared(
        champion.number, found[champion.number], other.number, found[other.number], settings.promotion_margin
    )
    return Comparison(champion.number, other.number, f"transactions since {begin} UTC", found, is_better, why)


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
        registry.load(chosen.number)
        return registry.promote(chosen.number), "promoted without a comparison"
    compared = compare(lake, chosen.number)
    if not compared.is_better:
        raise FraudlakeError(f"{compared.told}: not promoted; --force promotes it all the same")
    return registry.promote(chosen.number), compared.told


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


@contextmanager
def _kept() -> Iterator[_Keep]:
    """Keep what is read more than once, until the end."""
    with ExitStack() as end:
        yield lambda rows: end.enter_context(kept(rows))


def _settled(history: DataFrame) -> DataFrame:
    """Leave out the first day of a longer history, in which what the last day held is still filling up."""
    first, last = history.agg(F.min("timestamp"), F.max("timestamp")).collect()[0]
    return history.where(F.col("timestamp") >= first + _DAY) if last - first >= 2 * _DAY else history


def _labelled(lake: Lake, history: DataFrame, keep: _Keep) -> tuple[DataFrame, str, model.Split]:
    """Label a history as ``settings.labels`` says, and cut it.

    ``auto`` takes the verdicts where there are enough of them for every part, and else Flink's label.
    """
    settings = lake.settings
    if settings.labels != "flink":
        by_verdict = keep(model.labelled(history, verdicts.latest(lake.read(tables.SILVER_VERDICTS))))
        try:
            return by_verdict, "verdicts", model.split(by_verdict, settings.holdout)
        except model.TooLittleError:
            if settings.labels == "verdicts":
                raise
    by_flink = model.labelled(history, None)
    return by_flink, "flink", model.split(by_flink, settings.holdout)
