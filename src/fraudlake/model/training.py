"""Training: trains and registers a model from silver, and promotes it if it is better than the champion."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.approvals import gate
from fraudlake.errors import FraudlakeError
from fraudlake.lake.commit import row_changes
from fraudlake.model import budget, drift, feedback, figures, history, kinds, promotion, search
from fraudlake.model.champion import make_champion
from fraudlake.model.metrics import Budget, LabelledScores, Ranked, estimated, measure_all
from fraudlake.model.registry import (
    BASELINE,
    CHAMPION,
    LABELLED_BY,
    NEW_KINDS,
    OutdatedModelError,
    Registry,
    Trained,
    Version,
    versions,
)
from fraudlake.model.store import has_models
from fraudlake.silver import verdicts
from fraudlake.text import sql_text
from fraudlake.text.counts import counted
from fraudlake.times import durations, literals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from fraudlake.lake import Lake
    from fraudlake.model.classifier import Classifier
    from fraudlake.model.history import History, Rows
    from fraudlake.model.intervals import Estimate
    from fraudlake.model.kinds import Kind
    from fraudlake.settings import Settings

_DAY = timedelta(days=1)
_VERSIONS = {"silver_version": tables.SILVER_TRANSACTIONS, "verdicts_version": tables.SILVER_VERDICTS}
_SETTINGS = {
    "labels",
    "holdout",
    "algorithm",
    "max_training_rows",
    "label_delay",
    "genuine_after",
    "train_from",
    "features",
}
"""The settings that a version records as its training input, next to the versions of the tables."""
_TEACHERS = {
    "flink": "Flink's label",
    "verdicts": "analysts' verdicts",
    "chargebacks": "verdicts, and what is genuine since it has none",
}
"""The names of the sources of labels in sentences."""
_LATE_FRAUDS = 0.01
"""The share of frauds that may become known after ``genuine_after`` without a warning."""
_LEAST_VERDICTS = 2 * search.LEAST * len(search.PARTS)
"""The number of verdicts below which no model learns from them."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training: the version, whether it is new, whether it is now the champion, and the reason."""

    version: Version
    is_new: bool
    is_champion: bool
    reason: str
    kinds: list[Kind] = field(default_factory=list)
    """The kinds of fraud of the test rows of a new version."""


@dataclass(frozen=True)
class Comparison:
    """Two versions compared on rows that neither was fitted on: figures by version, the result and its reason."""

    champion: str
    challenger: str
    rows: str
    figures: dict[str, dict[str, float]]
    is_better: bool
    reason: str
    differences: dict[str, Estimate]
    """The challenger's lead in the metrics that decide; empty if the test rows have too little fraud."""
    weighted: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    """Precision and recall by version, weighted by the transactions that verdicts represent; empty if not known."""


