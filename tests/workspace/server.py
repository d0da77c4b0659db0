"""A Databricks workspace's HTTP API, as far as fraudlake uses it: strict about methods, paths and bodies."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from fraudlake.lake import contents
from fraudlake.tables import View
from tests import workspace_http
from tests.workspace_http import UNAUTHENTICATED, Reply, Request

ME = "jane@example.com"
APPLICATION_ID = "11111111-2222-3333-4444-555555555555"
Answer = tuple[int, Any]


def a_task(catalog: str, schema: str) -> dict[str, Any]:
    """A job's task as the bundle deploys it."""
    parameters = ["--catalog", catalog, "--schema", schema, "ingest"]
    wheel = {"package_name": "fraudlake", "entry_point": "fraudlake", "parameters": parameters}
    return {"task_key": "ingest", "python_wheel_task": wheel}


@dataclass
class Workspace:
    """What the workspace holds and does; a test changes it, and reads what was asked for."""

    host: str = ""
    schema: str = "fraud"
    """The lake's schema, in the catalog ``main``."""
    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(
        default_factory=lambda: {"/Volumes/main/fraud/landing", "/Volumes/main/fraud/checkpoints"}
    )
    read_only: bool = False
    grants: dict[tuple[str, str], dict[str, list[str]]] = field(
        default_factory=lambda: {
            ("CATALOG", "main"): {"analysts": ["USE_CATALOG"]},
            ("SCHEMA", "main.fraud"): {
                ME: ["USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE", "CREATE_MODEL"],
                APPLICATION_ID: ["USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE", "CREATE_MODEL"],
            },
            ("VOLUME", "main.fraud.landing"): {APPLICATION_ID: ["READ_VOLUME", "WRITE_VOLUME"]},
            ("VOLUME", "main.fraud.checkpoints"): {APPLICATION_ID: ["READ_VOLUME", "WRITE_VOLUME"]},
            ("FUNCTION", "main.fraud.fraud_model"): {APPLICATION_ID: ["ALL_PRIVILEGES", "MANAGE"]},
        }
    )
    """Principals with their privileges by kind and name. The service principal has those that the bundle grants."""
    owners: dict[str, str] = field(default_factory=dict)
    """Owner by name, if it is not ``admins``."""
    warehouses: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"id": "w1", "name": "Asleep", "state": "STOPPED"},
            {"id": "w2", "name": "Shared", "state": "RUNNING"},
        ]
    )
    storage: str | None = "s3://bucket/lake"
    """Storage of the catalogs."""
    warehouse_users: dict[str, str] = field(
        default_factory=lambda: {"fraudlake-readers": "CAN_USE", APPLICATION_ID: "CAN_MANAGE", "viewers": "CAN_VIEW"}
    )
    """Level by principal, on each warehouse."""
    uses_file_events: bool | None = None
    """What the triggers of jobs say."""
    secrets: dict[str, list[str]] = field(default_factory=lambda: {"fraudlake": ["kafka"]})
    acls: dict[str, list[str]] = field(default_factory=lambda: {"fraudlake": [APPLICATION_ID]})
    """Who may read the secrets of a scope."""
    values: dict[tuple[str, str], str] = field(default_factory=dict)
    """A secret's value by scope and key."""
    groups: dict[str, str] = field(
        default_factory=lambda: {"fraudlake-readers": "Group", "fraudlake-local": "WorkspaceGroup"}
    )
    """Kind by name: those of the account, and those of this workspace alone."""
    service_principals: dict[str, str] = field(default_factory=lambda: {APPLICATION_ID: "fraudlake prod"})
    """Name by application id."""
    principals: set[str] = field(default_factory=lambda: {ME, APPLICATION_ID, "analysts", "account users"})
    """Whom Unity Catalog knows."""
    jobs: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"job_id": 7, "settings": {"name": "payroll", "tags": {}}},
            {
                "job_id": 11,
                "settings": {
                    "name": "[dev jane] fraudlake ingest and detect",
                    "tags": {"project": "fraudlake", "target": "dev"},
                    "tasks": [a_task("main", "fraud")],
                },
            },
        ]
    )
    runs: list[dict[str, Any]] = field(default_factory=list)
    """As ``runs/get`` shows them, the newest first."""
    outputs: dict[int, str] = field(default_factory=dict)
    """Error by the run id of a task."""
    prints: str = ""
    """What every task prints."""
    fails_with: str | None = None
    """The error that the next run's task ends with."""
    alerts: list[str] = field(default_factory=lambda: ["2", "4", "3"])
    statements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    faults: list[Callable[[str], Reply | None]] = field(default_factory=list)
    """Asked first, each until it gives an answer, which it then never gives again."""
    requests: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Requests that no workspace would take: a test fails if there are any."""

    def fail(self, path: str, status: int, body: Any = None, times: int = 1, **headers: str) -> None:
        """Let the next requests of a path fail."""
        left = [times]

        def fault(asked: str) -> Reply | None:
            if path not in asked or not left[0]:
                return None
            left[0] -= 1
            return Reply(status, body, tuple((name.replace("_", "-"), value) for name, value in headers.items()))

        self.faults.append(fault)

    def reply_to(self, request: Request) -> Reply:
        self.requests.append(f"{request.method} {request.path}")
        for fault in self.faults:
            reply = fault(request.path)
            if reply is not None:
                return reply
        if request.path.startswith(("/.well-known/", "/oidc/")):
            return Reply(404)  # the SDK asks what kind of host it is
        if not request.is_authorized:
            return UNAUTHENTICATED
        return Reply(*self.answer(request.method, request.path, request.query, request.body))

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        for (wanted, pattern), respond in _ROUTES.items():
            match = re.fullmatch(pattern, path)
            if match and wanted == method:
                try:
                    return respond(self, *match.groups(), query=query, body=body)
                except (KeyError, AssertionError, TypeError, ValueError) as error:
                    self.unknown.append(f"{method} {path} {query} {body}: {error!r}")
                    return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": repr(error)}
        self.unknown.append(f"{method} {path}")
        return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": path}


def _takes(query: dict[str, str], *names: str) -> None:
    assert set(query) <= set(names), f"unknown parameters {sorted(set(query) - set(names))}"


def _me(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query)
    return 200, {"userName": ME, "groups": [{"display": "users"}, {"display": "analysts"}]}


def _groups(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    name = _filtered(query, "displayName")
    there = [{"id": "1", "displayName": name, "meta": {"resourceType": workspace.groups.get(name)}}]
    return 200, {"Resources": there} if name in workspace.groups and query["startIndex"] == "1" else {}


def _service_principals(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    number = _filtered(query, "applicationId")
    named = [
        {
            "id": "2",
            "applicationId": number,
            "displayName": name,
            "active": True,
            "groups": [{"display": "analysts"}],
        }
        for application, name in workspace.service_principals.items()
        if application == number and query["startIndex"] == "1"
    ]
    return 200, {"Resources": named}


def _filtered(query: dict[str, str], attribute: str) -> str:
    _takes(query, "filter", "startIndex", "count")
    match = re.fullmatch(f'{attribute} eq "([^"]*)"', query["filter"])
    assert match
    return match[1]


def _catalogs(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query, "max_results")
    names = [name for kind, name in workspace.grants if kind == "CATALOG"]
    return 200, {"catalogs": [{"name": name, "catalog_type": "MANAGED_CATALOG"} for name in names]}


def _securable(workspace: Workspace, kind: str, name: str, *, query: dict[str, str], body: None) -> Answer:
    _takes(query)
    securable = {"catalogs": "CATALOG", "schemas": "SCHEMA", "volumes": "VOLUME", "models": "FUNCTION"}[kind]
    if (securable, name) not in workspace.grants:
        code = f"{securable}_DOES_NOT_EXIST"
        return 404, {"error_code": code, "message": f"{securable.title()} '{name}' does not exist."}
    storage = {"storage_root": workspace.storage} if kind == "catalogs" else {}
    return 200, {"name": name.rpartition(".")[2], "owner": workspace.owners.get(name, "admins"), **storage}


def _effective(workspace: Workspace, kind: str, name: str, *, query: dict[str, str], body: None) -> Answer:
    _takes(query, "principal")
    if query["principal"] not in workspace.principals:
        message = f"Could not find principal with name {query['principal']}"
        return 404, {"error_code": "PRINCIPAL_DOES_NOT_EXIST", "message": message}
    privileges = workspace.grants[kind, name].get(query["principal"], [])
    granted = [{"privilege": privilege} for privilege in privileges]
    return 200, {"privilege_assignments": [{"principal": query["principal"], "privileges": granted}] if granted else []}


def _tables(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    """The tables and views of the schema, in two pages."""
    _takes(query, "catalog_name", "schema_name", "max_results", "page_token")
    assert (query["catalog_name"], query["schema_name"]) == ("main", workspace.schema)
    known = [
        {
            "name": table.name,
            "table_type": "VIEW" if isinstance(table, View) else "MANAGED",
            "columns": [{"name": name} for name in table.column_names],
        }
        for table in (*contents.TABLES, *contents.VIEWS)
    ]
    if "page_token" not in query:
        return 200, {"tables": known[:5], "next_page_token": "2"}
    return 200, {"tables": known[5:]}


def _folder(workspace: Workspace, path: str, *, query: dict[str, str], body: None) -> Answer:
    return (200 if unquote(path) in workspace.folders else 404), None


def _make_folder(workspace: Workspace, path: str, *, query: dict[str, str], body: None) -> Answer:
    _takes(query)
    workspace.folders.add(unquote(path))
    return 204, None


def _put_file(workspace: Workspace, path: str, *, query: dict[str, str], body: bytes) -> Answer:
    _takes(query, "overwrite")
    assert isinstance(body, bytes) and unquote(path).startswith("/Volumes/")
    if workspace.read_only:
        return 403, {"error_code": "PERMISSION_DENIED", "message": "User does not have WRITE VOLUME on Volume."}
    workspace.files[unquote(path)] = body
    return 204, None


def _delete_file(workspace: Workspace, path: str, *, query: dict[str, str], body: None) -> Answer:
    _takes(query)
    if workspace.files.pop(unquote(path), None) is None:
        return 404, {"error_code": "NOT_FOUND", "message": "The file being accessed is not found."}
    return 204, None


def _warehouses(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query)
    return 200, {"warehouses": workspace.warehouses}


def _warehouse_permissions(workspace: Workspace, number: str, *, query: dict[str, str], body: None) -> Answer:
    _takes(query)
    assert number in {warehouse["id"] for warehouse in workspace.warehouses}
    return 200, {
        "access_control_list": [
            {
                "service_principal_name" if name == APPLICATION_ID else "group_name": name,
                "all_permissions": [{"permission_level": level, "inherited": False}],
            }
            for name, level in workspace.warehouse_users.items()
        ]
    }


def _secrets(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query, "scope")
    if query["scope"] not in workspace.secrets:
        return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"Scope {query['scope']} does not exist!"}
    return 200, {"secrets": [{"key": key} for key in workspace.secrets[query["scope"]]]}


def _acls(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query, "scope")
    return 200, {"items": [{"principal": name, "permission": "READ"} for name in workspace.acls[query["scope"]]]}


def _secret(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query, "scope", "key")
    value = workspace.values.get((query["scope"], query["key"]))
    if value is None:
        return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Secret does not exist."}
    return 200, {"key": query["key"], "value": base64.b64encode(value.encode()).decode()}


def _jobs(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query, "expand_tasks", "page_token")
    assert query["expand_tasks"] == "true"
    # Two pages, the first one of a single job.
    if "page_token" not in query:
        return 200, {"jobs": workspace.jobs[:1], "has_more": True, "next_page_token": "2"}
    return 200, {"jobs": workspace.jobs[1:], "has_more": False}


def _job(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query, "job_id")
    (job,) = [job for job in workspace.jobs if str(job["job_id"]) == query["job_id"]]
    uses = workspace.uses_file_events
    return 200, job if uses is None else {**job, "trigger_state": {"file_arrival": {"using_file_events": uses}}}


def _runs(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query, "job_id", "limit", "expand_tasks")
    assert query["expand_tasks"] == "true"
    runs = [run for run in workspace.runs if str(run["job_id"]) == query["job_id"]]
    return 200, {"runs": runs[: int(query["limit"])], "has_more": False}


def _run(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    """Each look finds the run one step further: pending, running, ended."""
    _takes(query, "run_id")
    (run,) = [run for run in workspace.runs if str(run["run_id"]) == query["run_id"]]
    if run["state"]["life_cycle_state"] == "PENDING":
        run["state"] = {"life_cycle_state": "RUNNING"}
    elif run["state"]["life_cycle_state"] == "RUNNING":
        failed = workspace.fails_with is not None
        run["state"] = {"life_cycle_state": "TERMINATED", "result_state": "FAILED" if failed else "SUCCESS"}
        run["end_time"] = run["start_time"] + 90_000
        if workspace.fails_with is not None:
            workspace.outputs[run["tasks"][0]["run_id"]] = workspace.fails_with
    run["tasks"][0]["state"] = run["state"]
    return 200, run


def _output(workspace: Workspace, *, query: dict[str, str], body: None) -> Answer:
    _takes(query, "run_id")
    number = int(query["run_id"])
    assert number in {task["run_id"] for run in workspace.runs for task in run["tasks"]}
    error = {"error": workspace.outputs[number]} if number in workspace.outputs else {}
    return 200, {**error, "logs": workspace.prints, "metadata": {"run_id": number}}


def _run_now(workspace: Workspace, *, query: dict[str, str], body: dict[str, Any]) -> Answer:
    assert set(body) == {"job_id"}
    assert body["job_id"] in [job["job_id"] for job in workspace.jobs]
    number = 500 + len(workspace.runs)
    workspace.runs.insert(0, a_run(number, body["job_id"], {"life_cycle_state": "PENDING"}, f"{workspace.host}/run"))
    return 200, {"run_id": number, "number_in_job": number}


def a_run(number: int, job: int, state: dict[str, str], url: str = "http://workspace/run") -> dict[str, Any]:
    """A run with one task, ``ingest``, as ``runs/get`` shows it."""
    return {
        "run_id": number,
        "job_id": job,
        "start_time": 1_772_841_600_000 + number,
        "end_time": 1_772_841_690_000 + number if state["life_cycle_state"] == "TERMINATED" else 0,
        "state": state,
        "run_page_url": f"{url}/{number}",
        "tasks": [{"run_id": number + 9000, "task_key": "ingest", "state": state, "start_time": 1_772_841_600_000}],
    }


def _statement(workspace: Workspace, *, query: dict[str, str], body: dict[str, Any]) -> Answer:
    assert set(body) == {
        *("statement", "warehouse_id", "catalog", "schema", "parameters", "wait_timeout", "on_wait_timeout"),
        *("disposition", "format"),
    }
    assert (body["disposition"], body["format"]) == ("INLINE", "JSON_ARRAY")
    awake = next((one for one in workspace.warehouses if one.get("state") == "RUNNING"), workspace.warehouses[0])
    assert (body["warehouse_id"], body["catalog"], body["schema"]) == (awake["id"], "main", workspace.schema)
    assert body["on_wait_timeout"] == "CONTINUE"
    given = {parameter["name"]: parameter["value"] for parameter in body["parameters"]}
    assert set(given) == set(re.findall(r"(?<!:):(\w+)", body["statement"]))
    workspace.statements.append((body["statement"], given))
    # The warehouse takes its time: the rows come with the second look.
    return 200, {"statement_id": f"s{len(workspace.statements)}", "status": {"state": "PENDING"}}


def _statement_result(workspace: Workspace, number: str, *, query: dict[str, str], body: None) -> Answer:
    statement, given = workspace.statements[int(number) - 1]
    rows = [[given["prefix"] + account] for account in workspace.alerts] if statement.startswith("SELECT") else []
    return 200, {"statement_id": f"s{number}", "status": {"state": "SUCCEEDED"}, "result": {"data_array": rows}}


_ROUTES: dict[tuple[str, str], Callable[..., Answer]] = {
    ("GET", "/api/2.0/preview/scim/v2/Me"): _me,
    ("GET", "/api/2.0/preview/scim/v2/Groups"): _groups,
    ("GET", "/api/2.0/preview/scim/v2/ServicePrincipals"): _service_principals,
    ("GET", r"/api/2\.1/unity-catalog/catalogs"): _catalogs,
    ("GET", r"/api/2\.1/unity-catalog/(catalogs|schemas|volumes|models)/([^/]+)"): _securable,
    ("GET", r"/api/2\.1/unity-catalog/effective-permissions/(CATALOG|SCHEMA|VOLUME|FUNCTION)/([^/]+)"): _effective,
    ("GET", r"/api/2\.1/unity-catalog/tables"): _tables,
    ("HEAD", r"/api/2\.0/fs/directories(/.+)"): _folder,
    ("PUT", r"/api/2\.0/fs/directories(/.+)"): _make_folder,
    ("PUT", r"/api/2\.0/fs/files(/.+)"): _put_file,
    ("DELETE", r"/api/2\.0/fs/files(/.+)"): _delete_file,
    ("GET", r"/api/2\.0/sql/warehouses"): _warehouses,
    ("GET", r"/api/2\.0/permissions/warehouses/([^/]+)"): _warehouse_permissions,
    ("POST", r"/api/2\.0/sql/statements/?"): _statement,
    ("GET", r"/api/2\.0/sql/statements/s(\d+)"): _statement_result,
    ("GET", r"/api/2\.0/secrets/list"): _secrets,
    ("GET", r"/api/2\.0/secrets/acls/list"): _acls,
    ("GET", r"/api/2\.0/secrets/get"): _secret,
    ("GET", r"/api/2\.2/jobs/list"): _jobs,
    ("GET", r"/api/2\.2/jobs/get"): _job,
    ("GET", r"/api/2\.2/jobs/runs/list"): _runs,
    ("GET", r"/api/2\.2/jobs/runs/get"): _run,
    ("GET", r"/api/2\.2/jobs/runs/get-output"): _output,
    ("POST", r"/api/2\.2/jobs/run-now"): _run_now,
}


def landed(workspace: Workspace, data: bytes) -> list[tuple[str, float]]:
    """Account and amount of each row of a landed file."""
    rows = pq.read_table(io.BytesIO(data)).to_pylist()
    return [(row["accountId"], row["amount"]) for row in rows]


@contextmanager
def serving(workspace: Workspace) -> Iterator[Workspace]:
    """Serve a workspace to clients with the token."""
    with workspace_http.serving(workspace.reply_to) as workspace.host:
        yield workspace
