"""The stream of alerts to real receivers: nothing is lost, and what became of each alert is kept once."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from fraudlake import tables
from fraudlake.delivery import webhook
from fraudlake.delivery.destinations import DESTINATIONS
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import Lake
from fraudlake.lake.appender import Appender
from fraudlake.operations.status import status
from fraudlake.settings import Settings
from fraudlake.streams import deliver, stream
from tests.conftest import FraudlakeHere

from .alerts import alert, raise_
from .receiver import Receiver, listening
from .receiver import status as answer

LakeHere = Callable[..., Lake]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(webhook, "RETRY", webhook.RETRY.new(total=2, backoff_factor=0.01, backoff_jitter=0.01))
    with listening() as receiver:
        yield receiver


def delivered(lake: Lake, to: Any = "webhook", from_now: bool = False) -> int:
    """Deliver what is there; the number of alerts read."""
    return sum(done.rows for done in stream.run(lake, deliver.streams(lake, to, from_now), "available-now"))


def deliveries(lake: Lake) -> list[tuple[int, str, int]]:
    """Number, status and attempts of each row of ``silver_deliveries``."""
    rows = lake.store.rows(tables.SILVER_DELIVERIES).sort_by([("alert_id", "ascending")]).to_pylist()
    return [(int(row["alert_id"], 16), row["status"], row["attempts"]) for row in rows]


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [int(event["id"], 16) for event in events]


@pytest.mark.stream
def test_alerts_are_posted_once_each_in_the_order_of_detection(lake: LakeHere, receiver: Receiver) -> None:
    opened = lake(webhook_url=receiver.url)
    raise_(opened, alert(2), alert(1))
    assert delivered(opened) == 2
    raise_(opened, alert(3))
    assert delivered(opened) == 1
    assert delivered(opened) == 0

    assert numbers(receiver.events) == [1, 2, 3]
    assert {event["source"] for event in receiver.events} == {"/fraudlake/lake"}
    assert receiver.events[2]["data"]["explanation"] == alert(3)["explanation"]
    assert deliveries(opened) == [(1, "delivered", 1), (2, "delivered", 1), (3, "delivered", 1)]
    assert status(opened).alerts.deliveries == {"webhook": {"delivered": 3}}


@pytest.mark.stream
def test_what_a_receiver_does_not_take_is_a_dead_letter_until_it_does(
    lake: LakeHere, receiver: Receiver, fraudlake_here: FraudlakeHere
) -> None:
    opened = lake(webhook_url=receiver.url)
    raise_(opened, alert(1))
    delivered(opened)
    receiver.always = answer(503)
    raise_(opened, alert(2), alert(3))
    delivered(opened)
    raise_(opened, alert(4))
    delivered(opened)
    assert deliveries(opened) == [(1, "delivered", 1), (2, "dead", 3), (3, "dead", 3), (4, "dead", 3)]
    assert status(opened).gaps == [
        "3 alerts could not be delivered to webhook: once it takes them, run "
        "'fraudlake deliver --to webhook --retry-dead'"
    ]
    retry = ["--lake", str(opened.settings.lake), "--json", "deliver", "--to", "webhook", "--retry-dead"]
    ended = fraudlake_here(*retry, FRAUDLAKE_WEBHOOK_URL=receiver.url)
    assert json.loads(ended.stdout) == {"destination": "webhook", "delivered": 0, "dead": 3}
    assert "secret" not in ended.stderr

    receiver.always = 0.0
    ended = fraudlake_here(*retry, FRAUDLAKE_WEBHOOK_URL=receiver.url)
    assert json.loads(ended.stdout) == {"destination": "webhook", "delivered": 3, "dead": 0}
    assert numbers(receiver.events) == [1, 2, 3, 4]
    assert deliveries(opened) == [(1, "delivered", 1), (2, "delivered", 7), (3, "delivered", 7), (4, "delivered", 7)]
    assert status(opened).gaps == []


@pytest.mark.stream
def test_dead_letters_whose_alerts_are_gone_do_not_keep_others_back(
    lake: LakeHere, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake(webhook_url=receiver.url)
    receiver.always = answer(503)
    raise_(opened, alert(1), alert(2))
    delivered(opened)
    DeltaTable(opened.settings.lake / "tables" / "silver_alerts").delete(f"alert_id = '{1:032x}'")
    monkeypatch.setattr(deliver, "_RETRIED", 1)
    assert status(opened).alerts.deliveries == {"webhook": {"dead": 1}}
    receiver.always = 0.0
    assert deliver.retry_dead(opened, "webhook") == deliver.Retried(delivered=1, dead=0)
    assert numbers(receiver.events) == [2]
    assert status(opened).alerts.deliveries == {"webhook": {"delivered": 1}}
    assert status(opened).gaps == []


@pytest.mark.long
@pytest.mark.stream
def test_what_is_held_back_is_kept_and_counted(lake: LakeHere, receiver: Receiver) -> None:
    opened = lake(webhook_url=receiver.url, suppress_within="1 minute", max_alerts_per_minute=3)
    raise_(opened, alert(1, "a", 0), alert(2, "a", 1), alert(3, "b", 2))
    delivered(opened)
    # The first two are decided by what was delivered before; the others are of another minute.
    raise_(opened, alert(4, "a", 59.5), alert(5, "c", 59.6), alert(6, "d", 59.7), alert(7, "a", 60.5))
    delivered(opened)

    assert numbers(receiver.events) == [1, 3, 5, 7]
    assert [(number, kept) for number, kept, _ in deliveries(opened)] == [
        (1, "delivered"),
        (2, "suppressed"),
        (3, "delivered"),
        (4, "suppressed"),
        (5, "delivered"),
        (6, "limited"),
        (7, "delivered"),
    ]
    assert status(opened).alerts.deliveries == {"webhook": {"delivered": 4, "limited": 1, "suppressed": 2}}
    assert status(opened).gaps == []


@pytest.mark.stream
def test_a_destination_that_begins_by_a_clock_that_is_ahead_gets_later_alerts(
    lake: LakeHere, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake(webhook_url=receiver.url)
    raise_(opened, alert(1))
    with monkeypatch.context() as patched:
        patched.setattr(deliver.time, "time_ns", lambda: 1 << 62)  # the year 2116
        assert delivered(opened, from_now=True) == 0
    raise_(opened, alert(2))
    delivered(opened)
    assert numbers(receiver.events) == [2]


@pytest.mark.long
@pytest.mark.stream
def test_a_new_destination_may_begin_now(lake: LakeHere, receiver: Receiver) -> None:
    opened = lake(webhook_url=receiver.url)
    raise_(opened, alert(1))
    assert delivered(opened, from_now=True) == 0
    years = 30_000 * 86_400.0
    raise_(opened, alert(2, detected=years))
    # The start of the stream is recorded, also if the flag is given each time.
    delivered(opened, from_now=True)
    raise_(opened, alert(3, detected=years + 1))
    delivered(opened)
    assert numbers(receiver.events) == [2, 3]
    # Another destination has a separate start.
    assert delivered(opened, "log") == 3


class KilledError(BaseException):
    """Represents the end of the process."""


@pytest.mark.stream
@pytest.mark.usefixtures("each_writer")
@pytest.mark.parametrize(
    "is_noted", [False, pytest.param(True, marks=pytest.mark.long)], ids=["before its rows", "after its rows"]
)
def test_a_micro_batch_that_is_cut_is_sent_again_and_noted_once(
    lake: LakeHere, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    opened = lake(webhook_url=receiver.url, suppress_within="1 minute", max_alerts_per_minute=2)
    raise_(opened, alert(1, "a"), alert(2, "a"), alert(3, "b"), alert(4, "c"))
    append = Appender.append

    def cut(*arguments: Any, **options: Any) -> None:
        if is_noted:
            append(*arguments, **options)
        raise KilledError("killed")

    with monkeypatch.context() as patch, pytest.raises(FraudlakeError, match="killed"):
        patch.setattr(Appender, "append", cut)
        delivered(opened)
    delivered(opened)

    assert Counter(numbers(receiver.events)) == {1: 2, 3: 2}
    first, second = (request.body for request in receiver.taken)
    assert first == second
    assert [(number, kept) for number, kept, _ in deliveries(opened)] == [
        (1, "delivered"),
        (2, "suppressed"),
        (3, "delivered"),
        (4, "limited"),
    ]


@pytest.mark.stream
def test_alerts_become_files_rows_of_a_database_and_lines_of_the_log(
    lake: LakeHere, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake(delivery_folder=str(tmp_path / "out"), jdbc_url=f"sqlite:///{tmp_path / 'db'}", jdbc_table="alerts")
    raise_(opened, alert(1), alert(2))
    with caplog.at_level(logging.WARNING, "fraudlake.alerts"):
        for to in ("file", "jdbc", "log"):
            assert delivered(opened, to) == 2
    (file,) = (tmp_path / "out").iterdir()
    assert numbers([json.loads(line) for line in file.read_text().splitlines()]) == [1, 2]
    with sqlite3.connect(tmp_path / "db") as connection:
        assert connection.execute("SELECT transaction_id FROM alerts ORDER BY 1").fetchall() == [
            ("large-1",),
            ("large-2",),
        ]
    logged = [json.loads(record.getMessage()) for record in caplog.records if record.name == "fraudlake.alerts"]
    assert numbers(logged) == [1, 2]
    assert status(opened).alerts.deliveries == {to: {"delivered": 2} for to in ("file", "jdbc", "log")}


@pytest.mark.long
@pytest.mark.stream
def test_a_lost_checkpoint_does_not_send_everything_again(lake: LakeHere, receiver: Receiver) -> None:
    opened = lake(webhook_url=receiver.url)
    raise_(opened, alert(1))
    delivered(opened)
    checkpoint = opened.checkpoint("deliver_webhook").folder
    checkpoint.rename(checkpoint.with_name("lost"))
    with pytest.raises(FraudlakeError, match="deliver_webhook: silver_deliveries has rows, but the checkpoint"):
        delivered(opened)
    assert numbers(receiver.events) == [1]
    delivered(opened, "log")


@pytest.mark.parametrize(
    ("to", "missing"),
    [
        ("file", "delivery_folder is not set"),
        ("kafka", "delivery_topic is not set"),
        ("webhook", "webhook_url is not set"),
        ("jdbc", "jdbc_url is not set"),
    ],
)
def test_a_destination_says_what_it_needs(to: Any, missing: str) -> None:
    with pytest.raises(UsageError, match=missing):
        DESTINATIONS[to].sink(Settings(), None)  # type: ignore[arg-type]
