"""The benchmark on worlds that others simulate: how their files are read, and which labels teach, by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import world_files, worlds
from benchmarks.handbook_data import DataError
from benchmarks.world_files import World
from fraudlake.settings import Settings

SPARKOV = (
    "cc_num|gender|city|state|lat|long|city_pop|job|trans_num|trans_date|trans_time|category|amt|is_fraud|merchant|"
    "merch_lat|merch_long"
)


def test_sparkov_is_read_with_distances_and_ids_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "customers.csv").write_text("cc_num\n")
    (tmp_path / "adults_0-9.csv").write_text(
        f"{SPARKOV}\n"
        "4000000000000000001|F|Rome|GA|0.0|10.0|36000|Actor|same|2019-11-02|08:00:01|travel|9.50|1|Shop|0.0|11.0\n"
        "4000000000000000001|F|Rome|GA|0.0|10.0|36000|Actor|same|2019-03-02|08:00:00|home|3.00|0|Shop|0.0|10.0\n"
        "4000000000000000001|F|Rome|GA|0.0|10.0|36000|Actor|late|2019-12-23|00:00:00|home|3.00|0|Shop|0.0|10.0\n"
    )
    (tmp_path / "adults_10-19.csv").write_text(f"{SPARKOV}\n")  # a part without customers
    (world,) = world_files.sparkov(tmp_path)
    assert world.rows["transaction_id"].tolist() == ["1", "0"]
    assert world.rows["accountId"].tolist() == ["4000000000000000001"] * 2
    assert world.rows["alert"].tolist() == [False, True]
    assert world.rows["distance_km"].tolist() == pytest.approx([0.0, 111.195], abs=0.001)  # a degree of the equator
    assert world.is_test.tolist() == [False, True]
    assert {*world.declared["columns"]} <= {*world.rows.columns}


def test_amlsim_is_fraud_on_the_day_of_the_pattern_and_does_not_test_what_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("nodeid,isFraud,init_balance,fraudStep\n1,1,9,114\n2,1,9,-1\n3,0,9,-1\n")
    (tmp_path / "transactions.csv").write_text(
        "sourceNodeId,targetNodeId,value,time\n"
        "1,2,5.0,20\n"  # before the pattern
        "1,2,5.0,114\n"
        "1,3,5.0,114\n"  # to an honest account
        "2,1,5.0,114\n"  # only received
        "1,2,5.0,115\n"  # of a further pattern, or not
        "1,3,5.0,115\n"
        "1,2,5.0,141\n"  # after the test
    )
    (world,) = world_files.amlsim(tmp_path)
    assert world.rows["alert"].tolist() == [False, True, False, False, False, False]
    assert world.is_test.tolist() == [False, True, True, True, False, True]
    assert world.rows["dt"].astype(str).tolist() == [
        "2017-01-21 00:00:00",
        "2017-04-25 00:00:00",
        "2017-04-25 00:00:01",
        "2017-04-25 00:00:02",
        "2017-04-26 00:00:00",
        "2017-04-26 00:00:01",
    ]


def test_files_that_a_world_lacks_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file transactions.csv$"):
        next(world_files.amlsim(tmp_path))


def world(verdicts: pd.DataFrame | None) -> World:
    days = ["2026-01-01", "2026-01-02", "2026-01-12", "2026-01-19", "2026-01-20"]
    rows = pd.DataFrame(
        {"transaction_id": [*"abcde"], "dt": pd.to_datetime(days), "alert": [True, True, False, True, True]}
    )
    is_test = np.array([False, False, False, False, True])
    return World("by hand", rows, is_test, date(2026, 1, 2), date(2026, 1, 20), 1, verdicts=verdicts)


def test_labels_teach_from_the_training_on_if_they_are_known_before_the_test() -> None:
    week = Settings(label_delay="7 days")
    is_learned, fraud = worlds.known_labels(world(None), week)
    assert is_learned.tolist() == [False, True, True, False, False]  # until 7 days before the newest, 01-19
    assert fraud[is_learned].tolist() == [True, False]


def test_without_a_chargeback_an_old_transaction_teaches_as_genuine() -> None:
    settings = Settings(labels="chargebacks", genuine_after="10 days")
    is_learned, fraud = worlds.known_labels(world(pd.DataFrame({"transaction_id": ["a", "d"]})), settings)
    assert is_learned.tolist() == [False, True, False, False, False]
    assert fraud.tolist() == [True, False, False, True, False]


def test_each_kind_of_fraud_is_tested_among_the_genuine_rows() -> None:
    of_kinds = replace(world(None), is_test=np.full(5, True), kinds=np.array(["far", "near", "", "near", "near"]))
    ids = {name: [*rows["transaction_id"]] for name, rows in of_kinds.tests().items()}
    assert ids == {"by hand": [*"abcde"], "by hand, far": ["a", "c"], "by hand, near": [*"bcde"]}


def test_a_world_is_three_lines_of_the_table() -> None:
    of = {"auc": 0.25, "average_precision": 0.75, "card_precision": 0.125}
    measured = {"world": "x", "fraud": 1234, "features": 7, "stream": of, "plain": of, "perfect": of}
    assert worlds.table_rows(measured).splitlines()[0] == "| x | 1,234 | 7 | stream | 0.250 | 0.750 | 0.125 |"
