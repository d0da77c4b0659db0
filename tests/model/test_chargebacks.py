"""Labels of chargebacks with drawn delays, against an oracle that asks for each time what was known at it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.features import entity_features
from fraudlake.features.feature_plan import Plan
from fraudlake.lake import Lake
from fraudlake.model import history, search, training
from fraudlake.settings import Settings
from fraudlake.settings.features import DeclaredFeature
from tests.features import test_decided as by_flink
from tests.features.test_decided import DELAYS, FEATURES, computed, verdicts
from tests.features.test_entity_features import COLUMNS, DAY, Row, cuts, drawn, rounded

BEGIN = datetime(2024, 3, 1, tzinfo=UTC)
GENUINE_AFTER = timedelta(days=20)


class Decision(NamedTuple):
    """A verdict on the transaction of a number."""

    nth: int
    verdict: bool
    at: datetime


def plan(genuine_after: timedelta) -> Plan:
    features = tuple(DeclaredFeature.model_validate(feature) for feature in FEATURES)
    return Plan(features, COLUMNS, genuine_after, are_chargebacks=True)


def expected(rows: list[Row], genuine_after: timedelta, given: Sequence[by_flink.Verdict]) -> list[dict[str, Any]]:
    """The oracle of Flink's labels, over rows that all are genuine."""
    return by_flink.expected([row._replace(label=False) for row in rows], genuine_after, given)


def made(seed: int, count: int = 300) -> tuple[pa.Table, list[Decision]]:
    """Draw transactions every six hours, whose frauds become known days or weeks later; some verdicts are corrected."""
    draw, decisions = random.Random(seed), []
    times = [BEGIN + timedelta(hours=6 * nth) for nth in range(count)]
    for nth, time in enumerate(times):
        at = time
        for _ in range(draw.choice([0, 0, 0, 1, 1, 2])):
            at += timedelta(days=draw.uniform(0, 40))
            decisions.append(Decision(nth, draw.random() < 0.8, at))
    silver = pa.table(
        {
            "transaction_id": [f"t{nth}" for nth in range(count)],
            "account_id": [f"a{draw.randrange(5)}" for _ in range(count)],
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "amount": [round(draw.uniform(1, 100), 2) for _ in range(count)],
            "label": pa.array([draw.choice([None, True, False]) for _ in range(count)], pa.bool_()),
            "source": ["one"] * count,
            "position": range(count),
        }
    )
    return silver, decisions


def table(decisions: Sequence[Decision]) -> pa.Table:
    return pa.table(
        {
            "transaction_id": pa.array([f"t{decision.nth}" for decision in decisions], pa.string()),
            "verdict": pa.array([decision.verdict for decision in decisions], pa.bool_()),
            "decided_at": pa.array([decision.at for decision in decisions], pa.timestamp("us", "UTC")),
        }
    )


def label(nth: int, age: timedelta, known: Sequence[Decision], genuine_after: timedelta) -> bool | None:
    """The label of a transaction of some age, by the verdicts that are known."""
    mine = sorted((decision.at, decision.verdict) for decision in known if decision.nth == nth)
    if mine:
        return mine[-1][1]
    return False if age >= genuine_after else None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("genuine_after", [*DELAYS, 45 * DAY])
def test_fraud_features_are_those_of_an_oracle(seed: int, genuine_after: timedelta) -> None:
    days = [1, 20, 120, 300][seed]
    rows = drawn(seed, count=150, days=days)
    given = verdicts(rows, seed, days=min(days, 40))
    found = computed([rows], plan(genuine_after), given)
    assert [rounded(row) for row in found] == [rounded(row) for row in expected(rows, genuine_after, given)]