def train(lake: Lake, progress: search.Progress = lambda *_: None) -> Outcome:
    """Train a model on ``silver_transactions`` and register it.

    Nothing is trained if the latest version learned from the same rows with the same settings.

    The first version becomes the champion. A later version becomes the champion if ``settings.auto_promote`` allows it,
    and it is better by :func:`promotion.decide` and not below its own baseline, or the champion is of an earlier
    fraudlake and can no longer score.

    Raises:
        FraudlakeError: there are too few labels to learn from, or the store cannot be reached.
    """
    settings = lake.settings
    registry = Registry.of(lake)
    with lake.exclusive("train"):
        trained_on: dict[str, Any] = {
            **{name: lake.store.data_version(table) for name, table in _VERSIONS.items()},
            **_recorded(settings),
        }
        champion = registry.champion()
        # Without a champion the last training was cut, or its version waits for a second person.
        for latest in registry.versions()[:1] if champion or gate.keys(lake.store) > 1 else ():
            if latest.trained_on == trained_on:
                scores = CHAMPION in latest.aliases
                goes_on = f"version {champion.number} goes on scoring" if champion else "no version is approved yet"
                goes_on = "" if scores else goes_on
                return Outcome(latest, False, scores, _joined(goes_on, *_weaknesses(latest, champion)))

        with ThreadPoolExecutor(1) as pool:
            # The import takes seconds, and runs while Spark computes the features.
            pool.submit(importlib.import_module, "xgboost")
            past = history_of(lake)
        labelled, by, cut = labelled_rows(past, settings)
        joined = feedback.join(
            past, labelled, cut, search.search(labelled, cut, settings.algorithm, progress), settings
        )
        fitted = joined.fitted
        test_rows = labelled.between(cut.tested_from, None)
        # Verdicts are on few accounts, which are not representative.
        scored = test_rows if by != "verdicts" else past.all_rows().between(cut.tested_from, None)
        tested = search.scored(fitted.classifier, test_rows, settings)
        metrics = _measured(tested, settings)
        baseline = _measured(search.scored(fitted.baseline, test_rows, settings), settings)
        earlier = [labelled.between(None, cut.validated_until), *joined.feedback]
        of_test = _kinds(lake, earlier, test_rows, fitted.classifier, tested)
        version = registry.register(
            Trained(
                fitted.final,
                _profile(past, fitted, scored, cut),
                labelled.frame(3),
                trained_on,
                str(cut.tested_from),
                metrics
                | {f"{BASELINE}{name}": value for name, value in baseline.items()}
                | {f"{name}_{NEW_KINDS}": value for name, value in _count_new_kinds(of_test).items()},
                {
                    **trained_on,
                    LABELLED_BY: by,
                    "split": str(cut),
                    "candidate": str(fitted.candidate),
                    "threshold": settings.threshold,
                    **{f"chosen by: {name}": round(area, 4) for name, area in fitted.areas.items()},
                },
                figures.figures(fitted.classifier, test_rows),
                fitted.classifier,
            )
        )
        is_better, comparison = _takes_over(lake, registry, champion, version, fitted.classifier, test_rows)
        left_out = _left_out(lake, past, by)
        weaknesses = _weaknesses(version, champion)
        reason = _joined(f"learned from {_TEACHERS[by]}: {cut}", *left_out, joined.reason, comparison, *weaknesses)
        if is_better and (champion is None or settings.auto_promote):
            try:
                promoted = make_champion(lake, registry, version.number, reason)
            except gate.WaitingError as waits:
                return Outcome(version, True, False, f"{reason}: {waits}", of_test)
            return Outcome(promoted, True, True, f"{reason}: it scores now", of_test)
        consequence = "'fraudlake model promote --force' lets it score" if is_better else "the champion goes on scoring"
        return Outcome(version, True, False, f"{reason}: {consequence}", of_test)


def _left_out(lake: Lake, past: History, by: history.Labels) -> list[str]:
    """Describe the labels and verdicts that are not known yet, and frauds that are known too late."""
    sentences = []
    settings = lake.settings
    delay = settings.known_after
    late = past.late_labels(by, delay)
    if late and by == "flink":
        after = f"{durations.text(delay)} after its transaction (label_delay)"
        sentences.append(f"{counted(late, 'label')} left out, since a label is known {after}")
    if late and by == "chargebacks":
        age = f"younger than {durations.text(delay)} (genuine_after)"
        sentences.append(f"{counted(late, 'transaction')} left out, {age}: of these only frauds would be known")
    if by == "chargebacks":
        sentences += _late_frauds(past, delay)
    columns = "count(*) AS verdicts, min(decided_at) AS first"
    now = datetime.now(UTC)
    (future,) = lake.store.query(
        f"SELECT {columns} FROM {tables.SILVER_VERDICTS.name} WHERE decided_at > {sql_text.value(now)}",
        tables.SILVER_VERDICTS,
    ).to_pylist()
    if future["verdicts"]:
        dated = f"dated in the future, from {future['first']:%Y-%m-%d %H:%M} UTC on"
        sentences.append(f"{counted(future['verdicts'], 'verdict')} left out, {dated}: correct decided_at")
    return sentences


