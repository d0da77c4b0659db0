"""Rules change while the stream continues: every alert belongs to the rules of its micro-batch, as if always there."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.lake.appender import Appender
from fraudlake.streams import detect, stream
from tests.cut_appends import killed_after
from tests.detection.test_live_rules import BUSY, DEAR, NAMES, PAIR, PROBE, RULES, TRIPLE, expected, history, rule
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected, land

pytestmark = pytest.mark.stream

Alerts = set[tuple[str, tuple[int, ...]]]


def raised(lake: Any, table: tables.Table = tables.SILVER_ALERTS) -> Alerts:
    """Each alert's rule and the positions of its rows; of a threshold that of the last one."""
    rows = lake.store.query(f"SELECT * FROM {table.name} WHERE kind != 'small_then_large'", table).to_pylist()
    alerts = [
        (row["rule"], [int(part["transaction_id"].rpartition("-")[2]) for part in row["evidence"]], row["kind"])
        for row in rows
    ]
    assert len(rows) == len({row["alert_id"] for row in rows})
    return {(name, tuple(at[-1:] if kind == "threshold" else at)) for name, at, kind in alerts}


def run(lake: Any) -> None:
    stream.run(lake, detect.streams(lake), "available-now")


@pytest.mark.long
@pytest.mark.parametrize("ordering", ["arrival", "event_time"])
def test_each_part_has_the_alerts_of_its_rules_as_if_they_had_always_been_there(lake: Any, ordering: str) -> None:
    draw = random.Random(7)
    opened = lake(ordering=ordering, max_out_of_orderness="1 minute")
    rows = history(6, 700, 8)
    cuts = [0, 150, 300, 420, 700]
    if ordering == "event_time":  # a part ends with a row that lets the watermark pass all others
        rows = [
            row._replace(time=row.time + 1000 * SECOND * sum(i >= cut for cut in cuts[1:-1]))
            for i, row in enumerate(rows)
        ]
    else:  # rows of the same time come together
        cuts = [0, *(next(n for n in range(cut, 700) if rows[n - 1].time < rows[n].time) for cut in cuts[1:-1]), 700]
    by_rule, wanted, shadows = expected(rows), set(), set()
    for number, (first, last) in enumerate(pairwise(cuts)):
        active = {fields["name"]: draw.choice(["live", "shadow", None]) for fields in RULES}
        if number == 0:
            active = dict.fromkeys(active)
        chosen = [(rule(fields), active[fields["name"]]) for fields in RULES if active[fields["name"]]]
        rule_table.apply(opened, chosen, "test", f"part {number}")
        part = rows[first:last]
        if ordering == "event_time":
            part = [*part, Row("end", part[-1].time + 600 * SECOND, 20.0, f"end-{number}", 0)]
        detected(opened, part)
        here = {alert for alert in by_rule if first <= alert[1][-1] < last}
        wanted |= {alert for alert in here if active[alert[0]] == "live"}
        shadows |= {alert for alert in here if active[alert[0]] == "shadow"}
    assert raised(opened) == wanted
    assert raised(opened, tables.SILVER_SHADOW_ALERTS) == shadows
    assert {name for name, _ in wanted | shadows} == NAMES
    assert min(len(wanted), len(shadows)) > 30


