"""Check: tests each right and property that the jobs need in a workspace, and names the remedy for a missing one."""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from databricks.sdk.errors import NotFound
from databricks.sdk.errors.base import DatabricksError

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake_workspace import jobs, sql
from fraudlake_workspace.client import asking

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.iam import ComplexValue, ServicePrincipal
    from databricks.sdk.service.jobs import BaseJob

    from fraudlake.settings import Settings

_AccessCheck = tuple[str, Callable[[], str], str]
"""The subject of a check, a function that raises if it fails, and the remedy."""
_ON_CATALOG = ("USE_CATALOG",)
_ON_SCHEMA = ("USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE", "CREATE_MODEL")
_ON_LANDING = ("READ_VOLUME",)
_ON_CHECKPOINTS = ("READ_VOLUME", "WRITE_VOLUME")
# MLflow's registry lets the owner add versions and set aliases; ALL PRIVILEGES does not include MANAGE.
_ON_MODEL = ("EXECUTE", "MANAGE")
_EVERYBODY = "account users"
_EVERYBODY_HERE = "users"
"""The group of all identities of a workspace, which Unity Catalog does not know."""
_MAY_QUERY = {"CAN_USE", "CAN_MONITOR", "CAN_MANAGE", "IS_OWNER"}
# The API has no field for it. Databricks' buckets have such names on AWS; for other clouds no example is known.
_DEFAULT_STORAGE = re.compile(r"\w+://([^/@]*@)?dbstorage")


