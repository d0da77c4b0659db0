"""Entries suppress alerts of the stream: exactly those of their keys and times, over restarts, kills and backtests."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.detection import backtest, list_entries, rule_table
from fraudlake.detection.list_entries import Entry
from fraudlake.operations.status import status
from fraudlake.streams import detect, stream
from tests.cut_appends import killed_after
from tests.detection.test_entities import COLUMNS, ENTITIES, Paid, expected, history
from tests.detection.test_entity_streams import (
    BUSY,
    PAIR,
    PROBE,
    TRIPLE,
    Alerts,
    detected,
    end_of,
    land,
    numbered,
    raised,
)
from tests.detection.test_live_rules import rule
from tests.transactions import SECOND, time_of

pytestmark = pytest.mark.stream

MINUTE = timedelta(minutes=1)
BY = {"pair": "terminal", "busy": "place", "probe": "terminal", "triple": "account"}


def write(lake: Any, *rows: dict[str, Any]) -> None:
    table = tables.SILVER_LIST_ENTRIES
    lake.writer(table).write(pa.Table.from_pylist([*rows], table.schema), "append")


def split(rows: list[Paid], alerts: Alerts, entries: list[Entry]) -> tuple[Alerts, Alerts]:
    """The alerts that no entry suppresses, and the others."""

    def is_suppressed(name: str, key: str, positions: tuple[int, ...]) -> bool:
        time = time_of(rows[positions[-1]].row)
        return any(
            (one.rule, one.entity, one.entity_key) == (name, BY[name], key) and one.starts_at <= time < one.ends_at
            for one in entries
        )

    left = sorted(alert for alert in alerts if not is_suppressed(*alert))
    return left, sorted(alert for alert in alerts if is_suppressed(*alert))


def parts_of(rows: list[Paid], draw: random.Random, number: int, ordering: str) -> list[list[Paid]]:
    """Cut the rows into parts, between rows of different times; in the order of event time a part comes mixed."""
    apart = [n for n in range(100, len(rows)) if rows[n - 1].row.time < rows[n].row.time]
    cuts = sorted(draw.sample(apart, number - 1))
    parts = [rows[first:last] for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    if ordering == "event_time":  # each part has come as a whole when entries follow it
        parts = [sorted(part, key=lambda paid: paid.row.time + draw.randrange(60 * SECOND)) for part in parts]
    return parts


@pytest.mark.long
@pytest.mark.parametrize("ordering", ["arrival", "event_time"])
def test_entries_that_come_and_end_suppress_what_they_do_in_a_backtest(lake: Any, ordering: str) -> None:
    """Each entry is written, and ended, between two micro-batches: as all of them stand at the end, so they were."""
    opened = lake(
        rules=[PAIR, BUSY, TRIPLE],
        columns=COLUMNS,
        entities=ENTITIES,
        ordering=ordering,
        max_out_of_orderness="1 minute",
        buckets=2,
    )
    rows, draw = numbered(history(7, 900)), random.Random(11)
    parts = parts_of(rows, draw, 5, ordering)
    by_rule = {fields["name"]: expected(fields, rows) for fields in (PAIR, BUSY, PROBE, TRIPLE)}
    keys = {name: sorted({key for _, key, _ in alerts}) for name, alerts in by_rule.items()}
    wanted = [(rule(fields), "live") for fields in (PAIR, BUSY, TRIPLE)]
    rule_table.apply(opened, [*wanted, (rule(PROBE), "shadow")], "test", None)

    added: list[Entry] = []
    ends: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        detected(opened, part)
        newest = max(time_of(paid.row) for paid in part)
        start = list_entries.first_minute(newest - 2 * MINUTE, newest)
        for one in [one for one in added if draw.random() < 0.3]:
            ends.append(one.ended(start, "back", "bob", start))
            write(opened, ends[-1])
            added.remove(one)
        for name in keys:
            by, key = BY[name], draw.choice(keys[name])
            ends_at = start + draw.randrange(5, 60) * MINUTE
            entry = Entry(f"{number}-{name}", "suppressed", name, by, key, None, start, ends_at, "why", "ann", start)
            added.append(entry)
            write(opened, entry.added)
    if ordering == "event_time":
        detected(opened, [end_of(rows, 9)])

    entries = list_entries.as_entries(opened.store.rows(tables.SILVER_LIST_ENTRIES).to_pylist())
    of_live = [alert for name in ("pair", "busy", "triple") for alert in by_rule[name]]
    left, suppressed = split(rows, of_live, entries)
    shadows, suppressed_shadows = split(rows, by_rule["probe"], entries)
    assert raised(opened) == left
    assert raised(opened, tables.SILVER_SHADOW_ALERTS) == shadows
    assert raised(opened, tables.SILVER_SUPPRESSED_ALERTS) == sorted(suppressed + suppressed_shadows)
    assert min(len(left), len(suppressed)) > 10
    assert ends
    held = opened.store.rows(tables.SILVER_SUPPRESSED_ALERTS).to_pylist()
    of_entry = {one.entry_id: one for one in entries}
    assert all(
        (one["rule"], one["entity_key"]) == (by.rule, by.entity_key)
        for one in held
        for by in [of_entry[one["entry_id"]]]
    )
    assert sum(one["is_shadow"] for one in held) == len(suppressed_shadows)
    assert sum(status(opened).alerts.suppressed.values()) == len(held)

    if ordering == "event_time":
        for each in (PAIR, BUSY, TRIPLE):
            report, alerts = backtest.backtest(opened, rule(each), None, None)
            tried = [(row["transaction_id"], row["entity_key"]) for row in alerts.toArrow().to_pylist()]
            live = opened.store.query(
                f"SELECT transaction_id, entity_key FROM {tables.SILVER_ALERTS.name} WHERE rule = '{each['name']}'",
                tables.SILVER_ALERTS,
            )
            assert sorted(tried) == sorted(tuple(row.values()) for row in live.to_pylist())
            assert report.alerts == len(tried)
            assert report.suppressed == sum(name == each["name"] for name, *_ in suppressed)


@pytest.mark.usefixtures("each_writer")
@pytest.mark.parametrize("appends", [1, *(pytest.param(number, marks=pytest.mark.long) for number in (0, 2, 3))])
def test_a_micro_batch_that_is_killed_between_its_commits_goes_by_the_same_entries(
    lake: Any, monkeypatch: pytest.MonkeyPatch, appends: int
) -> None:
    """Alerts, shadow alerts and suppressed alerts are three commits; in between, somebody suppresses everything."""
    opened = lake(rules=[PAIR, TRIPLE], columns=COLUMNS, entities=ENTITIES, buckets=2)
    rows = numbered(history(7, 300))
    by_rule = {fields["name"]: expected(fields, rows) for fields in (PAIR, TRIPLE, PROBE)}
    wanted = [(rule(PAIR), "live"), (rule(TRIPLE), "live"), (rule(PROBE), "shadow")]
    rule_table.apply(opened, wanted, "test", None)
    start, ends_at = time_of(rows[0].row), time_of(rows[-1].row) + MINUTE
    entry = Entry("one", "suppressed", "triple", "account", "1", "1", start, ends_at, "why", "ann", start)
    at_17 = replace(entry, entry_id="17", rule="pair", entity="terminal", entity_key="17", account_id=None)
    write(opened, entry.added, at_17.added)
    land(opened, rows)
    with killed_after(appends, monkeypatch), pytest.raises(Exception, match="killed"):
        stream.run(opened, detect.streams(opened), "available-now")
    others = [
        replace(entry, entry_id=f"{name}-{key}", rule=name, entity=BY[name], entity_key=key)
        for name, alerts in by_rule.items()
        for key in sorted({key for _, key, _ in alerts})
    ]
    write(opened, *(one.added for one in others))
    stream.run(opened, detect.streams(opened), "available-now")
    entries = [entry, at_17, *(others if appends == 0 else [])]
    left, suppressed = split(rows, by_rule["pair"] + by_rule["triple"], entries)
    shadows, suppressed_shadows = split(rows, by_rule["probe"], entries)
    assert raised(opened) == left
    assert raised(opened, tables.SILVER_SHADOW_ALERTS) == shadows
    assert raised(opened, tables.SILVER_SUPPRESSED_ALERTS) == sorted(suppressed + suppressed_shadows)
    assert len(suppressed) > 5


def test_without_entries_a_micro_batch_is_one_commit_as_before(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = lake(rules=[TRIPLE], columns=COLUMNS, entities=ENTITIES, buckets=2)
    read = type(opened).read_version
    monkeypatch.setattr(type(opened), "read_version", lambda *_: 1 / 0)
    detected(opened, numbered(history(7, 60)))
    monkeypatch.setattr(type(opened), "read_version", read)
    (commit, *_) = opened.store.history(tables.SILVER_ALERTS)
    assert "list_entries" not in commit.record
    assert opened.store.version(tables.SILVER_SUPPRESSED_ALERTS) == 0
