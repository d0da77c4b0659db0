"""The search for a model: what each of its classifiers was fitted on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from fraudlake.model import search
from fraudlake.model.history import Rows


def rows(count: int = 600) -> Rows:
    """Transactions, one a second, of which large ones are often fraud."""
    draw = np.random.default_rng(5)
    features = draw.random((count, 12)).astype(np.float32)
    fraud = (features[:, 0] + draw.normal(0, 0.1, count) > 0.8).astype(float)
    zeros = np.zeros(count, np.int64)
    return Rows(np.arange(count) * 1_000_000, features, fraud, np.ones(count), zeros, np.ones(count))


def test_the_best_candidate_is_evaluated_on_rows_it_does_not_know_and_then_fitted_on_all() -> None:
    labelled = rows()
    cut = search.split(labelled, 0.3)
    fitted = search.search(labelled, cut, "trees")
    assert fitted.classifier.learned == fitted.candidate.fit(labelled.between(None, cut.validated_from))
    assert fitted.final.learned == fitted.candidate.fit(labelled) != fitted.classifier.learned
    assert fitted.final == replace(fitted.classifier, learned=fitted.final.learned)


def test_the_rows_of_a_gap_before_the_test_are_in_no_part() -> None:
    labelled = rows(1_000)
    cut = search.split(labelled, 0.3, timedelta(seconds=200))
    # The test begins at row 699; the 499 rows before the gap are split by 0.8.
    assert {name: part.rows for name, part in cut.parts.items()} == {"fitted": 399, "validated": 100, "tested": 301}
    assert (cut.tested_from - cut.validated_until).total_seconds() == 200
    is_left_out = labelled.between(cut.validated_until, cut.tested_from)
    assert len(is_left_out.time) == 200
    with pytest.raises(search.TooLittleError):
        search.split(labelled, 0.3, timedelta(seconds=699))


def test_what_happens_in_the_test_changes_no_evaluated_classifier() -> None:
    labelled = rows()
    cut = search.split(labelled, 0.3)
    is_tested = labelled.time >= search.history.micros(cut.tested_from)
    other = replace(labelled, fraud=np.where(is_tested, 1 - labelled.fraud, labelled.fraud))
    fitted, of_other = (search.search(one, cut, "trees") for one in (labelled, other))
    assert fitted.classifier == of_other.classifier
    assert fitted.baseline == of_other.baseline
    assert fitted.final != of_other.final


def test_the_larger_candidate_is_chosen_only_if_frauds_are_enough_to_tell_it_apart() -> None:
    # The standard error of an area of 0.75 is 0.0433 on 100 frauds, and 0.0137 on 1,000.
    assert search.simplest([0.71, 0.75], frauds=100) == 0
    assert search.simplest([0.70, 0.75], frauds=100) == 1
    assert search.simplest([0.73, 0.75], frauds=1_000) == 1
    assert search.simplest([0.75, 0.60], frauds=10) == 0
    assert search.simplest([1.0, 1.0], frauds=10) == 0


def test_more_rows_of_one_instant_than_both_later_parts_have_leave_rows_to_validate_on() -> None:
    labelled = rows(1200)
    times = np.concatenate([labelled.time[:400], np.full(760, labelled.time[400]), labelled.time[1160:]])
    cut = search.split(replace(labelled, time=times), 0.3)
    assert {name: part.rows for name, part in cut.parts.items()} == {"fitted": 319, "validated": 81, "tested": 800}
