"""The client: connects to the API of a workspace, and reports failures as a single line without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config
from databricks.sdk.errors import NotFound, PermissionDenied, TooManyRequests, Unauthenticated
from databricks.sdk.errors.base import DatabricksError

from fraudlake.errors import FraudlakeError, UsageError, first_line
from fraudlake.process.version import __version__

_RETRY_SECONDS = 60
_SECRETS = ("token", "client_secret", "password", "azure_client_secret", "google_credentials")


def connect(profile: str | None) -> WorkspaceClient:
    """Return a client for the profile, or by default for the environment or the default profile.

    Raises:
        UsageError: neither names a workspace and credentials.
    """
    try:
        return WorkspaceClient(
            config=Config(
                profile=profile, product="fraudlake", product_version=__version__, retry_timeout_seconds=_RETRY_SECONDS
            )
        )
    except ValueError as error:
        raise UsageError(
            f"no access to a workspace is set up ({_cause(error)}): run 'databricks auth login', give --profile, "
            "or set DATABRICKS_HOST and DATABRICKS_TOKEN"
        ) from None


@contextmanager
def asking(client: WorkspaceClient, what: str) -> Iterator[None]:
    """Turn failures of the API calls in the block into an error of one line, which names ``what`` was asked for.

    Raises:
        FraudlakeError: a call failed, after the retries of the SDK.
    """
    try:
        yield
    except (DatabricksError, TimeoutError, requests.RequestException, ValueError) as error:
        raise FraudlakeError(_without_secrets(f"{what}: {_reason(error, client.config)}", client.config)) from None


def pauses(most: float) -> Iterator[float]:
    """Yield the seconds to wait between polls: 0.1 at first, then half as much again each time, up to ``most``."""
    pause = 0.1
    while True:
        yield pause
        pause = min(pause * 1.5, most)


def _reason(error: Exception, config: Config) -> str:
    reason = _cause(error)
    if isinstance(error, Unauthenticated) or "access token" in reason.lower():
        return (
            f"{config.host} refuses the credentials, which are wrong or have expired: log in again with "
            "'databricks auth login', or renew the token"
        )
    if isinstance(error, PermissionDenied):
        return f"permission denied ({reason}): 'fraudlake workspace check' says what to grant"
    if isinstance(error, NotFound):
        return f"it does not exist ({reason}): check the name, and whether the bundle is deployed"
    if isinstance(error, TimeoutError):
        cause = error.__cause__
        if isinstance(cause, TooManyRequests):
            return f"{config.host} is busy and refuses more requests for now: try again in some minutes"
        if isinstance(cause, DatabricksError):
            return f"{config.host} is not available for now ({_cause(cause)}): try again in some minutes"
        return f"{config.host} does not answer: check the host and the network"
    if isinstance(error, DatabricksError):
        return f"{config.host} could not do it ({reason}): try again, or ask the workspace's administrator"
    return f"{config.host} sent an answer that cannot be read ({reason}): check that this is a workspace's address"


def _cause(error: Exception) -> str:
    # The SDK appends its whole configuration to the message.
    return first_line(error, 2000).partition(" Config: ")[0].rstrip(".")[:300]


def _without_secrets(text: str, config: Config) -> str:
    for name in _SECRETS:
        value = getattr(config, name, None)
        text = text.replace(value, "***") if value else text
    return text