@pytest.mark.parametrize("seed", range(3))
def test_micro_batches_give_what_the_history_gives(seed: int) -> None:
    rows = drawn(seed, count=300, days=60)
    given = verdicts(rows, seed, days=20)
    whole = computed([rows], plan(8 * DAY), given)
    state: entity_features.State = {}
    found: list[dict[str, Any]] = []
    for batch in cuts(rows, seed):
        come = [verdict for verdict in given if verdict.seconds <= batch[-1].seconds]
        decided = by_flink.decided(rows, come)
        features, state = entity_features.compute(state, by_flink.table(batch), plan(8 * DAY), decided)
        found += features.to_pylist()
    assert found == whole


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("genuine_after", [timedelta(0), timedelta(days=5), GENUINE_AFTER, timedelta(days=400)])
def test_each_training_sees_what_an_oracle_sees(tmp_path: Path, seed: int, genuine_after: timedelta) -> None:
    silver, decisions = made(seed)
    settings = Settings(lake=tmp_path, labels="chargebacks", genuine_after=genuine_after)
    for count in (1, 60, 150, 300):
        newest = silver["timestamp"][count - 1].as_py()
        known = [decision for decision in decisions if decision.at <= newest and decision.nth < count]
        past = history.select_history(silver.slice(0, count), table(known), settings)
        rows = past.labelled("chargebacks", genuine_after)
        truth = {}
        for nth, time in enumerate(silver["timestamp"].to_pylist()[:count]):
            is_old = newest - time >= genuine_after
            of_known = label(nth, newest - time, known, genuine_after) if is_old else None
            truth[history.micros(time.replace(tzinfo=None))] = of_known
        assert dict(zip(rows.time.tolist(), rows.fraud.tolist(), strict=True)) == {
            time: float(is_fraud) for time, is_fraud in truth.items() if is_fraud is not None
        }
        assert past.late_labels("chargebacks", genuine_after) == [*truth.values()].count(None)


@pytest.mark.parametrize("seed", range(2))
def test_a_table_of_the_lake_has_the_features_of_the_oracle(tmp_path: Path, seed: int) -> None:
    silver, decisions = made(seed)
    features = [
        {"name": "frauds", "aggregate": "fraud_count", "window": "60 days"},
        {"name": "share", "aggregate": "fraud_share", "window": "60 days"},
    ]
    settings = Settings(lake=tmp_path, labels="chargebacks", genuine_after=GENUINE_AFTER, features=json.dumps(features))
    found = entity_features.compute_table(silver, settings, table(decisions)).to_pylist()
    rows = silver.to_pylist()
    for at, row in enumerate(rows):
        now, seen = row["timestamp"], []
        # A window begins, and the labels that are no verdicts end, with a tile: a day.
        day = now.replace(hour=0)
        for nth, other in enumerate(rows[:at]):
            if other["account_id"] != row["account_id"] or other["timestamp"] < day - timedelta(days=59):
                continue
            known = [decision for decision in decisions if decision.at <= now]
            of_other = label(nth, day - other["timestamp"] - timedelta(microseconds=1), known, GENUINE_AFTER)
            seen += [] if of_other is None else [of_other]
        assert found[at] == {
            "frauds": sum(seen),
            "share": pytest.approx(sum(seen) / len(seen)) if seen else None,
        }


def test_verdicts_of_the_last_days_neither_teach_nor_test(tmp_path: Path) -> None:
    silver, _ = made(0)
    times = silver["timestamp"].to_pylist()
    decisions = [Decision(nth, True, times[nth] + timedelta(days=3)) for nth in range(0, 300, 2)]
    settings = Settings(lake=tmp_path, labels="chargebacks", genuine_after=GENUINE_AFTER)
    past = history.select_history(silver, table(decisions), settings)
    labelled, by, cut = training.labelled_rows(past, settings)
    until = (times[-1] - GENUINE_AFTER).replace(tzinfo=None)
    assert by == "chargebacks"
    assert cut.parts["tested"].last == history.from_micros(int(labelled.time.max())) == until
    assert labelled.fraud.mean() == pytest.approx(0.5, abs=0.01)


def test_a_time_that_is_shorter_than_frauds_take_is_one_sentence(tmp_path: Path) -> None:
    silver, _ = made(0)
    times = silver["timestamp"].to_pylist()
    late = {0: 21, 4: 40}
    decisions = [Decision(n, True, times[n] + timedelta(days=late.get(n, 20))) for n in range(0, 80, 4)]
    # A verdict that is repeated later does not make its fraud late, and one that is taken back is none.
    decisions += [Decision(8, True, times[8] + timedelta(days=50)), Decision(4, False, times[4] + timedelta(days=60))]
    settings = Settings(lake=tmp_path, labels="chargebacks", genuine_after=GENUINE_AFTER)
    past = history.select_history(silver, table(decisions), settings)
    assert past.late_frauds(GENUINE_AFTER) == 1 / 19
    assert training._late_frauds(past, GENUINE_AFTER) == [
        "5.3 % of the frauds were known later than genuine_after (20 days): make it longer"
    ]
    assert training._late_frauds(past, timedelta(days=21)) == []


