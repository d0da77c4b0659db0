from __future__ import annotations

import numpy as np
import pytest

from fraudlake.model import intervals


def test_equal_weights_give_the_exact_limits_of_a_poisson_count() -> None:
    # Garwood's limits of the count 2, as tables of the chi-squared distribution have them.
    low, high = intervals.estimate_sum(np.array([10.0, 10.0]), 10.0)
    assert (low, high) == (pytest.approx(3.5536, rel=1e-4), pytest.approx(62.9579, rel=1e-4))


def test_the_interval_of_a_share_of_drawn_and_known_units_holds_the_truth() -> None:
    rng = np.random.default_rng(3)
    for share, known_hits, known_others in ((0.1, 0, 0), (0.5, 20, 5), (0.9, 3, 30)):
        fraud = rng.random(4000) < 0.02
        is_hit = rng.random(4000) < share
        hits, others = known_hits + (fraud & is_hit).sum(), known_others + (fraud & ~is_hit).sum()
        held = 0
        for _ in range(200):
            drawn = rng.choice(4000, 100, replace=False)
            found = [np.full((fraud & chosen)[drawn].sum(), 40.0) for chosen in (is_hit, ~is_hit)]
            low, high = intervals.estimate_share(*found, known_hits, known_others, 40.0)
            held += low <= hits / (hits + others) <= high
        assert held >= 180
    nothing = np.zeros(0)
    assert intervals.estimate_share(nothing, nothing, 3, 1, 0.0) == (0.75, 0.75)
    assert intervals.estimate_share(nothing, nothing, 0, 0, 40.0)[0] == 0
