"""Delivery: the settings of each destination of alerts, and limits."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, SecretStr, model_validator

from fraudlake.times.durations import Duration
from fraudlake.values import SECRET, TOPIC, Topic


class Jdbc(BaseModel):
    """The database and its table."""

    jdbc_url: SecretStr | None = Field(
        None, description="Database for delivered alerts, as an address of SQLAlchemy; never shown."
    )
    jdbc_table: str = Field(
        "fraud_alerts", pattern=r"^\w+(\.\w+)?$", description="Table for delivered alerts, optionally with its schema."
    )


class DeliveryTopic(BaseModel):
    """The topic; its brokers and their client are those of the source."""

    delivery_topic: Topic | None = Field(
        None, pattern=TOPIC, description="Kafka topic for delivered alerts, at bootstrap_servers."
    )


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


class Delivery(Jdbc, DeliveryTopic, Webhook):
    """How alerts leave the lake."""

    delivery_folder: str | None = Field(
        None, description="Folder for delivered alerts as JSON lines; in a workspace a folder in a volume."
    )
    delivery_secret: str | None = Field(
        None,
        pattern=SECRET,
        description="In a workspace: the secret, as SCOPE/KEY, that holds jdbc_url, webhook_url or webhook_secret as a "
        "JSON object.",
    )
    suppress_within: Duration = Field(
        timedelta(0),
        ge=timedelta(0),
        description="Deliver no alert nearer than this, in event time, to a delivered one of its account (0: deliver "
        "all).",
    )
    max_alerts_per_minute: int = Field(
        0, ge=0, description="Maximum alerts per minute of detection delivered to a destination (0: no limit)."
    )


def _require_safe(url: SecretStr, allow_http: bool) -> None:
    """Refuse a webhook's address without TLS, unless it is on this machine or allowed; the message does not show it.

    Raises:
        ValueError: the address is refused or invalid.
    """
    try:
        parts = urlsplit(url.get_secret_value())
        host = parts.hostname
        _ = parts.port
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
