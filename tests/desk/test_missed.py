from __future__ import annotations

from datetime import date, timedelta
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fraudlake.desk import missed
from fraudlake.model.intervals import CONFIDENCE, Estimate

MONDAY = date(2026, 3, 2)
WEEK = [MONDAY + timedelta(days=number) for number in range(7)]


def queue(*items: tuple[Any, ...]) -> pa.Table:
    """Rows of ``day, item_id, kind, account_id, amount_at_risk, population``."""
    return pa.Table.from_pylist([dict(zip(missed.QUEUE_COLUMNS, item, strict=True)) for item in items])


def case(day: date, name: str, amount: float = 100.0) -> tuple[Any, ...]:
    return day, name, "case", f"account of {name}", amount, None


def drawn(day: date, name: str, population: int, amount: float = 100.0) -> tuple[Any, ...]:
    return day, name, "drawn", f"account of {name}", amount, population


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


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.001, 0.02, 0.4])
def test_the_intervals_of_a_week_hold_the_truth_for_days_of_unlike_size_fraud_and_answers(share: float) -> None:
    rng = np.random.default_rng(7)
    held, weeks = np.zeros(3), 0
    for _ in range(80):
        population = rng.integers(300, 3000, 7)
        fraud = rng.binomial(population, np.minimum(share * rng.lognormal(0, 0.5, 7), 1))
        found, truth = [*rng.lognormal(4, 1, 12)], 0.0
        items = [case(WEEK[number % 7], f"case {number}", amount) for number, amount in enumerate(found)]
        verdicts = {f"case {number}": "fraud" for number in range(12)}
        for day, size, frauds in zip(WEEK, population, fraud, strict=True):
            amounts = rng.lognormal(3.5, 1, size)
            truth += amounts[:frauds].sum()
            for number in rng.permutation(size)[: rng.integers(3, 12)]:
                name = f"{day} {number}"
                items.append(drawn(day, name, size, amounts[number]))
                verdicts[name] = "unsure" if rng.random() < 0.1 else "fraud" if number < frauds else "genuine"
        estimated = missed.over(queue(*items), verdicts)
        assert estimated is not None
        total, recall = fraud.sum(), 12 / (12 + fraud.sum())
        if estimated.population == population.sum():  # every day has an answer
            for at, (estimate, true) in enumerate(
                ((estimated.missed, total), (estimated.missed_amount, truth), (estimated.recall, recall))
            ):
                held[at] += estimate.low <= true * (1 + 1e-9) and true <= estimate.high * (1 + 1e-9)
            weeks += 1
    assert (held >= CONFIDENCE * weeks).all()


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
    assert estimated.missed.value == 250
    assert estimated.missed_amount.value == 250 * 11.0
    assert estimated.recall.value == 2 / 252
    assert (estimated.cases, estimated.found, estimated.found_amount) == (3, 2, 550.0)
    assert (estimated.drawn, estimated.drawn_fraud, estimated.population, estimated.undecided) == (7, 1, 1800, 3)
    assert (estimated.precision, estimated.naive_recall) == (2 / 3, 2 / 3)
    assert estimated.missed.low <= 250 <= estimated.missed.high
    assert estimated.recall.low == 2 / (2 + estimated.missed.high)
    assert estimated.as_dict()["missed"] == estimated.missed._asdict()


def test_draws_without_fraud_leave_an_upper_limit_for_the_amount_and_no_recall_of_one() -> None:
    week = queue(case(WEEK[0], "a", 70.0), *(drawn(WEEK[0], f"x{number}", 500, 20.0) for number in range(10)))
    estimated = missed.over(week, {"a": "fraud"} | {f"x{number}": "genuine" for number in range(10)})
    assert estimated is not None
    limit = -50 * np.log(0.05)  # each stands for 50; with more, no fraud among the drawn has less than 5 of 100
    assert estimated.missed == Estimate(0, 0, pytest.approx(limit))
    assert estimated.missed_amount == Estimate(0, 0, pytest.approx(limit * 70.0))
    assert estimated.recall == Estimate(1, pytest.approx(1 / (1 + limit)), 1)
    assert estimated.naive_recall == 1


