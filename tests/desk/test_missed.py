from __future__ import annotations

from datetime import date, timedelta
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from fraudlake.model.intervals import CONFIDENCE, Estimate
from fraudlake_desk.queue import missed
from fraudlake_desk.queue.missed import Missed

MONDAY = date(2026, 3, 2)
WEEK = [MONDAY + timedelta(days=number) for number in range(7)]


def queue(*items: tuple[Any, ...]) -> pa.Table:
    """Rows of ``day, item_id, kind, account_id, amount_at_risk, population, is_flagged``."""
    return pa.Table.from_pylist([dict(zip(missed.QUEUE_COLUMNS, item, strict=True)) for item in items])


def case(day: date, name: str, amount: float = 100.0) -> tuple[Any, ...]:
    return day, name, "case", f"account of {name}", amount, None, None


def drawn(day: date, name: str, population: int, amount: float = 100.0, is_flagged: bool = False) -> tuple[Any, ...]:
    return day, name, "drawn", f"account of {name}", amount, population, is_flagged


def spent(*amounts: float) -> missed.Spent:
    """What all others spent."""
    return lambda days, most, known: np.sort(amounts)[::-1][:most] if known <= len(amounts) else None


@pytest.mark.parametrize(("size", "draws"), [(8, 3), (8, 7), (8, 8), (10, 4)])
def test_over_every_possible_draw_the_estimate_is_right_on_average_and_the_interval_holds_the_truth_in_90_of_100(
    size: int, draws: int
) -> None:
    for fraud in range(size + 1):
        estimates = [
            missed.total(np.full(hits, size / draws), np.full(draws - hits, size / draws), size)
            for hits in (sum(number < fraud for number in chosen) for chosen in combinations(range(size), draws))
        ]
        assert np.mean([estimate.value for estimate in estimates]) == pytest.approx(fraud)
        assert np.mean([estimate.low <= fraud <= estimate.high for estimate in estimates]) >= CONFIDENCE
        if draws == size:
            assert set(estimates) == {Estimate(fraud, fraud, fraud)}


class Population:
    """The accounts of some days that no list has: what each spent, how much of it is fraud, and whether flagged."""

    def __init__(self, rng: np.random.Generator, days: int, spend: Any, rate: Any, part: tuple[float, float]) -> None:
        self.days = [date(2026, 3, 2) + timedelta(days=number) for number in range(days)]
        self.spent = [spend(rng) for _ in self.days]
        frauds = [rng.random(len(amounts)) < rate(rng, amounts) for amounts in self.spent]
        parts = [rng.uniform(*part, len(amounts)) for amounts in self.spent]
        self.fraud = [amounts * share * is_of for amounts, share, is_of in zip(self.spent, parts, frauds, strict=True)]
        self.flagged = [rng.random(len(amounts)) < 0.3 for amounts in self.spent]

    def truth(self, is_flagged: bool) -> tuple[int, float]:
        """The number of accounts' days with fraud, and its amount."""
        parts = [fraud[of == is_flagged] for fraud, of in zip(self.fraud, self.flagged, strict=True)]
        return sum(int((part > 0).sum()) for part in parts), sum(float(part.sum()) for part in parts)

    def redrawn(self, rng: np.random.Generator, draws: Any, unsure: float) -> Missed:
        """The estimates of one draw."""
        items, verdicts, amounts = [case(day, f"case of {day}") for day in self.days], {}, {}
        for day, spends, fraud, flagged in zip(self.days, self.spent, self.fraud, self.flagged, strict=True):
            for at in rng.permutation(len(spends))[: draws(rng)]:
                name = f"{day} {at}"
                items.append(drawn(day, name, len(spends), spends[at], bool(flagged[at])))
                is_unsure = rng.random() < (unsure if fraud[at] else unsure / 10)
                verdicts[name] = "unsure" if is_unsure else "fraud" if fraud[at] else "genuine"
                if verdicts[name] == "fraud":
                    amounts[name] = fraud[at]
        estimated = missed.over(queue(*items), verdicts, amounts=amounts, spent=spent(*np.concatenate(self.spent)))
        assert estimated is not None
        return estimated


def lognormal(size: int, spread: float) -> Any:
    return lambda rng: rng.lognormal(4, spread, size)


def pareto(size: int, tail: float) -> Any:
    return lambda rng: 20 * (1 + rng.pareto(tail, size))


