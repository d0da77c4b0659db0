"""Document 002: the Python DataStream API."""

from __future__ import annotations

import pytest

from examples import catalogue, program
from fraudlake.errors import FraudlakeError

from .conftest import Printed, flink

pytestmark = [pytest.mark.stream, pytest.mark.long]


def test_the_running_count_changes_as_many_rows_as_in_flink(printed: Printed) -> None:
    lines = [[int(value) for value in line.split()] for line in printed("state_access")]
    assert lines[:2] == [[0, 1, 1248], [0, 2, 2]]
    assert lines[8:] == [[key, 1, 1250] for key in range(4)]
    counts = {(key, number): 0 for key, number, _ in lines}
    for key, number, count in lines:
        counts[key, number] += count
    assert sorted(f"{key} {number} {count}" for (key, number), count in counts.items()) == flink("state_access")


def test_the_number_sequence_has_both_ends(printed: Printed) -> None:
    assert printed("number_sequence") == ["1000 1 1000 500500", "partitions: 4"]


def test_a_batch_and_a_stream_are_generated_alike(printed: Printed) -> None:
    assert printed("data_generator") == [
        "0 cfcd2",  # MD5 of 0, 3, 6 ... as text: value * 37 % 100 puts them in this order
        "11 eccbc",
        "22 16790",
        "33 45c48",
        "37 c4ca4",
        "48 a87ff",
        "59 8f14e",
        "74 c81e7",
        "85 e4da3",
        "96 c9f0f",
        "the stream's first ten are the same: True",
    ]


def test_a_stream_is_a_table_and_back(printed: Printed) -> None:
    assert printed("table_conversion") == [
        "micro-batch 0",
        "ann 50",
        "ann 70",
        "micro-batch 0",
        "ann 12",
        "bob 1",
        "micro-batch 1",
        "bob 3",
        "eve 4",
        "True",
    ]


def test_a_table_gets_flinks_last_sums(printed: Printed) -> None:
    lines = printed("table_sink")
    assert lines == ["5 bb", "6 aaa", "7 a"]
    assert set(lines) < set(flink("table_sink"))


def test_results_are_collected_row_by_row(printed: Printed) -> None:
    assert printed("collect_results") == [
        "Row(id=1, text='aaa|bb')",
        "Row(id=2, text='bb|a')",
        "Row(id=3, text='aaa|a')",
        "1 aaa|bb",
        "2 bb|a",
    ]


def test_files_have_prefix_and_suffix_and_roll(printed: Printed) -> None:
    assert printed("file_sink") == ["pre-0-0suf a b", "pre-0-1suf c", "pre-1-0suf d"]


def test_a_database_gets_each_micro_batch_once(printed: Printed) -> None:
    assert printed("jdbc_sink") == [
        "micro-batch 0 is written",
        "micro-batch 1 is written",
        "micro-batch 0 is there",
        "micro-batch 1 is there",
        "1 aaa|bb 0",
        "2 bb|a 0",
        "3 aaa|a 1",
    ]


def test_a_database_that_cannot_be_reached_is_one_line(spark: object) -> None:
    with pytest.raises(FraudlakeError, match="cannot use the database of --jdbc-url: start the database") as refused:
        program.run(catalogue.find("jdbc_sink").main, jdbc_url="jdbc:nothing:x?password=hush")
    assert "hush" not in str(refused.value)