def _late_frauds(past: History, genuine_after: timedelta) -> list[str]:
    """Warn of a ``genuine_after`` that is shorter than frauds take to become known."""
    share = past.late_frauds(genuine_after)
    if share <= _LATE_FRAUDS:
        return []
    text = f"were known later than genuine_after ({durations.text(genuine_after)})"
    return [f"{share * 100:.1f} % of the frauds {text}: make it longer"]


def unless_changed(lake: Lake) -> Outcome | None:
    """Return the latest version if too little has changed since its training to train again; None: train.

    It trains if new transactions, or new verdicts, reach ``settings.retrain_share`` of the earlier ones, or if anything
    is new and the latest version is older than ``settings.train_every``. It also trains if their number is not known,
    if the settings have changed, or if there is no usable champion.
    """
    latest = next(iter(versions(lake)), None)
    if latest is None:
        return None
    recorded = {name: value for name, value in latest.trained_on.items() if name not in _VERSIONS}
    if recorded != _recorded(lake.settings):
        return None
    every = lake.settings.train_every
    is_due = every is not None and latest.trained_at is not None and datetime.now(UTC) - latest.trained_at >= every
    changes = []
    for name, table in _VERSIONS.items():
        new = _new_rows(lake, table, latest.trained_on.get(name))
        rows = lake.store.count(table)
        if table == tables.SILVER_VERDICTS and (lake.settings.labels == "flink" or rows < _LEAST_VERDICTS):
            continue
        if new is None:
            return None
        least = 1 if is_due else lake.settings.retrain_share * (rows - new)
        if new >= least:
            return None
        what = "verdicts" if table == tables.SILVER_VERDICTS else "rows"
        changes.append(f"{new:,} new {what} of {rows:,}")
    registry = Registry.of(lake)
    champion = registry.champion()
    try:
        if champion is None:
            return None
        registry.load(champion.number)
    except FraudlakeError:
        return None
    below = "nothing is new" if is_due else f"below {lake.settings.retrain_share:.0%}".replace("%", " %")
    reason = f"{' and '.join(changes)}, {below}: the champion stays"
    return Outcome(latest, False, latest.number == champion.number, _joined(reason, *_weaknesses(latest, champion)))


def _recorded(settings: Settings) -> dict[str, Any]:
    """Return the settings of training in the form that a version records."""
    return settings.model_dump(mode="json", include=_SETTINGS)


def _new_rows(lake: Lake, table: tables.Table, version: int | None) -> int | None:
    """Return how many rows were written to a table since a version of it; None: unknown."""
    history = lake.store.history(table)
    if version is None or not history[-1].version - 1 <= version <= history[0].version:
        return None
    changes = row_changes(history, version + 1)
    if any(commit.rows is None for commit in changes if commit.has_new_rows):
        return None
    return sum(commit.rows or 0 for commit in changes)


def _takes_over(
    lake: Lake,
    registry: Registry,
    champion: Version | None,
    version: Version,
    classifier: Classifier,
    test_rows: Rows,
) -> tuple[bool, str]:
    """Return whether a new version may replace the champion, and the reason."""
    if champion is None:
        return True, "the first model"
    try:
        evaluated = registry.evaluated(champion.number)
    except OutdatedModelError as error:
        return True, str(error).partition(": train again")[0]
    except FraudlakeError as error:
        return False, f"not compared, the champion cannot be used: {error}"
    rows = test_rows.between(datetime.fromisoformat(champion.tested_from), None)
    if not len(rows.time):
        return (
            False,
            f"not compared, the champion has learned from all test rows: it is tested from {champion.tested_from}",
        )
    old, new = (search.scored(one, rows, lake.settings) for one in (evaluated, classifier))
    decision = promotion.decide(champion.number, old, version.number, new, lake.settings)
    return decision.is_better and version.weakness is None, decision.reason


