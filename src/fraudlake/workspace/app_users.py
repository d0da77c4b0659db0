"""App users: access tokens that a Databricks App gets of its users become their tables and groups."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config

from fraudlake import __version__
from fraudlake.errors import UsageError
from fraudlake.workspace.client import asking
from fraudlake.workspace.warehouse import WarehouseStore

if TYPE_CHECKING:
    from fraudlake.settings import Settings

_SECONDS = 60
"""How long the SDK tries again for a page that somebody waits for."""
_PEOPLE = 200


def client_of(token: str) -> WorkspaceClient:
    """Return a client that acts as whose token it is, although the app has credentials of its own."""
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
        FraudlakeError: the workspace does not say.
    """
    client = client_of(token)
    with asking(client, "groups of the user"):
        me = client.current_user.me()
    return {group.display for group in me.groups or () if group.display}


class UserStores:
    """The tables of a lake as each user may read and write them."""

    def __init__(self, settings: Settings) -> None:
        """Read and write through the setting ``warehouse``.

        Raises:
            UsageError: there is none.
        """
        if not settings.is_in_workspace or settings.warehouse is None:
            raise UsageError("a Databricks App reads through a SQL warehouse: give --catalog, --schema and --warehouse")
        self._settings, self._lock = settings, threading.Lock()
        self._opened: dict[str, tuple[str, WarehouseStore]] = {}

    def of(self, name: str, token: str) -> WarehouseStore:
        """Return the tables as a user sees them; the token of a user changes as it is renewed."""
        with self._lock:
            known, store = self._opened.get(name, (None, None))
        if store is None or known != token:
            store = WarehouseStore(self._settings, client_of(token))
            with self._lock:
                self._opened.pop(name, None)
                self._opened[name] = token, store
                if len(self._opened) > _PEOPLE:
                    del self._opened[next(iter(self._opened))]
        return store
