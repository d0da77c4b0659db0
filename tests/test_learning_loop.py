"""A small fixed-seed version of benchmarks/learning_loop.py."""

from __future__ import annotations

import pytest

from benchmarks.learning_loop import LOOPS, Plan, Week, found_again, loop
from benchmarks.learning_worlds import World, simulated

PLAN = Plan()


@pytest.fixture(scope="module")
def world() -> World:
    return simulated(seed=1, accounts=700, days=49, change=14)


def weeks(world: World, name: str) -> list[Week]:
    return list(loop(world, PLAN, *LOOPS[name], seed=1))


@pytest.mark.long
def test_only_a_loop_that_draws_at_random_finds_a_new_kind_of_fraud_and_knows_what_its_lists_miss(world: World) -> None:
    blind, seeing = weeks(world, "top"), weeks(world, "explore")

    assert found_again(blind) is None
    week = found_again(seeing)
    assert week is not None
    # Before that, the naive figure is close to one, and the interval of the estimate holds the truth.
    estimates = [one.estimated for one in seeing[:week] if one.estimated]
    assert all(one.naive_recall is not None and one.naive_recall > 0.9 for one in estimates)
    assert all(one.listed / one.fraud < 0.6 for one in seeing[:week])
    assert all(all(one.held.values()) for one in seeing)
    assert all(one.estimated is None for one in blind)
