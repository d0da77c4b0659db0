"""Check: what this identity may do in a workspace, one line each, with what to grant where it may not."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fraudlake.errors import FraudlakeError
from fraudlake.workspace import sql
from fraudlake.workspace.client import asking

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from fraudlake.settings import Settings

_ON_CATALOG = ("USE_CATALOG",)
_ON_SCHEMA = ("USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE", "CREATE_MODEL")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: whether it is as it must be, what was seen, and what to do where it is not."""

    what: str
    ok: bool
    seen: str
    remedy: str | None = None


def check(client: WorkspaceClient, settings: Settings, warehouse: str | None) -> Iterator[Check]:
    """Look at identity, catalog, schema, volumes, warehouse and secret, each as far as the ones before allow.

    Raises:
        FraudlakeError: the workspace does not answer, or refuses the credentials.
    """
    with asking(client, "identity"):
        me = client.current_user.me()
    name = str(me.user_name)
    principals = [name, *(str(group.display) for group in me.groups or []), "account users"]
    yield Check("identity", True, f"{name} at {client.config.host}")

    catalog, schema = str(settings.catalog), str(settings.schema_name)
    full = f"{catalog}.{schema}"
    looks: list[tuple[str, Callable[[], str], str]] = [
        (
            f"catalog {catalog}",
            lambda: _granted(client, "CATALOG", catalog, client.catalogs.get(catalog).owner, _ON_CATALOG, principals),
            f"give the name of one that exists, or GRANT USE CATALOG ON CATALOG {catalog} TO `{name}`",
        ),
        (
            f"schema {full}",
            lambda: _granted(client, "SCHEMA", full, client.schemas.get(full).owner, _ON_SCHEMA, principals),
            f"deploy the bundle, which makes it, or GRANT {_spelled(_ON_SCHEMA)} ON SCHEMA {full} TO `{name}`",
        ),
        (
            f"volume {settings.landing_path}",
            lambda: _readable(client, settings.landing_path),
            f"deploy the bundle, which makes it, or GRANT READ VOLUME ON VOLUME {full}.landing TO `{name}`",
        ),
        (
            f"volume {settings.checkpoints_path}",
            lambda: _writable(client, str(settings.checkpoints_path)),
            f"GRANT READ VOLUME, WRITE VOLUME ON VOLUME {full}.checkpoints TO `{name}`",
        ),
        ("warehouse", lambda: _warehouse(client, warehouse), "give --warehouse, or have CAN USE granted on one"),
    ]
    if settings.kafka_secret:
        scope, _, key = settings.kafka_secret.partition("/")
        looks.append(
            (
                f"secret {settings.kafka_secret}",
                lambda: _has_secret(client, scope, key),
                f"databricks secrets put-secret {scope} {key}, or databricks secrets put-acl {scope} {name} READ",
            )
        )
    for what, look, remedy in looks:
        try:
            with asking(client, what):
                yield Check(what, True, look())
        except FraudlakeError as error:
            yield Check(what, False, str(error).removeprefix(f"{what}: "), remedy)


def _granted(
    client: WorkspaceClient, kind: str, name: str, owner: str | None, wanted: tuple[str, ...], principals: list[str]
) -> str:
    """Tell whether the principals, the identity and its groups, hold every privilege on a securable.

    A group's privileges are told of the group only, so each is asked in turn until nothing is missing.
    """
    if owner in principals:
        return f"owned by {owner}"
    missing = set(wanted)
    for principal in principals:
        held = client.grants.get_effective(kind, name, principal=principal).privilege_assignments or []
        privileges = {one.privilege.value for given in held for one in given.privileges or [] if one.privilege}
        missing -= missing if "ALL_PRIVILEGES" in privileges else privileges
        if not missing:
            return f"may {_spelled(wanted)}"
    raise FraudlakeError(f"lacks {_spelled(sorted(missing))}")


def _readable(client: WorkspaceClient, folder: str) -> str:
    client.files.get_directory_metadata(folder)
    return "can be read"


def _writable(client: WorkspaceClient, folder: str) -> str:
    """Write a small file and remove it: the one proof that counts."""
    file = f"{folder}/.fraudlake-check"
    client.files.upload(file, io.BytesIO(b"fraudlake workspace check\n"), overwrite=True)
    client.files.delete(file)
    return "can be read and written"


def _warehouse(client: WorkspaceClient, wanted: str | None) -> str:
    found = sql.warehouse(client, wanted)
    return f"{found.name} ({found.id}), {found.state.value.lower() if found.state else 'in an unknown state'}"


def _has_secret(client: WorkspaceClient, scope: str, key: str) -> str:
    if key not in {one.key for one in client.secrets.list_secrets(scope)}:
        raise FraudlakeError(f"the scope '{scope}' holds no '{key}'")
    return "is there; its value was not read"


def _spelled(privileges: tuple[str, ...] | list[str]) -> str:
    return ", ".join(one.replace("_", " ") for one in privileges)
