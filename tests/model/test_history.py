"""Labels of a history that are known at its end, by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.features import account_features
from fraudlake.lake import open_lake
from fraudlake.model import history, search, training
from fraudlake.settings import Settings
from tests import plain_lake

HOUR = 3_600_000_000
START = datetime(2026, 3, 7)


def past(hours: list[int], labels: list[bool | None], verdicts: list[bool | None]) -> history.History:
    """Transactions some hours after the start, with Flink's labels and analysts' verdicts."""
    count = len(hours)
    time = history.micros(START) + np.array(hours) * HOUR
    columns = {"time": time, "account": np.zeros(count, np.int64)} | {
        name: np.zeros(count) for name in account_features.NAMES
    }
    further = {"label": pa.array(labels, pa.bool_()), "verdict": pa.array(verdicts, pa.bool_())}
    return history.History(pa.table(columns | further | {"weight": np.ones(count)}))


def hours(rows: history.Rows) -> list[int]:
    return [int(at) for at in (rows.time - history.micros(START)) // HOUR]


def test_a_label_is_known_a_delay_after_its_transaction() -> None:
    five = past([0, 1, 2, 3, 4], [True, False, None, False, None], [None] * 5)
    assert hours(five.labelled("flink")) == [0, 1, 3]
    assert hours(five.labelled("flink", timedelta(hours=1))) == [0, 1, 3]
    assert hours(five.labelled("flink", timedelta(hours=3))) == [0, 1]
    assert hours(five.labelled("flink", timedelta(hours=3, microseconds=1))) == [0]
    assert hours(five.labelled("flink", timedelta(hours=5))) == []
    assert [five.late_labels("flink", timedelta(hours=late)) for late in (0, 1, 3, 5)] == [0, 0, 1, 3]


def test_what_is_not_known_yet_neither_teaches_nor_tests_and_a_verdict_does_not_wait(tmp_path: Path) -> None:
    count = 24 * 40
    of_both = [n % 4 == 0 for n in range(count)]
    settings = Settings(lake=tmp_path, labels="flink", label_delay="7 days", train_from="2026-03-09")
    labelled, by, cut = training.labelled_rows(past([*range(count)], of_both, of_both), settings)
    assert (by, hours(labelled)) == ("flink", [*range(48, count - 7 * 24)])
    assert cut.parts["fitted"].first == START + timedelta(days=2)
    assert cut.parts["tested"].last == START + timedelta(hours=count - 1, days=-7)

    labelled, by, cut = training.labelled_rows(
        past([*range(count)], of_both, of_both), settings.model_copy(update={"labels": "auto"})
    )
    assert (by, hours(labelled)) == ("verdicts", [*range(48, count)])


@pytest.mark.parametrize("by", [timedelta(0), timedelta(days=730), timedelta(days=-730)])
def test_a_label_is_known_by_the_newest_transaction_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: timedelta
) -> None:
    now = datetime.now(UTC)
    root = plain_lake.make(tmp_path / "lake")
    days = [{"transaction_id": f"t{day}", "timestamp": now - timedelta(days=40 - day)} for day in range(40)]
    of_all = {"account_id": "7", "amount": 1.0, "label": False}
    plain_lake.fill(
        root, tables.SILVER_TRANSACTIONS, *(row | of_all | {"date": row["timestamp"].date()} for row in days)
    )
    decided = {"t0": now - timedelta(days=20), "t1": now + timedelta(days=1)}
    plain_lake.fill(
        root,
        tables.SILVER_VERDICTS,
        *({"transaction_id": name, "verdict": True, "decided_at": at} for name, at in decided.items()),
    )
    lake = open_lake(Settings(lake=root, labels="chargebacks", genuine_after="30 days"), must_exist=True)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Clock:
            return cls.fromtimestamp((now + by).timestamp(), tz)

    monkeypatch.setattr(training, "datetime", Clock)
    past = training.history_of(lake)

    frauds = sum(at <= now + by for at in decided.values())
    for delay in (timedelta(days=10), timedelta(days=30)):
        old = 40 - delay.days
        assert len(past.labelled("flink", delay).time) == len(past.labelled("chargebacks", delay).time) == old
        assert past.labelled("chargebacks", delay).fraud.sum() == frauds
    future = [line for line in training._left_out(lake, past, "chargebacks") if "dated in the future" in line]
    assert len(future) == (frauds < 2)
    if future:
        assert future[0].startswith(f"{2 - frauds} verdict") and future[0].endswith("correct decided_at")


def test_all_rows_are_those_that_budgets_and_scores_are_measured_on_whoever_has_a_label() -> None:
    everything = past([0, 1, 2], [True, None, None], [None, True, None]).all_rows()
    assert (hours(everything), everything.fraud.tolist(), everything.weights.tolist()) == (
        [0, 1, 2],
        [0, 0, 0],
        [1, 1, 1],
    )


def test_a_verdict_counts_as_often_as_it_stands_for_others_only_if_that_is_asked_for() -> None:
    history_ = past([0, 1], [None, None], [True, None])
    known = history.History(history_.table.append_column(history.STANDS_FOR, pa.array([50.0, None])))
    assert (history_.knows_weights, known.knows_weights) == (False, True)
    assert known.labelled("verdicts").weights.tolist() == [1]
    assert known.labelled("verdicts", is_weighted=True).weights.tolist() == [50]


def test_nothing_known_is_one_line(tmp_path: Path) -> None:
    settings = Settings(lake=tmp_path, label_delay="1 day")
    with pytest.raises(search.TooLittleError, match=r"known by now: .*--label-delay, --genuine-after or --train-from"):
        training.labelled_rows(past([0, 1], [True, False], [None, None]), settings)


def test_columns_may_be_keywords_of_sql(tmp_path: Path) -> None:
    feature = {"name": "limit", "entity": "group", "aggregate": "distinct", "column": "order", "window": "1 day"}
    columns = {"order": "string", "Group": "string"}
    lake = open_lake(Settings(lake=tmp_path, columns=columns, entities={"group": "Group"}, features=[feature]))
    paid = {"account_id": "a", "amount": 1.0, "label": False, "source": "day.parquet", "date": START.date()}
    rows = [
        {**paid, "transaction_id": str(n), "timestamp": START + timedelta(hours=n), "position": n, "order": order}
        for n, order in enumerate("xyx")
    ]
    silver = tables.with_declared(tables.SILVER_TRANSACTIONS, lake.settings.silver_columns)
    plain_lake.fill(tmp_path, silver, *({**row, "Group": "g"} for row in rows))

    known = training.history_of(lake)

    assert known.table["limit"].to_pylist() == [0, 1, 2]