def share(rate: float) -> Any:
    return lambda rng, amounts: rate


def by_size(rate: float) -> Any:
    """The more an account spends, the more probable is fraud."""
    return lambda rng, amounts: np.minimum(1, rate * len(amounts) * amounts / amounts.sum())


TEN = {
    "plain": (28, lognormal(1000, 0.7), share(0.01), (0.3, 1), 10, 0),
    "a heavy tail": (28, pareto(1000, 1.5), share(0.01), (0.3, 1), 10, 0),
    "a tail without a variance": (28, pareto(1000, 1.1), share(0.01), (0.3, 1), 10, 0),
    "fraud on the heavy tail": (28, pareto(1000, 1.1), by_size(0.01), (0.8, 1), 10, 0),
    "few draws": (7, lognormal(2000, 1), share(0.005), (0.3, 1), 3, 0),
    "few draws of a heavy tail": (7, pareto(2000, 1.2), share(0.02), (0.3, 1), 3, 0),
    "unequal days": (
        28,
        lambda rng: rng.lognormal(4, 1, rng.integers(50, 5000)),
        lambda rng, _: 0.01 * rng.lognormal(),
        (0.3, 1), 0, 0,
    ),
    "frauds called unsure": (28, lognormal(1000, 1), share(0.02), (0.3, 1), 10, 0.5),
    "frauds of a heavy tail called unsure": (28, pareto(1000, 1.2), share(0.02), (0.3, 1), 10, 0.7),
    "a small part of what is spent": (28, lognormal(1000, 1), share(0.02), (0.01, 0.05), 10, 0),
}  # fmt: skip


def coverage(name: str, redraws: int) -> NDArray[np.floating[Any]]:
    """The shares of redraws whose intervals hold the truth: count and amount, of what is not flagged, and flagged."""
    days, spend, rate, part, number, unsure = TEN[name]
    rng = np.random.default_rng(17)
    population = Population(rng, days, spend, rate, part)
    truths = [*population.truth(False), *population.truth(True)]
    held = np.zeros(4)
    for _ in range(redraws):
        of = population.redrawn(rng, (lambda _: number) if number else (lambda rng: rng.integers(2, 15)), unsure)
        estimates = (of.unflagged.accounts, of.unflagged.amount, of.unreviewed.accounts, of.unreviewed.amount)
        held += [
            estimate.low * (1 - 1e-9) <= true <= estimate.high * (1 + 1e-9)
            for estimate, true in zip(estimates, truths, strict=True)
        ]
    return held / redraws


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "fraud on the heavy tail", "unequal days", "frauds called unsure"])
def test_intervals_hold_the_truth_of_a_population(name: str) -> None:
    assert (coverage(name, 60) >= CONFIDENCE).all()


@pytest.mark.long
@pytest.mark.parametrize("name", TEN)
def test_over_400_redraws_the_intervals_of_count_and_amount_hold_the_truth(name: str) -> None:
    assert (coverage(name, 400) >= CONFIDENCE).all()


def test_a_week_is_the_sum_of_its_days_each_with_its_own_weight() -> None:
    week = queue(
        case(WEEK[0], "a", 500.0),
        case(WEEK[0], "b"),
        case(WEEK[1], "c", 50.0),
        case(WEEK[1], "undecided"),
        *(drawn(WEEK[0], f"x{number}", 1000, 10.0 + number) for number in range(5)),
        *(drawn(WEEK[1], f"y{number}", 800, 10.0) for number in range(4)),
    )
    verdicts = {"a": "fraud", "b": "genuine", "c": "fraud"}
    verdicts |= {f"{day}{number}": "genuine" for day, draws in (("x", 4), ("y", 3)) for number in range(draws)}
    verdicts |= {"x1": "fraud", "y3": "unsure"}
    estimated = missed.over(week, verdicts)
    assert estimated is not None
    # Of the 1000 others 4 have an answer, and of the 800 3; the one fraud, of 11.0, stands for 250.
    assert (estimated.unflagged.accounts.value, estimated.unflagged.drawn) == (250, 1)
    assert estimated.unflagged.amount.value == 250 * 11.0
    assert (estimated.unreviewed.accounts.value, estimated.unreviewed.drawn) == (0, 0)
    assert estimated.recall.value == estimated.reviewed.value == 2 / 252
    assert (estimated.cases, estimated.found, estimated.found_amount) == (3, 2, 550.0)
    assert (estimated.drawn, estimated.population, estimated.undecided) == (7, 1800, 3)
    assert (estimated.precision, estimated.naive_recall) == (2 / 3, 2 / 3)
    assert estimated.unflagged.accounts.low <= 250 <= estimated.unflagged.accounts.high
    assert estimated.reviewed.low == 2 / (2 + estimated.unflagged.accounts.high)
    assert estimated.as_dict()["unflagged"]["accounts"] == estimated.unflagged.accounts._asdict()


