"""Secret: the text of a Databricks secret, and the Kafka options in one, which are never shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

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
        options = TypeAdapter(KafkaOptions).validate_python(json.loads(read(settings.kafka_secret, client)))
    except (ValueError, ValidationError):
        raise FraudlakeError(
            f"the secret {settings.kafka_secret} must be a JSON object of options for the Kafka client, such as "
            '{"security.protocol": "SASL_SSL"}'
        ) from None
    return settings.model_copy(update={"kafka_options": {**options, **settings.kafka_options}})


def read(secret: str, client: WorkspaceClient | None = None) -> str:
    """Return the text of a secret, named as SCOPE/KEY.

    Raises:
        FraudlakeError: it cannot be read.
    """
    scope, _, key = secret.partition("/")
    try:
        from databricks.sdk import WorkspaceClient

        return (client or WorkspaceClient()).dbutils.secrets.get(scope, key)
    except Exception as error:  # raised by the SDK, or by the runtime's own dbutils
        raise FraudlakeError(
            f"cannot read the secret {secret} ({first_line(error)}): make it, and grant READ on its scope"
        ) from None