def test_days_and_weeks_without_a_decided_draw_are_left_out_with_their_cases() -> None:
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
    weeks = missed.by_week(rows, verdicts)
    assert list(weeks) == [MONDAY, later]
    assert [(week.days, week.found, week.missed.value) for week in weeks.values()] == [(1, 1, 0), (1, 1, 60)]
    assert missed.over(rows, verdicts, first=WEEK[1], last=WEEK[6]) is None
    both = missed.over(rows, verdicts)
    assert both is not None
    assert (both.first, both.last, both.days, both.population) == (WEEK[0], later, 2, 150)
    assert missed.over(queue(case(WEEK[0], "a")), {"a": "fraud"}) is None


def test_amounts_at_the_edge_of_what_a_double_holds_leave_finite_limits() -> None:
    items = queue(case(MONDAY, "c", 1.7e308), drawn(MONDAY, "d", 10, 1.7e308), drawn(MONDAY, "e", 10))
    estimated = missed.over(items, {"c": "fraud", "d": "fraud", "e": "genuine"})
    assert estimated is not None
    assert estimated.found_amount == 1e12
    assert np.isfinite([estimated.missed_amount.value, estimated.missed_amount.low, estimated.missed_amount.high]).all()


def test_a_rule_is_as_precise_as_its_listed_and_its_drawn_alerts_say_each_with_its_weight() -> None:
    alerts = [
        {"rule": "r", "alert_id": f"l{number}", "account_id": f"l{number}", "day": WEEK[0]} for number in range(4)
    ]
    alerts += [alerts[0] | {"alert_id": "l0 again"}]  # of the same case: one account's day
    alerts += [{"rule": "r", "alert_id": f"u{n}", "account_id": f"account of u{n}", "day": WEEK[0]} for n in range(20)]
    alerts += [{"rule": "s", "alert_id": "s", "account_id": "account of s", "day": WEEK[0]}]
    alerts += [{"rule": "r", "alert_id": "n", "account_id": "n", "day": WEEK[3]}]  # a day without a queue
    rows = queue(
        *(case(WEEK[0], f"case {number}") for number in range(4)),
        *(drawn(WEEK[0], name, 300) for name in ("u1", "u2", "u3", "v")),
    )
    cases = {f"l{number}": f"case {number}" for number in range(4)} | {"l0 again": "case 0", "u1": "another"}
    verdicts = {"case 0": "fraud", "case 1": "fraud", "case 2": "fraud", "case 3": "unsure"}
    verdicts |= {"u1": "genuine", "u2": "fraud", "u3": "genuine", "v": "genuine"}
    of = missed.precision_by_rule(pa.Table.from_pylist(alerts), rows, verdicts, cases)
    rule = of["r"]
    assert (rule.listed, rule.right, rule.unlisted, rule.drawn, rule.naive) == (3, 3, 20, 3, 1.0)
    assert rule.weighted.value == pytest.approx((3 + 20 / 3) / 23)
    assert (3 + 1) / 23 <= rule.weighted.low < rule.weighted.value < rule.weighted.high <= (3 + 18) / 23
    # Nothing that one alert which nobody has seen could be is excluded.
    assert of["s"].weighted == Estimate(None, 0, 1)
    assert of["s"].as_dict()["weighted"] == {"value": None, "low": 0, "high": 1}


@pytest.mark.slow
def test_the_interval_of_a_rules_precision_holds_the_truth() -> None:
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(60):
        is_right = rng.random(400) < rng.choice([0.1, 0.5, 0.9])
        listed, others = range(30), range(30, 400)
        draws = rng.choice(others, 12, replace=False)
        rows = queue(*(case(WEEK[0], str(n)) for n in listed), *(drawn(WEEK[0], str(n), 1000) for n in draws))
        alerts = pa.table(
            {
                "rule": ["r"] * 400,
                "alert_id": [str(n) for n in range(400)],
                "account_id": [f"account of {n}" for n in range(400)],
                "day": [WEEK[0]] * 400,
            }
        )
        verdicts = {str(n): "fraud" if is_right[n] else "genuine" for n in (*listed, *draws)}
        of = missed.precision_by_rule(alerts, rows, verdicts, {str(n): str(n) for n in listed})["r"].weighted
        held += of.low <= is_right.mean() <= of.high
    assert held >= 54
