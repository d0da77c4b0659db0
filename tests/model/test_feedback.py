"""Feedback: a second classifier learns from the verdicts on transactions whose other labels are not known yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fraudlake.features import account_features
from fraudlake.model import feedback, history, search, training
from fraudlake.model.metrics import area_under_pr
from fraudlake.settings import Settings

START = datetime(2026, 3, 1)
HOUR = 3_600_000_000
DAYS = 100
GENUINE_AFTER = timedelta(days=20)
SETTINGS = Settings(lake=Path("lake"), labels="chargebacks", genuine_after=GENUINE_AFTER)


@dataclass(frozen=True)
class World:
    """Ten transactions an hour, of which a tenth is fraud, and what becomes known of them.

    Two features are random numbers. Fraud has a high first one before a change, and a high second one from then on.
    Fraud is known after ten days. A share of all is reviewed; the verdict is known next day, and wrong on some days.
    """

    change: int
    reviewed: float
    wrong: range = range(0)
    seed: int = 1

    def past(self) -> tuple[history.History, np.ndarray]:
        """Return the history, and the truth of each transaction."""
        draw = np.random.default_rng(self.seed)
        count = DAYS * 240
        time = history.micros(START) + np.arange(count) * HOUR // 10
        matrix = draw.random((count, 2))
        is_fraud = draw.random(count) < 0.1
        at = np.where(np.arange(count) < self.change * 240, 0, 1)
        matrix[is_fraud, at[is_fraud]] = 1 + draw.random(int(is_fraud.sum()))
        is_reviewed = draw.random(count) < self.reviewed
        known = np.where(is_reviewed, time + 24 * HOUR, time + 240 * HOUR)
        is_wrong = is_reviewed & np.isin(np.arange(count) // 240, self.wrong)
        given = is_fraud ^ is_wrong
        has_verdict = (is_reviewed | is_fraud) & (known <= time[-1])
        times = pa.array(np.where(has_verdict, known, 0), mask=~has_verdict)
        of_fraud = pa.array(np.where(has_verdict, known, 0), mask=~(has_verdict & given))
        names = account_features.NAMES
        columns = dict.fromkeys(names, np.zeros(count)) | dict(zip(names[:2], matrix.T, strict=True))
        further = {"verdict": pa.array(given, mask=~has_verdict), "verdict_known": times, "fraud_known": of_fraud}
        unused = {"account": np.arange(count), "weight": np.ones(count), "label": pa.nulls(count, pa.bool_())}
        return history.History(pa.table({"time": time} | columns | further | unused)), is_fraud


def joined(world: World) -> tuple[feedback.Joined, search.Fitted, search.Split, history.Rows]:
    past, _ = world.past()
    labelled, by, cut = training.labelled_rows(past, SETTINGS)
    assert by == "chargebacks"
    fitted = search.search(labelled, cut, "trees")
    return feedback.join(past, labelled, cut, fitted, SETTINGS), fitted, cut, labelled


def areas(world: World, of: Sequence[search.Classifier]) -> list[float]:
    """The average precision of classifiers on the last days."""
    past, truth = world.past()
    rows = past.all_rows()
    is_last = rows.time >= rows.time[-1] - 5 * 24 * HOUR
    scores = [one.log_odds(rows.features[is_last]) for one in of]
    return [area_under_pr(truth[is_last], score, np.ones(int(is_last.sum()))) for score in scores]


def test_a_new_kind_of_fraud_is_learned_from_verdicts_before_its_labels_are_known() -> None:
    world = World(change=88, reviewed=0.5)
    both, fitted, cut, _ = joined(world)
    assert cut.tested_from - cut.validated_until == GENUINE_AFTER
    alone, with_feedback = areas(world, [fitted.final, both.fitted.final])
    assert alone < 0.3
    assert with_feedback > 0.9
    assert "a second classifier of" in both.reason and " joins: area under PR" in both.reason


def test_the_tested_classifier_learns_the_verdicts_that_were_known_when_its_test_begins() -> None:
    past, _ = World(change=88, reviewed=0.5).past()
    both, _, cut, labelled = joined(World(change=88, reviewed=0.5))
    (rows,) = both.feedback
    begin, end = history.micros(cut.validated_until), history.micros(cut.tested_from)
    table = past.table.to_pylist()
    known = [
        row["time"]
        for row in table
        if row["verdict"] is not None and begin <= row["time"] < end and row["verdict_known"] <= end
    ]
    assert rows.time.tolist() == known
    assert labelled.time.max() <= table[-1]["time"] - 20 * 24 * HOUR
    of_test = {row["time"] for row in table if row["time"] >= end}
    assert of_test.isdisjoint(known)


def test_verdicts_that_make_the_test_worse_are_left_out_and_the_reason_says_so() -> None:
    both, fitted, *_ = joined(World(change=DAYS, reviewed=0.5, wrong=range(36, 56)))
    assert both.fitted is fitted
    assert both.feedback == ()
    assert " is left out: area under PR" in both.reason


@pytest.mark.parametrize("reviewed", [0.0, 0.001])
def test_few_verdicts_and_frauds_alone_leave_the_split_as_it_is(reviewed: float) -> None:
    both, fitted, cut, labelled = joined(World(change=DAYS, reviewed=reviewed))
    assert cut == search.split(labelled, SETTINGS.holdout)
    assert both == feedback.Joined(fitted)


def test_a_verdict_counts_from_the_time_at_which_it_is_known() -> None:
    time = history.micros(START) + np.arange(6) * HOUR
    at = history.micros(START) + 4 * HOUR
    rows = {
        "time": time,
        "verdict": pa.array([True, True, False, True, None, True]),
        # Known before, as fraud only after, known after, known before, none, younger than the end.
        "verdict_known": pa.array([at, at - 1, at + 1, at, None, at]),
        "fraud_known": pa.array([at, at + 1, None, at, None, at]),
    }
    zeros = {name: np.zeros(6) for name in (*account_features.NAMES, "weight")} | {"account": np.zeros(6, np.int64)}
    past = history.History(pa.table(rows | zeros))
    known = past.reviewed(START + timedelta(hours=0), START + timedelta(hours=4))
    assert list(zip((known.time - time[0]) // HOUR, known.fraud, strict=True)) == [(0, 1), (1, 0), (3, 1)]
    latest = past.reviewed(START + timedelta(hours=1), None)
    assert list(zip((latest.time - time[0]) // HOUR, latest.fraud, strict=True)) == [(1, 1), (2, 0), (3, 1), (5, 1)]
