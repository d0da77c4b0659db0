"""Check: what this identity may do in a workspace, one line each, with what to grant where it may not."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from databricks.sdk.errors import NotFound
from databricks.sdk.errors.base import DatabricksError

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.workspace import sql
from fraudlake.workspace.client import asking

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from fraudlake.settings import Settings

_Look = tuple[str, Callable[[], str], str]
"""What is looked at, how, and what to do where it is not as it must be."""
_ON_CATALOG = ("USE_CATALOG",)
_ON_SCHEMA = ("USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE", "CREATE_MODEL")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: whether it is as it must be, what was seen, and what to do where it is not."""

    what: str
    ok: bool
    seen: str
    remedy: str | None = None


def check(
    client: WorkspaceClient,
    settings: Settings,
    warehouse: str | None,
    service_principal: str | None = None,
    groups: Sequence[str] = (),
) -> Iterator[Check]:
    """Look at identity, catalog, schema, volumes, warehouse and secret, each as far as the ones before allow.

    Args:
        client: the workspace.
        settings: the lake and its secret.
        warehouse: name or id of the SQL warehouse; None: any.
        service_principal: application id that the bundle's targets staging and prod are to run as.
        groups: groups that those targets are to grant rights to.

    Raises:
        UsageError: ``service_principal`` is no application id.
        FraudlakeError: the workspace does not answer, or refuses the credentials.
    """
    if service_principal is not None:
        _require_application_id(service_principal)
    with asking(client, "identity"):
        me = client.current_user.me()
    name = str(me.user_name)
    principals = [name, *(str(group.display) for group in me.groups or []), "account users"]
    yield Check("identity", True, f"{name} at {client.config.host}")

    catalog, schema = str(settings.catalog), str(settings.schema_name)
    full = f"{catalog}.{schema}"
    looks: list[_Look] = [
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
    looks += _of_the_bundle(client, service_principal, groups)
    for what, look, remedy in looks:
        try:
            with asking(client, what):
                yield Check(what, True, look())
        except FraudlakeError as error:
            yield Check(what, False, str(error).removeprefix(f"{what}: "), remedy)


def _of_the_bundle(client: WorkspaceClient, service_principal: str | None, groups: Sequence[str]) -> Iterator[_Look]:
    if service_principal is not None:
        remedy = "give the application id of one that this workspace has: databricks service-principals list"
        look = partial(_service_principal, client, service_principal)
        yield f"service principal {service_principal}", look, remedy
    remedy = (
        "make it in the account's console and assign it to this workspace, or name other groups with --var readers=…, "
        "--var analysts=… and --var engineers=…"
    )
    for group in groups:
        yield f"group {group}", partial(_account_group, client, group), remedy


def _granted(
    client: WorkspaceClient, kind: str, name: str, owner: str | None, wanted: tuple[str, ...], principals: list[str]
) -> str:
    """Tell whether the principals, the identity and its groups, hold every privilege on a securable.

    A group's privileges are told of the group only, so each is asked in turn until nothing is missing. Unity Catalog
    does not know groups of the workspace alone, such as ``admins``: these can hold nothing.
    """
    if owner in principals:
        return f"owned by {owner}"
    missing = set(wanted)
    for principal in principals:
        privileges = _privileges(client, kind, name, principal)
        missing -= missing if "ALL_PRIVILEGES" in privileges else privileges
        if not missing:
            return f"may {_spelled(wanted)}"
    raise FraudlakeError(f"lacks {_spelled(sorted(missing))}")


def _privileges(client: WorkspaceClient, kind: str, name: str, principal: str) -> set[str]:
    """Return the privileges of a principal on a securable; none where Unity Catalog does not know the principal."""
    try:
        assignments = client.grants.get_effective(kind, name, principal=principal).privilege_assignments or []
    except DatabricksError as error:
        if isinstance(error, NotFound) or "could not find principal" in str(error).lower():
            return set()
        raise
    privileges = [one.privilege for assignment in assignments for one in assignment.privileges or []]
    return {privilege.value for privilege in privileges if privilege}


def _require_application_id(text: str) -> None:
    try:
        if str(uuid.UUID(text)) == text.lower():
            return
    except ValueError:
        pass
    raise UsageError(
        f"--service-principal {text}: must be the application id of a service principal, such as "
        "11111111-2222-3333-4444-555555555555, not its name and not a user's"
    )


def _service_principal(client: WorkspaceClient, application_id: str) -> str:
    named = list(client.service_principals.list(filter=f'applicationId eq "{application_id}"'))
    if not named:
        raise FraudlakeError("there is none, or it is not assigned to this workspace")
    if named[0].active is False:
        raise FraudlakeError(f"{named[0].display_name} is not active")
    return f"{named[0].display_name}"


def _account_group(client: WorkspaceClient, name: str) -> str:
    """Tell whether a group is one of the account, which alone can be granted anything by Unity Catalog.

    Databricks documentation, "Groups": a group that belongs to one workspace is a ``WorkspaceGroup`` to its API.
    """
    named = [group for group in client.groups.list(filter=f'displayName eq "{name}"') if group.display_name == name]
    if not named:
        raise FraudlakeError("there is none, or it is not assigned to this workspace")
    if named[0].meta and named[0].meta.resource_type == "WorkspaceGroup":
        raise FraudlakeError(
            "belongs to this workspace alone: Unity Catalog grants rights to groups of the account only"
        )
    return "is a group of the account"


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
