"""Webhook: posts events to an address in signed batches, and retries failures that may pass."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Sequence
from functools import partial

import requests
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse, exceptions
from urllib3.util import Retry

from fraudlake.delivery import event
from fraudlake.delivery.event import Event
from fraudlake.delivery.sink import Outcome, in_batches
from fraudlake.errors import UsageError

BATCH = 100
"""Events in a request."""
SECRET_PREFIX = "whsec_"  # noqa: S105
_MOST_SECONDS = 30
"""Longest wait between two attempts, whatever the receiver asks for, since the signature's time must stay recent."""
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
_OF_CONTENT = (400, 413, 422)
"""Answers to the content of a request, which fewer events may avoid."""
_REASONS = (
    (exceptions.NewConnectionError, "no connection"),
    (exceptions.ConnectTimeoutError, "no connection in time"),
    (exceptions.ReadTimeoutError, "no answer in time"),
    (exceptions.SSLError, "TLS failed: its certificate does not hold for that name"),
    (exceptions.ProxyError, "the proxy failed"),
    (exceptions.ProtocolError, "the connection broke before an answer"),
)


class _Patience(Retry):
    """Retries a POST after a failure that may pass; the receiver recognises a repetition by the request's id."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        try:
            seconds = super().get_retry_after(response)
        except exceptions.InvalidHeader:  # such as "0.5": urllib3 takes whole seconds and dates only
            return None
        return None if seconds is None else min(seconds, _MOST_SECONDS)


RETRY = _Patience(
    total=6,
    backoff_factor=0.5,
    backoff_jitter=0.5,
    backoff_max=_MOST_SECONDS,
    status_forcelist=_TEMPORARY,
    allowed_methods=None,
    raise_on_status=False,
)
"""Seven attempts over half a minute and the time-outs; Retry-After, in 429 and 503, replaces the pause."""


class WebhookSink:
    """Posts batches of CloudEvents, signed by the specification "Standard Webhooks".

    Args:
        url: the address; it may contain a secret and is never shown.
        secret: the key of the signature, ``whsec_`` and 24 to 64 bytes in base64; without one nothing is signed.
        timeout: seconds to wait for a connection, and for an answer.
        retry: when to try again, and how often.

    Raises:
        UsageError: the secret has another form.
    """

    def __init__(self, url: str, secret: str | None, timeout: float, retry: Retry | None = None) -> None:
        """Post to the address."""
        self._url = url
        self._key = _key(secret) if secret else None
        self._timeout = timeout
        self._retry = retry or RETRY

    def send(self, events: Sequence[Event], name: str) -> list[Outcome]:
        """Post events, at most :data:`BATCH` per request."""
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=self._retry))
            return in_batches(events, BATCH, partial(self._post, session))

    def _post(self, session: requests.Session, events: Sequence[Event]) -> Outcome:
        body = event.as_json(list(events)).encode()
        try:
            with session.post(
                self._url,
                data=body,
                headers=self._headers(events, body),
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,  # do not read the answer's body
            ) as response:
                status = response.status_code
                attempts = 1 + len(response.raw.retries.history)
        except requests.RequestException as error:
            return Outcome(1 + int(self._retry.total or 0), _reason(error))
        if 200 <= status < 300:
            return Outcome(attempts)
        return Outcome(attempts, f"it answered {status}", is_refusal=status in _OF_CONTENT)

    def _headers(self, events: Sequence[Event], body: bytes) -> dict[str, str]:
        ids = "\n".join(one["id"] for one in events)
        message = f"msg_{hashlib.sha256(ids.encode()).hexdigest()[:32]}"
        now = str(int(time.time()))
        headers = {"content-type": event.BATCH_CONTENT_TYPE, "webhook-id": message, "webhook-timestamp": now}
        if self._key is not None:
            signed = hmac.digest(self._key, f"{message}.{now}.".encode() + body, "sha256")
            headers["webhook-signature"] = f"v1,{base64.b64encode(signed).decode()}"
        return headers


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not 24 <= len(key) <= 64:
        raise UsageError("webhook_secret: must be 'whsec_' and 24 to 64 random bytes in base64")
    return key


def _reason(error: requests.RequestException) -> str:
    """Describe a failure briefly; the messages of the libraries contain the address."""
    cause: object = error
    while isinstance(cause, Exception):
        for kind, reason in _REASONS:
            if isinstance(cause, kind):
                return reason
        cause = getattr(cause, "reason", None) or (cause.args[0] if cause.args else None)
    return "the request failed"