@pytest.mark.long
def test_a_running_stream_takes_a_change_up_with_its_next_micro_batch(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake(rules=[DEAR])
    rows = history(8, 200, 4)
    land(opened, rows[:100])
    run(opened)
    land(opened, rows[100:])
    latest = rule_table.latest_change

    def changed(lake: Any) -> int:
        """Change the rules when the micro-batch has begun, and asks for them."""
        monkeypatch.setattr(rule_table, "latest_change", latest)
        rule_table.apply(opened, [(rule(TRIPLE), "live")], "test", None)
        return latest(lake)

    monkeypatch.setattr(rule_table, "latest_change", changed)
    run(opened)
    of_rows = expected(rows)
    assert raised(opened) == {
        alert for alert in of_rows if (alert[0], alert[1][-1] < 100) in (("dear", True), ("triple", False))
    }
    assert [opened.checkpoint("detect").notes.rules_of(batch) for batch in (0, 1)] == [1, 2]


@pytest.mark.usefixtures("each_writer")
@pytest.mark.parametrize("is_written", [False, True])
def test_a_micro_batch_that_is_repeated_keeps_its_rules_if_it_has_written_anything(
    lake: Any, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    opened = lake(rules=[DEAR])
    rows = history(8, 300, 4)
    land(opened, rows[:100])
    run(opened)
    land(opened, rows[100:200])
    with killed_after(int(is_written), monkeypatch), pytest.raises(Exception, match="killed"):
        run(opened)
    rule_table.apply(opened, [(rule(BUSY), "live"), (rule(PROBE), "shadow")], "test", None)
    land(opened, rows[200:])
    run(opened)
    cut = 200 if is_written else 100
    wanted = {alert for alert in expected(rows) if alert[0] == ("dear" if alert[1][-1] < cut else "busy")}
    shadows = {alert for alert in expected(rows) if alert[0] == "probe" and alert[1][-1] >= cut}
    assert raised(opened) == wanted
    assert raised(opened, tables.SILVER_SHADOW_ALERTS) == shadows


@pytest.mark.long
def test_a_changed_pair_of_limits_sees_the_open_flags_that_it_would_have(lake: Any) -> None:
    opened = lake()
    detected(
        opened, [Row("1", 1_772_841_600 * SECOND, 5.0, position=0), Row("2", 1_772_841_600 * SECOND, 0.5, position=1)]
    )
    (known,) = rule_table.read(opened).live
    rule_table.apply(opened, [(known.rule.model_copy(update={"small_below": 10.0}), "live")], "test", None)
    later = [Row(account, 1_772_841_610 * SECOND, 600.0, position=int(account) + 1) for account in ("1", "2")]
    assert detected(opened, later) == [("part-0-0", "part-0-2"), ("part-0-1", "part-0-3")]


@pytest.fixture
def changed_behind(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Changes the rules after the next commit of a micro-batch: the one that follows only moves the watermark."""

    def change(lake: Any, *wanted: Any) -> None:
        append = Appender.append

        def appended(*arguments: Any, **options: Any) -> None:
            append(*arguments, **options)
            monkeypatch.setattr(Appender, "append", append)
            rule_table.apply(lake, wanted, "test", None)

        monkeypatch.setattr(Appender, "append", appended)

    return change


@pytest.mark.long
def test_a_change_that_a_micro_batch_without_rows_takes_up_starts_warm(
    lake: Any, changed_behind: Callable[..., None]
) -> None:
    opened = lake(rules=[TRIPLE], ordering="event_time", max_out_of_orderness="1 minute")
    rows = history(6, 700, 8)
    changed_behind(opened, (rule(DEAR), "live"), (rule(BUSY), "shadow"))
    detected(opened, rows[:350])
    assert [opened.checkpoint("detect").notes.rules_of(batch) for batch in (0, 1)] == [1, 2]
    detected(opened, [*rows[350:], Row("end", rows[-1].time + 600 * SECOND, 20.0, "end", 0)])
    for name, table in (("dear", tables.SILVER_ALERTS), ("busy", tables.SILVER_SHADOW_ALERTS)):
        there = {alert for alert in raised(opened, table) if alert[0] == name}
        wanted = {alert for alert in expected(rows) if alert[0] == name}
        assert there <= wanted
        assert {alert for alert in wanted - there if alert[1][-1] >= 350} == set()


@pytest.mark.long
def test_a_new_rule_does_not_raise_what_it_would_have_raised_before(
    lake: Any, changed_behind: Callable[..., None]
) -> None:
    # The first match waits until the earlier one, of row 0, is out of time: row 3 is that late.
    held_back = {
        "kind": "pattern",
        "name": "held_back",
        "pattern": "A X*? C",
        "define": {"A": "A.amount < 1", "C": "C.amount > 1000 * A.amount"},
        "within": "1 minute",
        "skip": "TO NEXT ROW",
    }
    amounts = [(0, 0.99), (1, 0.5), (2, 600.0), (200, 20.0), (300, 0.99), (301, 0.5), (302, 600.0), (500, 20.0)]
    rows = [Row("1", MARCH_7 + time * SECOND, amount, position=i) for i, (time, amount) in enumerate(amounts)]
    # The rule of the tutorial raises an alert, so that the first micro-batch has a commit.
    opened = lake(rules=[TRIPLE, PAIR], ordering="event_time", max_out_of_orderness="1 minute")
    changed_behind(opened, (rule(held_back), "live"))
    detected(opened, rows[:4], rows[4:], [Row("end", MARCH_7 + 999 * SECOND, 20.0, "end", 0)])
    assert opened.checkpoint("detect").notes.rules_of(1) == 2
    assert raised(opened) == {("held_back", (5, 6))}