@dataclass(frozen=True)
class CheckResult:
    """The result of a check: its subject, whether it passed, the observation, and the remedy if it failed."""

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
    """Check identity, catalog, schema, volumes, warehouse, secret, service principal, groups and jobs, in this order.

    Args:
        client: the workspace.
        settings: the settings of the lake, with its secret.
        warehouse: name or id of the SQL warehouse; None: any.
        service_principal: application id that the bundle's targets staging and prod run as. Its effective rights on
            catalog, schema, volumes, model, warehouse and secret are checked, too.
        groups: groups to which these targets grant rights, and whose members query the warehouse.

    Raises:
        UsageError: ``service_principal`` is not an application id.
        FraudlakeError: the workspace does not answer, or refuses the credentials.
    """
    if service_principal is not None:
        _require_application_id(service_principal)
    with asking(client, "identity"):
        me = client.current_user.me()
    with asking(client, "jobs"):
        deployed = jobs.deployed(client, settings)
    name = str(me.user_name)

    def principals() -> list[str]:
        return _principals(name, me.groups)

    yield CheckResult("identity", True, f"{name} at {client.config.host}")

    catalog = str(settings.catalog)
    schema = str(settings.schema_name)
    full = f"{catalog}.{schema}"
    checks: list[_AccessCheck] = [
        (
            f"catalog {catalog}",
            partial(_granted, client, "CATALOG", catalog, _ON_CATALOG, principals),
            f"give the name of an existing catalog, or GRANT USE CATALOG ON CATALOG {catalog} TO `{name}`",
        ),
        (
            f"storage of catalog {catalog}",
            partial(_reachable, client, catalog, deployed),
            "leave out the jobs on clusters, or deploy into a catalog whose storage is your own",
        ),
        (
            f"schema {full}",
            partial(_granted, client, "SCHEMA", full, _ON_SCHEMA, principals),
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
    if service_principal is not None:
        checks += _service_principal_checks(
            client, settings, service_principal, _model_name(settings, deployed), warehouse
        )
    checks += _group_checks(client, groups, warehouse)
    checks += _trigger_checks(client, deployed)
    for what, run_check, remedy in checks:
        try:
            with asking(client, what):
                yield CheckResult(what, True, run_check())
        except FraudlakeError as error:
            yield CheckResult(what, False, str(error).removeprefix(f"{what}: "), remedy)


def _service_principal_checks(
    client: WorkspaceClient, settings: Settings, number: str, model: str, warehouse: str | None
) -> Iterator[_AccessCheck]:
    """Check that a service principal exists, and its effective rights for the bundle's jobs."""
    principal = cache(partial(_service_principal, client, number))

    def principals() -> list[str]:
        return _principals(number, principal().groups)

    remedy = "give the application id of a principal of this workspace: databricks service-principals list"
    yield f"service principal {number}", lambda: str(principal().display_name), remedy

    catalog = str(settings.catalog)
    schema = f"{settings.catalog}.{settings.schema_name}"
    landing, checkpoints = (_volume(str(path)) for path in (settings.landing_path, settings.checkpoints_path))
    for kind, name, wanted, granting in (
        ("CATALOG", catalog, _ON_CATALOG, "GRANT USE CATALOG"),
        ("SCHEMA", schema, _ON_SCHEMA, f"deploy the bundle, which grants it, or GRANT {_spelled(_ON_SCHEMA)}"),
        ("VOLUME", landing, _ON_LANDING, f"deploy the bundle, which grants it, or GRANT {_spelled(_ON_LANDING)}"),
        ("VOLUME", checkpoints, _ON_CHECKPOINTS, f"deploy the bundle, or GRANT {_spelled(_ON_CHECKPOINTS)}"),
        ("MODEL", model, _ON_MODEL, "deploy the bundle, or GRANT ALL PRIVILEGES and then GRANT MANAGE"),
    ):
        yield (
            f"{number} on {kind.lower()} {name}",
            partial(_granted, client, kind, name, wanted, principals),
            f"{granting} ON {kind} {name} TO `{number}`",
        )
    yield (
        f"{number} on the warehouse",
        lambda: _may_query(client, warehouse, principals()),
        "alerts query as this principal: give it CAN USE (SQL Warehouses, Permissions), or name another --warehouse",
    )
    if settings.kafka_secret:
        scope, _, _ = settings.kafka_secret.partition("/")
        yield (
            f"{number} on secret scope {scope}",
            lambda: _may_read_secrets(client, scope, principals()),
            f"databricks secrets put-acl {scope} {number} READ",
        )


def _group_checks(client: WorkspaceClient, groups: Sequence[str], warehouse: str | None) -> Iterator[_AccessCheck]:
    remedy = (
        "make it in the account's console and assign it to this workspace, or name other groups with --var readers=…, "
        "--var analysts=… and --var engineers=…"
    )
    for group in groups:
        yield f"group {group}", partial(_account_group, client, group), remedy
        yield (
            f"group {group} on the warehouse",
            partial(_may_query, client, warehouse, [group]),
            "its members see neither dashboard nor desk: give it CAN USE (SQL Warehouses, Permissions)",
        )


def _trigger_checks(client: WorkspaceClient, deployed: Sequence[BaseJob]) -> Iterator[_AccessCheck]:
    """Check the jobs that wait for files."""
    for job in deployed:
        if job.settings and job.settings.trigger and job.settings.trigger.file_arrival:
            yield (
                f"trigger of {job.settings.name}",
                partial(_fires, client, job),
                "enable file events on the folder's external location, or leave ingest_trigger at its default",
            )


def _fires(client: WorkspaceClient, job: BaseJob) -> str:
    """Check that new files start the job that reads them.

    Databricks documentation, "Trigger jobs when new files arrive": without file events a location of more than 10,000
    files cannot be monitored. Files stay in the landing folder.
    """
    if jobs.parameter(job, "--source") == "kafka":
        raise FraudlakeError("it waits for files, and the source is kafka")
    state = client.jobs.get(int(job.job_id or 0)).trigger_state
    uses = state.file_arrival.using_file_events if state and state.file_arrival else None
    if uses is None:
        return "waits for files; whether it uses file events is known once it has looked for some"
    if not uses:
        raise FraudlakeError("it lists the folder, which has no file events, and ends at 10,000 landed files")
    return "waits for files, by file events"


def _model_name(settings: Settings, deployed: Sequence[BaseJob]) -> str:
    """Return the model's name from the parameters of the jobs, to which the bundle's targets add a prefix."""
    names = (jobs.parameter(job, "--model-name") for job in deployed)
    return next((name for name in names if name is not None), settings.model_name)


def _reachable(client: WorkspaceClient, catalog: str, deployed: Sequence[BaseJob]) -> str:
    """Check that the catalog's storage can be reached from the compute of the deployed jobs.

    Databricks documentation, "Default storage": all access to it requires serverless compute.
    """
    storage = client.catalogs.get(catalog).storage_root or ""
    if not _DEFAULT_STORAGE.match(storage):
        return storage or "that of the metastore"
    clusters = [str(job.settings.name) for job in deployed if job.settings and job.settings.job_clusters]
    if clusters:
        raise FraudlakeError(f"is default storage, which only serverless compute reaches, not {', '.join(clusters)}")
    return "is default storage, which only serverless compute reaches: no job can run on a cluster"


def _may_query(client: WorkspaceClient, warehouse: str | None, principals: Sequence[str]) -> str:
    """Check that one of the principals, or everybody, has ``CAN USE`` on the warehouse."""
    chosen = sql.warehouse(client, warehouse)
    entries = client.warehouses.get_permissions(str(chosen.id)).access_control_list or []
    for entry in entries:
        who = entry.group_name or entry.service_principal_name or entry.user_name
        levels = {permission.permission_level for permission in entry.all_permissions or []}
        if who in (*principals, _EVERYBODY_HERE) and any(level and level.value in _MAY_QUERY for level in levels):
            return f"may use {chosen.name}"
    raise FraudlakeError(f"lacks CAN USE on {chosen.name}")


def _principals(name: str, groups: Sequence[ComplexValue] | None) -> list[str]:
    """Return the names under which an identity can hold privileges: its own and its groups'."""
    return [name, *(str(group.display) for group in groups or ()), _EVERYBODY]


def _granted(
    client: WorkspaceClient, kind: str, name: str, wanted: tuple[str, ...], principals: Callable[[], list[str]]
) -> str:
    """Check that the principals (an identity and its groups) together have all ``wanted`` privileges on a securable.

    The API lists the privileges of one principal at a time, so each principal is asked until nothing is missing. Unity
    Catalog does not know groups of a single workspace, such as ``admins``: they can have no privilege.
    """
    owner = _owner(client, kind, name)
    names = principals()
    if owner in names:
        return f"owned by {owner}"
    missing = set(wanted)
    for principal in names:
        privileges = _privileges(client, kind, name, principal)
        missing -= (missing - {"MANAGE"}) | privileges if "ALL_PRIVILEGES" in privileges else privileges
        if not missing:
            return f"may {_spelled(wanted)}"
    raise FraudlakeError(f"lacks {_spelled(sorted(missing))}")


def _owner(client: WorkspaceClient, kind: str, name: str) -> str | None:
    if kind == "CATALOG":
        return client.catalogs.get(name).owner
    if kind == "SCHEMA":
        return client.schemas.get(name).owner
    return client.volumes.read(name).owner if kind == "VOLUME" else client.registered_models.get(name).owner


def _volume(path: str) -> str:
    """Return the full name of the volume that a path ``/Volumes/catalog/schema/volume/…`` is in."""
    return ".".join(path.split("/")[2:5])


def _privileges(client: WorkspaceClient, kind: str, name: str, principal: str) -> set[str]:
    """Return the privileges of a principal on a securable; none if Unity Catalog does not know the principal."""
    securable = "FUNCTION" if kind == "MODEL" else kind  # the API's type for a registered model
    try:
        assignments = client.grants.get_effective(securable, name, principal=principal).privilege_assignments or []
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


def _service_principal(client: WorkspaceClient, application_id: str) -> ServicePrincipal:
    named = list(client.service_principals.list(filter=f'applicationId eq "{application_id}"'))
    if not named:
        raise FraudlakeError("it does not exist, or is not assigned to this workspace")
    if named[0].active is False:
        raise FraudlakeError(f"{named[0].display_name} is not active")
    return named[0]


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
    """Check write access by writing a small file and removing it."""
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


def _may_read_secrets(client: WorkspaceClient, scope: str, principals: list[str]) -> str:
    if not any(acl.principal in principals for acl in client.secrets.list_acls(scope)):
        raise FraudlakeError("lacks READ")
    return "may READ"


def _spelled(privileges: tuple[str, ...] | list[str]) -> str:
    return ", ".join(privilege.replace("_", " ") for privilege in privileges)
