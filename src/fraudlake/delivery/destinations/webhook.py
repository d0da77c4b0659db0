"""Webhook: the destination that posts events to an address."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, SecretStr, model_validator

from fraudlake.delivery.destination import Destination, required
from fraudlake.text.durations import Duration

if TYPE_CHECKING:
    from fraudlake.delivery.sink import Sink
    from fraudlake.lake import Lake


class Webhook(BaseModel):
    """The address of the receiver, and the key of the signature."""

    webhook_url: SecretStr | None = Field(None, description="Address that alerts are posted to; never shown.")
    webhook_secret: SecretStr | None = Field(
        None, description="Key of the webhook's signature: whsec_ and 24 to 64 random bytes in base64; never shown."
    )
    webhook_timeout: Duration = Field(
        timedelta(seconds=10), gt=timedelta(0), description="Longest wait for a connection, and for an answer."
    )
    webhook_allow_http: bool = Field(False, description="Allow a webhook without TLS on another machine.")

    @model_validator(mode="after")
    def _webhook_is_safe(self) -> Self:
        if self.webhook_url is not None:
            _require_safe(self.webhook_url, self.webhook_allow_http)
        return self


def _require_safe(url: SecretStr, allow_http: bool) -> None:
    """Refuse a webhook's address without TLS, unless it is on this machine or allowed; the message does not show it.

    Raises:
        ValueError: the address is refused or invalid.
    """
    try:
        parts = urlsplit(url.get_secret_value())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError("webhook_url must be an address such as https://alerts.example.com/fraud")
    if parts.scheme == "http" and not allow_http and not _is_loopback(host):
        raise ValueError("webhook_url must be https, unless webhook_allow_http is true or it is on this machine")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def sink(settings: Webhook, lake: Lake) -> Sink:
    """Return the sink of a webhook; the HTTP client takes a moment to load."""
    from fraudlake.delivery.webhook import WebhookSink

    url, key = required(settings.webhook_url, "webhook_url"), settings.webhook_secret
    timeout = settings.webhook_timeout.total_seconds()
    return WebhookSink(url.get_secret_value(), key.get_secret_value() if key else None, timeout)


DESTINATION = Destination("webhook", sink, Webhook)
