"""A workspace on this machine: answers over HTTP what the Databricks CLI asks to validate, deploy and destroy."""

from __future__ import annotations

import base64
import email
import json
import re
import threading
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import unquote

from tests.workspace_http import UNAUTHENTICATED, Reply, Request

from .rendering import USER

WAREHOUSE = {"id": "id-of-Serverless Starter Warehouse", "name": "Serverless Starter Warehouse"}
POLICY = {"policy_id": "id-of-Job Compute", "name": "Job Compute"}
_NAMED = ("schemas", "volumes", "models")
Answer = tuple[int, Any]


class Workspace:
    """What is deployed: ``objects`` by kind and id, ``files`` by path; ``changes`` and ``unanswered`` requests.

    A change is a request other than GET: method, path and JSON body.
    """

    def __init__(self, application_id: str | None = None) -> None:
        """Open an empty workspace for a person, or for a service principal."""
        self.user = {"userName": application_id or USER["userName"], "id": "7"}
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.rights: dict[str, list[dict[str, Any]]] = {}
        self.files: dict[str, bytes] = {}
        self.folders = {"/": 0}
        self.changes: list[tuple[str, str, Any]] = []
        self.unanswered: list[str] = []
        self._numbers = count(1000)
        self._lock = threading.Lock()

    def reply_to(self, request: Request) -> Reply:
        """Answer one request, one at a time."""
        if request.path.startswith("/api/") and not request.is_authorized:
            return UNAUTHENTICATED
        with self._lock:
            return Reply(*self._answer(request))

    def _answer(self, request: Request) -> Answer:
        if request.method != "GET" and request.content_type.startswith("application/json"):
            self.changes.append((request.method, request.path, json.loads(request.data or b"{}")))
        for wanted, pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, request.path)
            if match and wanted == request.method:
                return handler(self, *map(unquote, match.groups()), {**request.query, "": _content(request)})
        self.unanswered.append(f"{request.method} {request.path}")
        return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": f"{request.method} {request.path}"}

    def me(self, asked: dict[str, Any]) -> Answer:
        return 200, self.user

    def warehouses(self, asked: dict[str, Any]) -> Answer:
        return 200, {"warehouses": [WAREHOUSE, *self.objects.get("warehouses", {}).values()]}

    def policies(self, asked: dict[str, Any]) -> Answer:
        return 200, {"policies": [POLICY]}

    def metadata(self, asked: dict[str, Any]) -> Answer:
        return 200, {"oidc_endpoint": "http://127.0.0.1/oidc", "workspace_id": "1"}

    def nothing(self, asked: dict[str, Any]) -> Answer:
        return 200, {}

    # Files

    def status(self, asked: dict[str, Any]) -> Answer:
        path = asked["path"]
        if path in self.folders:
            return 200, {"object_type": "DIRECTORY", "path": path, "object_id": self.folders[path]}
        if path in self.files:
            return 200, {"object_type": "FILE", "path": path, "object_id": 1}
        return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"Path ({path}) doesn't exist."}

    def make_folder(self, asked: dict[str, Any]) -> Answer:
        parts = asked[""]["path"].split("/")
        for end in range(2, len(parts) + 1):
            self.folders.setdefault("/".join(parts[:end]), next(self._numbers))
        return 200, {}

    def write(self, path: str, asked: dict[str, Any]) -> Answer:
        return self._write("/" + path, asked[""], asked.get("overwrite") == "true")

    def upload(self, asked: dict[str, Any]) -> Answer:
        given = asked[""]
        return self._write(given["path"].decode(), given["content"], given.get("overwrite") == b"true")

    def _write(self, path: str, content: bytes, overwrites: bool) -> Answer:
        if path.rpartition("/")[0] not in self.folders:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"no folder for {path}"}
        if path in self.files and not overwrites:
            return 409, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": path}
        self.files[path] = content
        return 200, {}

    def read(self, asked: dict[str, Any]) -> Answer:
        path = asked["path"]
        if path not in self.files:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": path}
        if asked.get("direct_download") == "true":
            return 200, self.files[path]
        return 200, {"content": base64.b64encode(self.files[path]).decode()}

    def delete_path(self, asked: dict[str, Any]) -> Answer:
        path = asked[""]["path"]
        if path not in self.files and path not in self.folders:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": path}
        for contents in (self.files, self.folders):
            for name in [name for name in contents if name == path or name.startswith(f"{path}/")]:
                del contents[name]  # type: ignore[attr-defined]
        return 200, {}

    # Resources

    def create(self, kind: str, asked: dict[str, Any]) -> Answer:
        given = asked[""]
        if kind in _NAMED:
            of = (given["catalog_name"], given.get("schema_name"), given["name"])
            key = ".".join(part for part in of if part)
            made = {**given, "full_name": key}
        elif kind == "jobs":
            key = str(next(self._numbers))
            made = {"job_id": int(key), "settings": given}
        elif kind == "pipelines":
            key = uuid.uuid4().hex
            made = {"pipeline_id": key, "name": given["name"], "spec": {**given, "id": key}, "state": "IDLE"}
        elif kind == "experiments":
            key = str(next(self._numbers))
            name = given["name"].removeprefix("/Workspace")
            made = {"experiment_id": key, "experiment": {**given, "experiment_id": key, "name": name}}
        elif kind == "apps":
            key = given["name"]
            made = {**given, "id": uuid.uuid4().hex, "compute_status": {"state": "STOPPED"}}
        else:
            key = uuid.uuid4().hex
            made = {**given, "id": key, "dashboard_id": key, "etag": "1", "lifecycle_state": "ACTIVE"}
        self.objects.setdefault(kind, {})[key] = made
        return 200, made

    def get(self, kind: str, key: str, asked: dict[str, Any]) -> Answer:
        stored = self.objects.get(kind, {}).get(key)
        missing = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"there is no {kind} {key}"}
        return (200, stored) if stored else (404, missing)

    def reset(self, asked: dict[str, Any]) -> Answer:
        self.objects["jobs"][str(asked[""]["job_id"])]["settings"] = asked[""]["new_settings"]
        return 200, {}

    def edit(self, key: str, asked: dict[str, Any]) -> Answer:
        self.objects["pipelines"][key]["spec"] = {**asked[""], "id": key}
        return 200, {}

    def delete(self, kind: str, key: str, asked: dict[str, Any]) -> Answer:
        reply = self.get(kind, key, asked)
        self.objects.get(kind, {}).pop(key, None)
        return reply if reply[0] == 404 else (200, {})

    def start(self, key: str, asked: dict[str, Any]) -> Answer:
        self.objects["apps"][key]["compute_status"] = {"state": "ACTIVE"}
        return 200, self.objects["apps"][key]

    def deploy(self, key: str, *asked: Any) -> Answer:
        return 200, {"deployment_id": "1", "status": {"state": "SUCCEEDED"}}

    def publish(self, key: str, asked: dict[str, Any]) -> Answer:
        self.objects["dashboards"][key]["published"] = {"embed_credentials": False, **asked[""]}
        return 200, self.objects["dashboards"][key]["published"]

    def published(self, key: str, asked: dict[str, Any]) -> Answer:
        return 200, self.objects["dashboards"][key]["published"]

    # Rights

    def permit(self, of: str, asked: dict[str, Any]) -> Answer:
        self.rights[of] = [
            {**{name: value for name, value in rule.items() if name != "permission_level"}, "all_permissions": [rule]}
            for rule in asked[""]["access_control_list"]
        ]
        return 200, {"object_id": of, "access_control_list": self.rights[of]}

    def permitted(self, of: str, asked: dict[str, Any]) -> Answer:
        return 200, {"object_id": of, "access_control_list": self.rights.get(of, [])}

    def grant(self, of: str, asked: dict[str, Any]) -> Answer:
        privileges = {granted["principal"]: set(granted["privileges"]) for granted in self.rights.get(of, [])}
        for change in asked[""]["changes"]:
            left = privileges.get(change["principal"], set()) - set(change.get("remove", []))
            privileges[change["principal"]] = left | set(change.get("add", []))
        self.rights[of] = [{"principal": name, "privileges": sorted(some)} for name, some in privileges.items() if some]
        return self.granted(of, asked)

    def granted(self, of: str, asked: dict[str, Any]) -> Answer:
        return 200, {"privilege_assignments": self.rights.get(of, [])}


