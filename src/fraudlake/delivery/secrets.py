"""Secrets: the settings of a destination that a Databricks secret holds, which are never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import SecretStr, TypeAdapter, ValidationError

from fraudlake.delivery.destinations import DESTINATIONS, SECRETS, SECRETS_LISTED
from fraudlake.errors import FraudlakeError
from fraudlake.settings import Settings, secret

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient


def with_secrets(settings: Settings, to: str, client: WorkspaceClient | None = None) -> Settings:
    """Return the settings with the secrets that a destination needs; explicit settings override them.

    Raises:
        FraudlakeError: the secret cannot be read, or is not a JSON object of settings that a secret may contain.
    """
    destination = DESTINATIONS[to]
    if "kafka_secret" in destination.shared:
        settings = secret.with_kafka_options(settings, client)
    if settings.delivery_secret is None or not destination.secrets:
        return settings
    try:
        secrets = TypeAdapter(dict[str, SecretStr]).validate_json(secret.read(settings.delivery_secret, client))
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
