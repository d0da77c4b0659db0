"""Webhook: the destination that posts events to an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.delivery.destination import Destination, required
from fraudlake.settings.delivery import Webhook

if TYPE_CHECKING:
    from fraudlake.delivery.sink import Sink
    from fraudlake.lake import Lake


def sink(settings: Webhook, lake: Lake) -> Sink:
    """Return the sink of a webhook; the HTTP client takes a moment to load."""
    from fraudlake.delivery.webhook import WebhookSink

    url = required(settings.webhook_url, "webhook_url")
    key = settings.webhook_secret
    timeout = settings.webhook_timeout.total_seconds()
    return WebhookSink(url.get_secret_value(), key.get_secret_value() if key else None, timeout)


DESTINATION = Destination("webhook", sink, Webhook)
