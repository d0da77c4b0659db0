"""The webhook against a real HTTP server that fails in every way."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from urllib3 import HTTPResponse
from urllib3.util import Retry

from fraudlake.delivery import event, webhook
from fraudlake.delivery.sink import Outcome
from fraudlake.delivery.webhook import WebhookSink
from fraudlake.errors import UsageError

from .alerts import alert
from .receiver import HANGS, RESETS, Behaviour, Receiver, listening, status

KEY = bytes(range(24))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
QUICK = webhook.RETRY.new(backoff_factor=0.01, backoff_jitter=0.01)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with listening() as receiver:
        yield receiver


def events(count: int, first: int = 0) -> list[event.Event]:
    return [event.make_event(alert(number), "lake") for number in range(first, first + count)]


def sink(receiver: Receiver, timeout: float = 5.0, retry: Retry = QUICK) -> WebhookSink:
    return WebhookSink(receiver.url, SECRET, timeout, retry)


def test_a_batch_is_signed_as_standard_webhooks_say(receiver: Receiver) -> None:
    sent = events(3)
    assert sink(receiver).send(sent, "name") == [Outcome(1)] * 3

    (request,) = receiver.requests
    assert request.events == sent
    assert request.headers["content-type"] == "application/cloudevents-batch+json; charset=UTF-8"
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"


def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    assert WebhookSink(receiver.url, None, 5, QUICK).send(events(1), "name") == [Outcome(1)]
    assert "webhook-signature" not in receiver.requests[0].headers


def test_many_events_go_in_batches_in_their_order(receiver: Receiver) -> None:
    sent = events(250)
    assert sink(receiver).send(sent, "name") == [Outcome(1)] * 250
    assert [len(request.events) for request in receiver.requests] == [100, 100, 50]
    assert receiver.events == sent


@pytest.mark.slow
@pytest.mark.parametrize(
    "failure", [HANGS, RESETS, status(500), status(503), status(429, retry_after="1"), status(408)], ids=str
)
def test_what_may_pass_is_tried_again_under_the_same_id(receiver: Receiver, failure: Behaviour) -> None:
    receiver.plan = deque([failure, failure])
    assert sink(receiver, timeout=0.5).send(events(2), "name") == [Outcome(3)] * 2
    assert receiver.events == events(2)
    assert len({(request.headers["webhook-id"], request.body) for request in receiver.requests}) == 1


def test_a_slow_answer_within_the_time_out_is_waited_for(receiver: Receiver) -> None:
    receiver.always = 0.3
    assert sink(receiver, timeout=2).send(events(1), "name") == [Outcome(1)]


@pytest.mark.slow
def test_the_receiver_says_when_to_come_back(receiver: Receiver) -> None:
    receiver.plan = deque([status(429, retry_after="1")])
    sink(receiver).send(events(1), "name")
    first, second = receiver.requests
    assert second.at - first.at >= 1


@pytest.mark.parametrize("pause", ["0.5", "-1", "soon"])
def test_a_pause_that_is_neither_a_number_of_seconds_nor_a_date_does_not_end_the_attempts(
    receiver: Receiver, pause: str
) -> None:
    receiver.plan = deque([status(429, retry_after=pause)])
    assert sink(receiver).send(events(1), "name") == [Outcome(2)]


def test_a_receiver_cannot_keep_the_stream_waiting() -> None:
    answer = HTTPResponse(status=429, headers={"Retry-After": "86400"})
    assert webhook.RETRY.get_retry_after(answer) == 30


def test_pauses_grow_and_are_not_the_same_for_all() -> None:
    def pauses() -> list[float]:
        retry, found = webhook.RETRY, []
        for _ in range(5):
            retry = retry.increment("POST", "/", error=ConnectionResetError())
            found.append(retry.get_backoff_time())
        return found

    first, second = pauses(), pauses()
    assert first[1:] == sorted(first[1:])
    assert first[-1] >= 8
    assert first != second


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (HANGS, "no answer in time"),
        (RESETS, "the connection broke before an answer"),
        (status(500), "it answered 500"),
        (status(429), "it answered 429"),
    ],
    ids=str,
)
def test_a_receiver_that_stays_down_is_given_up_and_the_rest_is_not_tried(
    receiver: Receiver, failure: Behaviour, reason: str
) -> None:
    receiver.always = failure
    twice = QUICK.new(total=1)
    outcomes = sink(receiver, timeout=0.2, retry=twice).send(events(250), "name")
    assert outcomes == [Outcome(2, reason)] * 100 + [Outcome(0, f"not tried: {reason}")] * 150
    assert len(receiver.requests) == 2

    receiver.always = 0.0
    assert sink(receiver).send(events(250), "name") == [Outcome(1)] * 250


def test_nobody_listens() -> None:
    with listening() as gone:
        pass
    (outcome,) = WebhookSink(gone.url, SECRET, 1, QUICK).send(events(1), "name")
    assert outcome == Outcome(7, "no connection")


@pytest.mark.parametrize("code", [301, 401, 404, 410])
def test_what_will_not_pass_is_not_tried_again(receiver: Receiver, code: int) -> None:
    receiver.always = status(code, location="http://127.0.0.1:1/")
    assert sink(receiver).send(events(2), "name") == [Outcome(1, f"it answered {code}")] * 2
    assert len(receiver.requests) == 1


def test_an_event_that_the_receiver_refuses_does_not_keep_the_others_back(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, refused = events(8), events(8)[5]
    post = webhook.requests.Session.post

    def judging(self: Any, url: str, **options: Any) -> Any:
        receiver.always = status(400 if event.as_json(refused) in options["data"].decode() else 204)
        return post(self, url, **options)

    monkeypatch.setattr(webhook.requests.Session, "post", judging)
    expected = [Outcome(1, "it answered 400", is_refusal=True) if one == refused else Outcome(1) for one in sent]
    assert sink(receiver).send(sent, "name") == expected
    assert receiver.events == [one for one in sent if one != refused]


def test_a_receiver_that_comes_back_while_it_is_tried(receiver: Receiver) -> None:
    receiver.always = RESETS
    threading.Timer(0.5, lambda: setattr(receiver, "always", 0.0)).start()
    outcomes = sink(receiver, retry=QUICK.new(total=50, backoff_factor=0.02)).send(events(1), "name")
    assert outcomes[0].reason is None and outcomes[0].attempts > 1
    assert receiver.events == events(1)


def test_neither_address_nor_key_are_shown(receiver: Receiver) -> None:
    receiver.always = HANGS
    (outcome,) = sink(receiver, timeout=0.1, retry=QUICK.new(total=0)).send(events(1), "name")
    assert "secret" not in str(outcome)


@pytest.mark.parametrize("secret", ["plain", "whsec_", "whsec_!!!", SECRET.removeprefix("whsec_"), SECRET[:-8]])
def test_a_key_of_another_form_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(UsageError) as refused:
        WebhookSink("https://alerts.example.com", secret, 1)
    assert str(refused.value) == "webhook_secret: must be 'whsec_' and 24 to 64 random bytes in base64"
