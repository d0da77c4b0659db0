"""App users: opens the lake's tables, and looks up groups, with the access token of each user of a Databricks App."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config

from fraudlake.errors import UsageError
from fraudlake.process.version import __version__
from fraudlake_workspace.client import asking
from fraudlake_workspace.warehouse import WarehouseStore

if TYPE_CHECKING:
    from fraudlake.settings import Settings

_SECONDS = 60
"""Seconds for which the SDK retries: somebody is waiting for a page."""
_PEOPLE = 200


def client_of(token: str) -> WorkspaceClient:
    """Return a client that acts as the owner of a token, although the app has credentials of its own."""
    host = os.environ.get("DATABRICKS_HOST")
    if not host:
        raise UsageError("DATABRICKS_HOST is not set, as it is in a Databricks App")
    return WorkspaceClient(
        config=Config(
            host=host,
            token=token,
            auth_type="pat",
            product="fraudlake",
            product_version=__version__,
            retry_timeout_seconds=_SECONDS,
        )
    )


def groups_of(token: str) -> set[str]:
    """Return the groups of a user in the workspace.

    Raises:
        FraudlakeError: the workspace does not answer, or refuses the token.
    """
    client = client_of(token)
    with asking(client, "groups of the user"):
        me = client.current_user.me()
    return {group.display for group in me.groups or () if group.display}


class UserStores:
    """The stores of a lake by user, each with the rights of that user."""

    def __init__(self, settings: Settings) -> None:
        """Read and write through the setting ``warehouse``.

        Raises:
            UsageError: the setting is missing, or the lake is not in a workspace.
        """
        if not settings.is_in_workspace or settings.warehouse is None:
            raise UsageError("a Databricks App reads through a SQL warehouse: give --catalog, --schema and --warehouse")
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: dict[str, tuple[str, WarehouseStore]] = {}

    def open(self, name: str, token: str) -> WarehouseStore:
        """Return the store of a user, opened anew when the user's token has been renewed."""
        with self._lock:
            old_token, store = self._opened.get(name, (None, None))
        if store is None or old_token != token:
            store = WarehouseStore(self._settings, client_of(token))
            with self._lock:
                self._opened.pop(name, None)
                self._opened[name] = token, store
                if len(self._opened) > _PEOPLE:
                    del self._opened[next(iter(self._opened))]
        return store