def test_fraud_that_alerts_flagged_is_apart_from_what_nothing_flagged() -> None:
    rows = queue(
        case(WEEK[0], "a"),
        drawn(WEEK[0], "x", 90, is_flagged=True),
        drawn(WEEK[0], "y", 90),
        drawn(WEEK[0], "z", 90, is_flagged=True),
    )
    estimated = missed.over(rows, {"a": "fraud", "x": "fraud", "y": "fraud", "z": "genuine"}, amounts={"x": 7.0})
    assert estimated is not None
    assert (estimated.unreviewed.accounts.value, estimated.unreviewed.amount.value) == (30, 30 * 7.0)
    assert (estimated.unflagged.accounts.value, estimated.unflagged.amount.value) == (30, 30 * 100.0)
    assert (estimated.recall.value, estimated.reviewed.value) == (31 / 61, 1 / 61)
    assert not estimated.unflagged.amount.is_bounded  # nobody says what the others spent


def test_without_a_decided_case_nothing_is_said_of_what_lists_found() -> None:
    estimated = missed.over(queue(case(WEEK[0], "a"), drawn(WEEK[0], "x", 90)), {"x": "fraud"})
    assert estimated is not None
    assert (estimated.reviewed, estimated.precision) == (Estimate(None, 0, 1), None)


def test_draws_without_fraud_leave_the_largest_amounts_as_the_upper_limit_and_no_recall_of_one() -> None:
    week = queue(case(WEEK[0], "a", 70.0), *(drawn(WEEK[0], f"x{number}", 500, 20.0) for number in range(10)))
    verdicts = {"a": "fraud"} | {f"x{number}": "genuine" for number in range(10)}
    estimated = missed.over(week, verdicts, spent=spent(*[1_000.0] * 100, *[10.0] * 400))
    assert estimated is not None
    limit = -50 * np.log(0.05)  # each stands for 50; with more, no fraud among the drawn has less than 5 of 100
    assert estimated.unflagged.accounts == Estimate(0, 0, pytest.approx(limit))
    assert estimated.unflagged.amount == Estimate(0, 0, pytest.approx(100 * 1_000 + (limit - 100) * 10))
    assert estimated.reviewed == Estimate(1, pytest.approx(1 / (1 + limit)), 1)
    assert estimated.naive_recall == 1


def test_days_without_a_decided_draw_are_left_out_with_their_cases() -> None:
    later = MONDAY + timedelta(days=14)
    rows = queue(
        case(WEEK[0], "a"),
        drawn(WEEK[0], "x", 90),
        case(WEEK[1], "b"),
        drawn(WEEK[1], "y", 90),
        case(WEEK[6] + timedelta(days=1), "c"),
        case(later, "a"),  # listed again: it counts on its first day
        case(later, "d"),
        drawn(later, "z", 60),
    )
    verdicts = {"a": "fraud", "b": "fraud", "c": "fraud", "d": "fraud", "x": "genuine", "y": "unsure", "z": "fraud"}
    assert missed.over(rows, verdicts, first=WEEK[1], last=WEEK[6]) is None
    both = missed.over(rows, verdicts)
    assert both is not None
    assert (both.first, both.last, both.days, both.population) == (WEEK[0], later, 2, 150)
    assert missed.over(queue(case(WEEK[0], "a")), {"a": "fraud"}) is None


def test_amounts_at_the_edge_of_what_a_double_holds_leave_finite_limits() -> None:
    items = queue(case(MONDAY, "c", 1.7e308), drawn(MONDAY, "d", 10, 1.7e308), drawn(MONDAY, "e", 10))
    estimated = missed.over(items, {"c": "fraud", "d": "fraud", "e": "genuine"}, spent=spent(*[1.7e308] * 10))
    assert estimated is not None
    assert estimated.found_amount == 1e12
    assert np.isfinite(estimated.unflagged.amount).all()
