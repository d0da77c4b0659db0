"""Document 001: the DataStream API."""

from __future__ import annotations

import pytest

from .conftest import Printed, flink

pytestmark = [pytest.mark.stream, pytest.mark.long]


def test_a_list_is_a_source(printed: Printed) -> None:
    assert printed("collection_source") == [
        "flink rocks",
        "hello flink",
        "hello world",
        "struct<_1:bigint,_2:string>",
        "micro-batch 0",
        "1 aaa|bb",
        "2 bb|a",
        "3 aaa|a",
    ]


def test_a_socket_is_a_source(printed: Printed) -> None:
    assert printed("socket_source") == ["hello world", "hello flink"]


def test_map_filter_and_flat_map_are_expressions_or_functions(printed: Printed) -> None:
    assert printed("transformations") == [
        "flink rocks 11",
        "hello flink 11",
        "hello world 11",
        "flink",
        "hello",
        "rocks",
        "world",
        "the same words in Python: True",
    ]


def test_a_micro_batch_emits_the_last_of_flinks_running_sums(printed: Printed) -> None:
    lines = printed("keyed_reduce")
    assert lines == ["micro-batch 0", "ann 12", "bob 1", "micro-batch 1", "bob 3", "eve 4"]
    assert {line for line in lines if "batch" not in line} < set(flink("keyed_reduce"))
    assert last_of_each(lines) == last_of_each(flink("keyed_reduce"))


def test_words_are_counted_as_flink_counts_them(printed: Printed) -> None:
    lines = printed("word_count")
    assert lines == [
        "(hello,1) (world,1)",
        "(flink,1) (rocks,1)",
        "(flink,2) (hello,2)",
        "(be,2) (not,1) (or,1) (to,2)",
    ]
    counts = [count for line in lines for count in line.split()]
    assert set(counts) < set(flink("word_count"))
    assert last_of_each(counts) == last_of_each(flink("word_count"))


def last_of_each(lines: list[str]) -> dict[str, str]:
    """The last value of each key, of lines such as ``ann 12`` or ``(hello,1)``."""
    rows = [line.strip("()").replace(",", " ").split() for line in lines if "batch" not in line]
    return {row[0]: row[1] for row in rows}


def test_steps_without_a_shuffle_share_a_generated_class(printed: Printed) -> None:
    assert printed("operator_chaining") == [
        "*(2) HashAggregate",
        "+- Exchange hashpartitioning",
        "   +- *(1) HashAggregate",
        "      +- *(1) Filter",
        "         +- *(1) Project",
        "            +- *(1) Range",
    ]


def test_print_shows_a_table(printed: Printed) -> None:
    assert printed("print_sink") == [
        "+---+------+",
        "|id |text  |",
        "+---+------+",
        "|1  |aaa|bb|",
        "|2  |bb|a  |",
        "|3  |aaa|a |",
        "+---+------+",
        "",
    ]