def _measured(scores: LabelledScores, settings: Settings) -> dict[str, float]:
    return measure_all(scores, Budget(settings.alert_budget, settings.alert_cost))


def _kinds(
    lake: Lake, earlier: Sequence[Rows], test_rows: Rows, classifier: Classifier, tested: LabelledScores
) -> list[Kind]:
    settings = lake.settings
    reviewed = Ranked(tested, Budget(settings.alert_budget, settings.alert_cost)).reviewed()
    return kinds.count_kinds(earlier, test_rows, reviewed, classifier, kinds.read_alerted(lake))


def _count_new_kinds(all_kinds: list[Kind]) -> dict[str, float]:
    """Return the frauds of kinds that appeared after the training, and how many of them are found; empty: none."""
    new = [kind for kind in all_kinds if kind.is_new]
    fraud = sum(kind.tested for kind in new)
    return {"fraud": fraud, "recall_at_budget": sum(kind.found for kind in new) / fraud} if new else {}


def _weaknesses(version: Version, champion: Version | None) -> list[str]:
    """Describe which of a version and the champion are worse than their own baselines."""
    others = [] if champion is None or champion.number == version.number else [champion]
    return [weakness for one in (version, *others) if (weakness := one.weakness)]


def _joined(*sentences: str) -> str:
    return "; ".join(filter(None, sentences))


def compare(lake: Lake, number: str | None = None, stand_for: Mapping[str, float] | None = None) -> Comparison:
    """Compare a version, by default the challenger, with the champion on rows that neither was fitted on.

    Args:
        lake: the lake.
        number: the version.
        stand_for: the number of transactions that each transaction with a verdict represents, by id; others represent
            themselves. It is not used for a history longer than ``max_training_rows``.

    Raises:
        FraudlakeError: there is no champion, no such version, or no challenger.
    """
    if not has_models(lake):
        raise FraudlakeError("there is no model to compare: run 'fraudlake train' first")
    settings = lake.settings
    registry = Registry.of(lake)
    champion = registry.required_champion()
    challenger = registry.version(number) if number else registry.challenger()
    if challenger is None or challenger.number == champion.number:
        raise FraudlakeError(f"there is nothing to compare version {champion.number}, the champion, with: train first")
    evaluated = {version.number: registry.evaluated(version.number) for version in (champion, challenger)}
    past = history_of(lake, stand_for)
    labelled, by, _ = labelled_rows(past, settings)
    begin = max(champion.tested_from, challenger.tested_from)
    since = datetime.fromisoformat(begin)
    test_rows = labelled.between(since, None)
    scores = {number: search.scored(one, test_rows, settings) for number, one in evaluated.items()}
    weighted = {}
    if by == "verdicts" and past.knows_weights:
        rows = past.labelled("verdicts", is_weighted=True).between(since, None)
        weighted = {number: estimated(search.scored(one, rows, settings)) for number, one in evaluated.items()}
    old = champion.number
    new = challenger.number
    decision = promotion.decide(old, scores[old], new, scores[new], settings)
    return Comparison(
        old,
        new,
        f"transactions since {begin} UTC",
        {number: _measured(of, settings) for number, of in scores.items()},
        decision.is_better and challenger.weakness is None,
        _joined(decision.reason, *_weaknesses(challenger, champion)),
        decision.differences,
        weighted,
    )


def promote(lake: Lake, number: str | None = None, force: bool = False, why: str | None = None) -> tuple[Version, str]:
    """Make a version, by default the challenger, the champion, if it is better and not below its own baseline.

    With ``force`` it becomes the champion in any case. ``why`` is for the second person, if the lake needs two.

    Returns:
        The version, and the reason why it was promoted.

    Raises:
        FraudlakeError: the version is not better, is below its own baseline, or does not exist.
        WaitingError: a second person must agree.
    """
    registry = Registry.of(lake)
    chosen = registry.version(number) if number else registry.challenger()
    if chosen is None:
        raise FraudlakeError("there is no challenger to promote: train first, or name a version")
    if force or registry.champion() is None:
        reason = _joined("promoted without a comparison", chosen.weakness or "")
        return make_champion(lake, registry, chosen.number, why), reason
    compared = compare(lake, chosen.number)
    if not compared.is_better:
        raise FraudlakeError(f"{compared.reason}: not promoted; --force promotes it anyway")
    return make_champion(lake, registry, chosen.number, _joined(why or "", compared.reason)), compared.reason


