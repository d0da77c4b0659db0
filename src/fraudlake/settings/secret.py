"""Secrets: reads Kafka options, or the settings of a destination, from a Databricks secret without ever showing it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import SecretStr, TypeAdapter, ValidationError

from fraudlake.delivery.destinations import DESTINATIONS, SECRETS, SECRETS_LISTED
from fraudlake.errors import FraudlakeError, first_line
from fraudlake.settings import Settings
from fraudlake.settings.kafka import KafkaOptions

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient


def with_kafka_options(settings: Settings, client: WorkspaceClient | None = None) -> Settings:
    """Return the settings with the options of ``kafka_secret``; options in ``kafka_options`` override them.

    Raises:
        FraudlakeError: the secret cannot be read, or is not a JSON object of options.
    """
    if settings.kafka_secret is None:
        return settings
    try:
        options = TypeAdapter(KafkaOptions).validate_python(json.loads(_value(settings.kafka_secret, client)))
    except (ValueError, ValidationError):
        raise FraudlakeError(
            f"the secret {settings.kafka_secret} must be a JSON object of options for the Kafka client, such as "
            '{"security.protocol": "SASL_SSL"}'
        ) from None
    return settings.model_copy(update={"kafka_options": {**options, **settings.kafka_options}})


def with_delivery(settings: Settings, to: str, client: WorkspaceClient | None = None) -> Settings:
    """Return the settings with the secrets that a destination needs; explicit settings override them.

    Raises:
        FraudlakeError: the secret cannot be read, or is not a JSON object of settings that a secret may contain.
    """
    destination = DESTINATIONS[to]
    if "kafka_secret" in destination.shared:
        settings = with_kafka_options(settings, client)
    if settings.delivery_secret is None or not destination.secrets:
        return settings
    try:
        secrets = TypeAdapter(dict[str, SecretStr]).validate_json(_value(settings.delivery_secret, client))
    except ValidationError:
        secrets = {"": SecretStr("")}
    if not secrets.keys() <= set(SECRETS):
        raise FraudlakeError(f"the secret {settings.delivery_secret} must be a JSON object with {SECRETS_LISTED}")
    made = settings.model_copy(update={name: text for name, text in secrets.items() if getattr(settings, name) is None})
    try:
        destination.settings.model_validate({name: getattr(made, name) for name in destination.settings.model_fields})
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise FraudlakeError(f"the secret {settings.delivery_secret}: {reason}") from None
    return made


def _value(secret: str, client: WorkspaceClient | None) -> str:
    scope, _, key = secret.partition("/")
    try:
        from databricks.sdk import WorkspaceClient

        return (client or WorkspaceClient()).dbutils.secrets.get(scope, key)
    except Exception as error:  # raised by the SDK, or by the runtime's own dbutils
        raise FraudlakeError(
            f"cannot read the secret {secret} ({first_line(error)}): make it, and grant READ on its scope"
        ) from None
