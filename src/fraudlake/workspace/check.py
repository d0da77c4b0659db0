"""Check: each right that this identity needs in a workspace becomes a result, with what to grant if it is missing."""

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

_AccessCheck = tuple[str, Callable[[], str], str]
"""What is checked, a function that checks it and raises if it fails, and what to do then."""
_ON_CATALOG = ("USE_CATALOG",)
_ON_SCHEMA = ("USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE", "CREATE_MODEL")


@dataclass(frozen=True)
class CheckResult:
    """The result of a check: what was checked, whether it passed, what was seen, and what to do if it failed."""

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
) -> Iterator[CheckResult]:
    """Check identity, catalog, schema, volumes, warehouse, secret, service principal and groups, in this order.

    Args:
        client: the workspace.
        settings: the settings of the lake, with its secret.
        warehouse: name or id of the SQL warehouse; None: any.
        service_principal: application id that the bundle's targets staging and prod run as.
        groups: groups to which these targets grant rights.

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
    yield CheckResult("identity", True, f"{name} at {client.config.host}")

    catalog, schema = str(settings.catalog), str(settings.schema_name)
    full = f"{catalog}.{schema}"
    checks: list[_AccessCheck] = [
        (
            f"catalog {catalog}",
            lambda: _granted(client, "CATALOG", catalog, client.catalogs.get(catalog).owner, _ON_CATALOG, principals),
            f"give the name of an existing catalog, or GRANT USE CATALOG ON CATALOG {catalog} TO `{name}`",
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
        ("warehouse", lambda: _warehouse(client, warehouse), "give --warehouse, or ask for CAN USE on a warehouse"),
    ]
    if settings.kafka_secret:
        scope, _, key = settings.kafka_secret.partition("/")
        checks.append(
            (
                f"secret {settings.kafka_secret}",
                lambda: _has_secret(client, scope, key),
                f"databricks secrets put-secret {scope} {key}, or databricks secrets put-acl {scope} {name} READ",
            )
        )
    checks += _bundle_checks(client, service_principal, groups)
    for what, run_check, remedy in checks:
        try:
            with asking(client, what):
                yield CheckResult(what, True, run_check())
        except FraudlakeError as error:
            yield CheckResult(what, False, str(error).removeprefix(f"{what}: "), remedy)


def _bundle_checks(
    client: WorkspaceClient, service_principal: str | None, groups: Sequence[str]
) -> Iterator[_AccessCheck]:
    if service_principal is not None:
        remedy = "give the application id of a principal of this workspace: databricks service-principals list"
        yield f"service principal {service_principal}", partial(_service_principal, client, service_principal), remedy
    remedy = (
        "make it in the account's console and assign it to this workspace, or name other groups with --var readers=…, "
        "--var analysts=… and --var engineers=…"
    )
    for group in groups:
        yield f"group {group}", partial(_account_group, client, group), remedy


def _granted(
    client: WorkspaceClient, kind: str, name: str, owner: str | None, wanted: tuple[str, ...], principals: list[str]
) -> str:
    """Check that the principals (the identity and its groups) together have all ``wanted`` privileges on a securable.

    The API lists the privileges of one principal at a time, so each principal is asked until nothing is missing. Unity
    Catalog does not know groups of a single workspace, such as ``admins``: they can have no privilege.
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
    privileges = [granted.privilege for assignment in assignments for granted in assignment.privileges or []]
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
        raise FraudlakeError("it does not exist, or is not assigned to this workspace")
    if named[0].active is False:
        raise FraudlakeError(f"{named[0].display_name} is not active")
    return f"{named[0].display_name}"


def _account_group(client: WorkspaceClient, name: str) -> str:
    """Check that a group is a group of the account. Unity Catalog grants privileges to no other groups.

    Databricks documentation, "Groups": the API calls a group that belongs to a single workspace ``WorkspaceGroup``.
    """
    named = [group for group in client.groups.list(filter=f'displayName eq "{name}"') if group.display_name == name]
    if not named:
        raise FraudlakeError("it does not exist, or is not assigned to this workspace")
    if named[0].meta and named[0].meta.resource_type == "WorkspaceGroup":
        raise FraudlakeError(
            "belongs to this workspace alone: Unity Catalog grants rights to groups of the account only"
        )
    return "is a group of the account"


def _readable(client: WorkspaceClient, folder: str) -> str:
    client.files.get_directory_metadata(folder)
    return "can be read"


def _writable(client: WorkspaceClient, folder: str) -> str:
    """Write a small file and remove it: the surest proof."""
    file = f"{folder}/.fraudlake-check"
    client.files.upload(file, io.BytesIO(b"fraudlake workspace check\n"), overwrite=True)
    client.files.delete(file)
    return "can be read and written"


def _warehouse(client: WorkspaceClient, wanted: str | None) -> str:
    warehouse = sql.warehouse(client, wanted)
    state = warehouse.state.value.lower() if warehouse.state else "in an unknown state"
    return f"{warehouse.name} ({warehouse.id}), {state}"


def _has_secret(client: WorkspaceClient, scope: str, key: str) -> str:
    if key not in {secret.key for secret in client.secrets.list_secrets(scope)}:
        raise FraudlakeError(f"the scope '{scope}' has no '{key}'")
    return "is there; its value was not read"


def _spelled(privileges: tuple[str, ...] | list[str]) -> str:
    return ", ".join(privilege.replace("_", " ") for privilege in privileges)