def history_of(lake: Lake, stand_for: Mapping[str, float] | None = None) -> History:
    """Load the history into this process; of a long history, load all fraud and a sample of the rest."""
    rows = lake.store.count(tables.SILVER_TRANSACTIONS)
    most = lake.settings.max_training_rows
    if rows > most:
        now = datetime.now(UTC)
        decided = lake.read(tables.SILVER_VERDICTS).where(F.col("decided_at") <= literals.instant(now))
        return history.sample_of(lake.read(tables.SILVER_TRANSACTIONS), decided, most / rows, lake.settings)
    rows_read = lake.store.query(
        f"SELECT {sql_text.names(history.columns_read(lake.settings))} FROM {tables.SILVER_TRANSACTIONS.name}",
        tables.SILVER_TRANSACTIONS,
    )
    return history.select_history(rows_read, known_verdicts(lake), lake.settings, stand_for)


def known_verdicts(lake: Lake) -> pa.Table:
    """Return ``transaction_id, verdict, decided_at`` of the verdicts that are known by now."""
    rows = lake.store.query(
        f"SELECT {', '.join(verdicts.CHOSEN_BY)} FROM {tables.SILVER_VERDICTS.name}", tables.SILVER_VERDICTS
    )
    return rows.filter(pc.field("decided_at") <= datetime.now(UTC))


def _profile(past: History, fitted: search.Fitted, scored: Rows, cut: search.Split) -> drift.Profile:
    """Measure the shapes of the features, and of the scores of rows that the classifier was not fitted on.

    The first day of a longer history is left out, since the windows of its rows are not full yet.
    """
    first, last = past.span
    columns = past.columns(first + _DAY if last - first >= 2 * _DAY else None)
    shapes = {name: drift.shape(columns[name], columns["weight"]) for name in past.names}
    classifier = fitted.classifier
    probability = classifier.probabilities(scored.matrix(classifier.features, classifier.encodings))
    return drift.Profile(
        shapes=shapes | {drift.SCORE: drift.shape(probability, scored.weights)},
        until=cut.parts["tested"].last.date().isoformat(),
        budgets=budget.curve(scored, probability),
    )


def labelled_rows(past: History, settings: Settings) -> tuple[Rows, history.Labels, search.Split]:
    """Label a history by the setting ``labels``, from ``train_from`` on, and split it.

    ``auto`` takes the verdicts if there are enough of them for every part, otherwise Flink's label.
    """
    begin = datetime.combine(settings.train_from, time()) if settings.train_from else None
    if settings.are_chargebacks:
        by_age = past.labelled("chargebacks", settings.genuine_after).between(begin, None)
        cut = search.split(by_age, settings.holdout)
        if feedback.has_both_kinds(feedback.young(past, settings)):
            # Then a second classifier learns from them, which is tested as it would have been known at the time.
            with suppress(search.TooLittleError):
                cut = search.split(by_age, settings.holdout, settings.genuine_after)
        return by_age, "chargebacks", cut
    if settings.labels != "flink":
        by_verdict = past.labelled("verdicts").between(begin, None)
        try:
            return by_verdict, "verdicts", search.split(by_verdict, settings.holdout)
        except search.TooLittleError:
            if settings.labels == "verdicts":
                raise
    by_flink = past.labelled("flink", settings.label_delay).between(begin, None)
    return by_flink, "flink", search.split(by_flink, settings.holdout)