def _content(request: Request) -> Any:
    """The body: bytes of a file, the fields of a form, or JSON."""
    if "import-file" in request.path:
        return request.data
    if not request.content_type.startswith("multipart/form-data"):
        return json.loads(request.data or b"{}")
    form = email.message_from_bytes(f"Content-Type: {request.content_type}\r\n\r\n".encode() + request.data)
    return {part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in form.walk()}


def _of_kind(method: Callable[..., Answer], kind: str, key: str | None = None) -> Callable[..., Answer]:
    """Bind a method to a kind; the object's key is in the path, or the field ``key`` of query or body."""

    def handler(workspace: Workspace, *arguments: Any) -> Answer:
        if key is not None:
            asked = arguments[-1]
            arguments = (str(asked.get(key) or asked[""][key]), asked)
        return method(workspace, kind, *arguments)

    return handler


_ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("GET", "/api/2.0/preview/scim/v2/Me", Workspace.me),
    ("GET", "/api/2.0/sql/warehouses", Workspace.warehouses),
    ("GET", "/api/2.0/policies/clusters/list", Workspace.policies),
    ("POST", "/telemetry-ext", Workspace.nothing),
    ("GET", "/.well-known/databricks-config", Workspace.metadata),
    ("GET", "/api/2.0/workspace/get-status", Workspace.status),
    ("POST", "/api/2.0/workspace/mkdirs", Workspace.make_folder),
    ("POST", "/api/2.0/workspace-files/import-file/+(.+)", Workspace.write),
    ("POST", "/api/2.0/workspace/import", Workspace.upload),  # since CLI 1.21, instead of the one above
    ("GET", "/api/2.0/workspace/export", Workspace.read),
    ("POST", "/api/2.0/workspace/delete", Workspace.delete_path),
    ("POST", "/api/2.2/jobs/create", _of_kind(Workspace.create, "jobs")),
    ("GET", "/api/2.2/jobs/get", _of_kind(Workspace.get, "jobs", "job_id")),
    ("POST", "/api/2.2/jobs/reset", Workspace.reset),
    ("PUT", "/api/2.0/pipelines/([^/]+)", Workspace.edit),
    ("POST", "/api/2.2/jobs/delete", _of_kind(Workspace.delete, "jobs", "job_id")),
    ("POST", "/api/2.0/mlflow/experiments/create", _of_kind(Workspace.create, "experiments")),
    ("GET", "/api/2.0/mlflow/experiments/get", _of_kind(Workspace.get, "experiments", "experiment_id")),
    ("POST", "/api/2.0/mlflow/experiments/delete", _of_kind(Workspace.delete, "experiments", "experiment_id")),
    ("POST", "/api/2.0/apps/([^/]+)/start", Workspace.start),
    ("POST", "/api/2.0/apps/([^/]+)/deployments", Workspace.deploy),
    ("GET", "/api/2.0/apps/([^/]+)/deployments/(.+)", Workspace.deploy),
    ("POST", "/api/2.0/lakeview/dashboards/([^/]+)/published", Workspace.publish),
    ("GET", "/api/2.0/lakeview/dashboards/([^/]+)/published", Workspace.published),
    ("PUT", "/api/2.0/permissions/(.+)", Workspace.permit),
    ("GET", "/api/2.0/permissions/(.+)", Workspace.permitted),
    ("PATCH", "/api/2.1/unity-catalog/permissions/(.+)", Workspace.grant),
    ("GET", "/api/2.1/unity-catalog/permissions/(.+)", Workspace.granted),
]
for _kind, _path in {
    "alerts": "/api/2.0/alerts",
    "apps": "/api/2.0/apps",
    "pipelines": "/api/2.0/pipelines",
    "dashboards": "/api/2.0/lakeview/dashboards",
    "warehouses": "/api/2.0/sql/warehouses",
    **{kind: f"/api/2.1/unity-catalog/{kind}" for kind in _NAMED},
}.items():
    _ROUTES.append(("POST", _path, _of_kind(Workspace.create, _kind)))
    _ROUTES.append(("GET", f"{_path}/([^/]+)", _of_kind(Workspace.get, _kind)))
    _ROUTES.append(("DELETE", f"{_path}/([^/]+)", _of_kind(Workspace.delete, _kind)))
