"""Document 004: the dataflow programming model."""

from __future__ import annotations

import pytest

from .conftest import Printed, flink

pytestmark = [pytest.mark.stream, pytest.mark.long]


def test_all_levels_give_the_same_sums(printed: Printed) -> None:
    sums = "1: 489.12 2: 600.50 3: 842.75 4: 520.10"
    assert printed("levels_of_abstraction") == [
        f"SQL        {sums}",
        f"DataFrame  {sums}",
        f"function   {sums}",
        f"processor  {sums}",
        "same plan: True",
    ]


def test_exchanges_are_in_the_plan(printed: Printed) -> None:
    assert printed("parallel_dataflow") == [
        "keyBy",
        "  *(2) HashAggregate",
        "  +- Exchange hashpartitioning",
        "     +- *(1) HashAggregate",
        "        +- *(1) Project",
        "           +- *(1) Range",
        "broadcast",
        "  *(2) Project",
        "  +- *(2) BroadcastHashJoin",
        "     :- *(2) Project",
        "     :  +- *(2) Filter",
        "     :     +- *(2) Range",
        "     +- BroadcastExchange",
        "        +- *(1) Filter",
        "           +- *(1) Scan",
        "rebalance",
        "  Exchange RoundRobinPartitioning",
        "  +- *(1) Project",
        "     +- *(1) Range",
    ]


def test_order_within_a_key_has_to_be_asked_for(printed: Printed) -> None:
    assert printed("keyed_order") == [
        "0 334 True",
        "1 333 True",
        "2 333 True",
        "0 334 False",
        "1 333 False",
        "2 333 False",
    ]


def test_time_windows_are_those_of_flink(printed: Printed) -> None:
    lines = printed("time_windows")
    assert lines[:7] == ["tumbling", "micro-batch 0", *in_order(flink("tumbling"))]
    assert lines[7:18] == ["sliding", "micro-batch 0", *in_order(flink("sliding"))]
    assert lines[18:] == ["session", "micro-batch 0", *in_order(flink("session"))]


def in_order(lines: list[str]) -> list[str]:
    """Lines of ``key start end amount`` by key and start."""
    return sorted(lines, key=lambda line: (line.split()[0], int(line.split()[1])))


def test_count_windows_are_those_of_flink(printed: Printed) -> None:
    lines = printed("count_windows")
    assert lines == ["micro-batch 1", "a 7"]
    assert lines[1:] == flink("count_windows")


def test_an_event_counts_in_a_minute_of_each_time(printed: Printed) -> None:
    assert printed("notions_of_time") == [
        "event",
        "22:12 3",
        "22:13 1",
        "22:14 1",
        "ingestion",
        "22:13 3",
        "22:14 2",
        "processing",
        "3",
        "2",
    ]


def test_state_can_be_read_as_a_table(printed: Printed) -> None:
    assert printed("stateful_operators") == [
        "after micro-batch 0",
        "ann 12",
        "bob 1",
        "after micro-batch 1",
        "ann 12",
        "bob 3",
        "eve 4",
        "each state lies where its key's rows go: True",
    ]


def test_a_micro_batch_without_a_commit_is_replayed(printed: Printed) -> None:
    second = ["micro-batch 1", "bob 3", "eve 4"]
    assert printed("checkpoint_and_replay") == [
        "micro-batch 0",
        "ann 12",
        "bob 1",
        *second,
        "offsets 0 1",
        "commits 0 1",
        *second,
    ]


def test_batch_and_stream_have_the_same_answer(printed: Printed) -> None:
    assert printed("batch_and_streaming") == [
        "1 3 300.0",
        "2 2 600.0",
        "3 3 800.0",
        "4 2 520.0",
        "the same in two micro-batches: True",
    ]


def test_a_loop_is_an_iteration(printed: Printed) -> None:
    assert printed("iteration") == ["1 1", "2 1", "3 1", "4 1", "7 7", "8 7", "4 supersteps"]
