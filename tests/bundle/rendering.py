"""Renders the bundle as the Databricks CLI would deploy it: a target's resources, every reference resolved."""

from __future__ import annotations

import copy
import graphlib
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
USER = {"userName": "someone@example.com", "short_name": "someone"}
APPLICATION_ID = "11111111-2222-3333-4444-555555555555"
GIVEN = {"notification_email": "fraud@example.com", "service_principal": APPLICATION_ID}
"""What a person must give to deploy staging or prod."""
JOB_PARAMETERS = {"from": "2026-03-07", "to": "2026-03-08", "model_version": "1"}
"""What a person gives a job that is started by hand."""
Task = tuple[str, str, list[str]]
"""Key of the job, key of the task, and what its command is called with."""
_DEFAULT_ROOT = "/Workspace/Users/${workspace.current_user.userName}/.bundle/${bundle.name}/${bundle.target}"
_FILES = "${workspace.root_path}/files"
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_PREFIXED = {
    "jobs": "name",
    "pipelines": "name",
    "dashboards": "display_name",
    "alerts": "display_name",
    "sql_warehouses": "name",
}
_PREFIXED_IN_CATALOG = ("schemas", "registered_models")


class UnresolvedError(Exception):
    """A reference leads nowhere, or a variable has no value."""


@dataclass(frozen=True)
class Rendered:
    """One target: its settings, and resources by kind and key."""

    target: dict[str, Any]
    resources: dict[str, dict[str, Any]]

    def jobs(self) -> dict[str, dict[str, Any]]:
        return self.resources["jobs"]


def includes_of(cloud: str) -> list[str]:
    """What a person adds to ``include`` for the jobs on clusters of a cloud: ``aws``, ``azure`` or ``gcp``."""
    return ["resources/clusters/*.job.yml", f"resources/clusters/{cloud}.yml"]


DESK = "resources/apps/desk.app.yml"
"""What a person adds to ``include`` for the desk."""
WITHOUT_A_PAUSE = "resources/continuous/ingest_and_detect_serverless.job.yml"
"""What a person adds to ``include`` for the serverless job that runs without a pause."""
REALTIME_PIPELINE = "resources/continuous/realtime_pipeline.pipeline.yml"
"""What a person adds to ``include`` for the fast lane as a pipeline."""


@cache
def source(cloud: str | None = None, has_desk: bool = False, is_endless: bool = False) -> dict[str, Any]:
    """``databricks.yml`` with what it includes, unresolved; not to be changed.

    Args:
        cloud: the cloud, where the jobs on clusters are wanted, too.
        has_desk: whether the desk is wanted, too.
        is_endless: whether what runs without a pause on serverless compute is wanted, too.
    """
    whole = _read(ROOT / "databricks.yml")
    whole["include"] += [*(includes_of(cloud) if cloud else []), *([DESK] if has_desk else [])]
    whole["include"] += [WITHOUT_A_PAUSE, REALTIME_PIPELINE] if is_endless else []
    for pattern in whole["include"]:
        for file in sorted(ROOT.glob(pattern)):
            _merge(whole, _read(file))
    return whole


def _read(file: Path) -> dict[str, Any]:
    """Read a file; each alias becomes a copy of its anchor, since merging changes what it merges into."""
    whole: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(file.read_text())))
    return whole


def render(
    target: str, cloud: str | None = None, has_desk: bool = False, is_endless: bool = False, **values: Any
) -> Rendered:
    """Resolve a target, variables as ``--var`` would give them, with the jobs on clusters if a cloud is named.

    Raises:
        UnresolvedError: names the reference or variable.
    """
    whole = copy.deepcopy(source(cloud, has_desk, is_endless))
    chosen = whole["targets"][target]
    _merge(whole["resources"], chosen.pop("resources", {}))
    presets = {"name_prefix": "", **chosen.get("presets", {})}
    if chosen["mode"] == "development":
        presets |= {"name_prefix": f"[dev {USER['short_name']}] ", "trigger_pause_status": "PAUSED"}
    _prefix(whole["resources"], presets["name_prefix"])
    variables = {
        name: _value(name, declared, chosen.get("variables", {}), values)
        for name, declared in whole["variables"].items()
    }
    known = {
        "bundle": {**whole["bundle"], "target": target},
        "workspace": {
            "current_user": USER,
            "root_path": _DEFAULT_ROOT,
            "file_path": _FILES,
            **chosen.get("workspace", {}),
        },
        "var": variables,
        "resources": whole["resources"],
    }
    resources = _resolve(whole["resources"], known)
    if "trigger_pause_status" in presets:
        _pause(resources, presets["trigger_pause_status"])
    return Rendered(_resolve(chosen, known), resources)