def test_no_transaction_is_one_line(tmp_path: Path) -> None:
    settings = Settings(lake=tmp_path, labels="chargebacks")
    past = history.select_history(made(0)[0].slice(0, 0), table([]), settings)
    with pytest.raises(search.TooLittleError, match=r"known by now: .*--genuine-after"):
        training.labelled_rows(past, settings)


def test_verdicts_of_fraud_alone_name_the_labels_that_take_them(tmp_path: Path) -> None:
    silver, _ = made(0)
    times = silver["timestamp"].to_pylist()
    decisions = [Decision(n, True, times[n] + timedelta(days=20)) for n in range(0, 80, 4)]
    settings = Settings(lake=tmp_path, labels="verdicts")
    past = history.select_history(silver, table(decisions), settings)
    with pytest.raises(search.TooLittleError, match=r"of both kinds .* --labels chargebacks, for frauds alone$"):
        training.labelled_rows(past, settings)


@pytest.mark.stream
@pytest.mark.long
def test_frauds_alone_are_enough_to_train_and_a_sample_has_the_same_labels(lake: Callable[..., Lake]) -> None:
    opened = lake(labels="chargebacks", genuine_after="20 days", algorithm="logistic", shuffle_partitions=2)
    silver, _ = made(1, count=2_000)
    times = silver["timestamp"].to_pylist()
    days = [time.date() for time in times]
    decisions = [Decision(n, True, times[n] + timedelta(days=30 if n % 100 == 0 else 3)) for n in range(0, 2_000, 10)]
    put(opened, tables.SILVER_TRANSACTIONS, silver.append_column("date", pa.array(days)))
    of_fraud = table(decisions).append_column("date", pa.array([days[decision.nth] for decision in decisions]))
    known_now = [decision for decision in decisions if decision.at <= datetime.now(UTC)]
    put(opened, tables.SILVER_VERDICTS, of_fraud)

    outcome = training.train(opened)
    assert outcome.is_champion and outcome.version.labelled_by == "chargebacks"
    assert "learned from verdicts, and what is genuine since it has none: fitted on" in outcome.reason
    assert "left out, younger than 20 days (genuine_after): of these only frauds would be known" in outcome.reason
    assert "10.0 % of the frauds were known later than genuine_after (20 days): make it longer" in outcome.reason
    assert not training.train(opened).is_new

    whole = training.history_of(opened)
    rows, decided = opened.read(tables.SILVER_TRANSACTIONS), opened.read(tables.SILVER_VERDICTS)
    decided = decided.where(F.col("decided_at") <= F.lit(datetime.now(UTC)))
    same, tenth = (history.sample_of(rows, decided, share, opened.settings) for share in (1.0, 0.1))
    labelled = [past.labelled("chargebacks", GENUINE_AFTER) for past in (whole, same)]
    one, other = (sorted(zip(rows.time.tolist(), rows.fraud.tolist(), strict=True)) for rows in labelled)
    assert one == other
    assert same.late_frauds(GENUINE_AFTER) == whole.late_frauds(GENUINE_AFTER)
    middle = times[1_000].replace(tzinfo=None)
    reviewed = [past.reviewed(middle - timedelta(days=40), middle) for past in (whole, same)]
    one, other = (sorted(zip(rows.time.tolist(), rows.fraud.tolist(), strict=True)) for rows in reviewed)
    assert one == other
    # Of the numbers 840, 850 … 980, all but 900, which is known 30 days later; four numbers are a day.
    assert len(one) == 14
    sampled = tenth.labelled("chargebacks", GENUINE_AFTER)
    old = [decision for decision in known_now if times[-1] - times[decision.nth] >= GENUINE_AFTER]
    assert sampled.fraud.sum() == len(old) < len(sampled.fraud) < 600
    assert set(sampled.weights[sampled.fraud == 0].tolist()) == {10.0}


def put(lake: Lake, of: tables.Table, rows: pa.Table) -> None:
    columns = [rows[name] if name in rows.column_names else pa.nulls(len(rows)) for name in of.schema.names]
    lake.writer(of).write(pa.table(columns, of.schema.names).cast(of.schema), "append")