def tasks(target: str, cloud: str | None = None, **values: str) -> list[Task]:
    """Return the tasks of all jobs of a target, in the order in which each job runs them.

    Args:
        target: the bundle's target.
        cloud: the cloud, where the jobs on clusters are wanted, too.
        values: the bundle's variables, without defaults for those that must be given; and, by their names, parameters
            of the jobs, which otherwise have those of ``JOB_PARAMETERS``.

    Raises:
        UnresolvedError: a task names a parameter that its job does not declare, or waits for a task that is not there.
    """
    given = {name: value for name, value in values.items() if name in source(cloud)["variables"]}
    parameters = JOB_PARAMETERS | {name: value for name, value in values.items() if name not in given}
    return [
        (key, task["task_key"], _with_job_parameters(task["python_wheel_task"]["parameters"], job, parameters))
        for key, job in render(target, cloud, **given).jobs().items()
        for task in _in_order(job["tasks"])
    ]


def _in_order(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_key = {task["task_key"]: task for task in tasks}
    before = {key: [needed["task_key"] for needed in task.get("depends_on", [])] for key, task in by_key.items()}
    unknown = {key for keys in before.values() for key in keys} - set(by_key)
    if unknown:
        raise UnresolvedError(f"a task depends on {sorted(unknown)}, which are not tasks of its job")
    return [by_key[key] for key in graphlib.TopologicalSorter(before).static_order()]


def _with_job_parameters(wanted: list[str], job: dict[str, Any], given: dict[str, str]) -> list[str]:
    """Fill ``{{job.parameters.x}}`` in: what is given, otherwise the default that the job declares."""
    declared = {parameter["name"]: parameter["default"] for parameter in job.get("parameters", [])}

    def fill(match: re.Match[str]) -> str:
        if match[1] not in declared:
            raise UnresolvedError(f"{match[0]}: the job declares no such parameter")
        return str(given.get(match[1], declared[match[1]]))

    return [re.sub(r"\{\{job\.parameters\.(\w+)\}\}", fill, parameter) for parameter in wanted]


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif key == "job_clusters" and key in into:
            clusters = {cluster["job_cluster_key"]: cluster for cluster in into[key]}
            _merge(clusters, {cluster["job_cluster_key"]: cluster for cluster in value})
            into[key] = list(clusters.values())
        else:
            into[key] = value


def _prefix(resources: dict[str, dict[str, Any]], prefix: str) -> None:
    for kind, field in _PREFIXED.items():
        for resource in resources.get(kind, {}).values():
            resource[field] = prefix + resource[field]
    for kind in _PREFIXED_IN_CATALOG:
        for resource in resources[kind].values():
            resource["name"] = re.sub(r"\W+", "_", prefix).lstrip("_") + resource["name"]
    for resource in resources["experiments"].values():
        folder, _, name = resource["name"].rpartition("/")
        resource["name"] = f"{folder}/{prefix}{name}"


def _pause(resources: dict[str, dict[str, Any]], status: str) -> None:
    for resource in [*resources["jobs"].values(), *resources["alerts"].values()]:
        for start in ("schedule", "trigger", "continuous"):
            if start in resource:
                resource[start].setdefault("pause_status", status)
    for pipeline in resources["pipelines"].values():
        pipeline["continuous"] = False


def _value(name: str, declared: dict[str, Any], of_target: dict[str, Any], given: dict[str, str]) -> Any:
    if name in given:
        return given[name]
    chosen = of_target.get(name, declared.get("lookup") and declared)
    if isinstance(chosen, dict) and "lookup" in chosen:
        return f"id-of-{next(iter(chosen['lookup'].values()))}"
    if chosen is not None:
        return chosen
    if "default" not in declared:
        raise UnresolvedError(f"no value assigned to required variable {name}")
    return declared["default"]


def _resolve(node: Any, known: dict[str, Any], depth: int = 0) -> Any:
    if depth > 30:
        raise UnresolvedError(f"{node} refers to itself")
    if isinstance(node, dict):
        return {key: _resolve(value, known, depth) for key, value in node.items()}
    if isinstance(node, list):
        return [_resolve(value, known, depth) for value in node]
    if not isinstance(node, str):
        return node
    whole = _REFERENCE.fullmatch(node)
    if whole:  # keeps its type
        return _resolve(_look_up(whole[1], known), known, depth + 1)
    return _REFERENCE.sub(lambda match: str(_resolve(_look_up(match[1], known), known, depth + 1)), node)


def _look_up(path: str, known: dict[str, Any]) -> Any:
    node: Any = known
    for part in path.split("."):
        if isinstance(node, dict) and "schema_name" in node and part == "volume_path":
            # What the workspace says of a volume that it made.
            return f"/Volumes/{node['catalog_name']}/{node['schema_name']}/{node['name']}"
        if isinstance(node, dict) and "warehouse_type" in node and part == "id":
            return f"id-of-{node['name']}"
        if not isinstance(node, dict) or part not in node:
            raise UnresolvedError(f"${{{path}}}: there is no '{part}'")
        node = node[part]
    return node
