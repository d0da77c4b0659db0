"""Lists the values of a rendered target that a workspace refuses and `databricks bundle validate` accepts."""

from __future__ import annotations

import re
import uuid
import zoneinfo
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import sqlglot
import yaml
from croniter import croniter
from databricks.bundles.jobs import PeriodicTriggerConfigurationTimeUnit
from sqlglot.expressions import Column

from fraudlake.settings import Settings

from .rendering import Rendered

PARTITIONS = "spark.sql.shuffle.partitions"
_MAIL = re.compile(r"[^@\s,;<>]+@[\w-]+(\.[\w-]+)+\Z")
_BROKER = re.compile(r"([\w-]+(\.[\w-]+)*|\[[0-9a-fA-F:]+\]):\d{1,5}\Z")


@cache
def known(name: str) -> Any:
    """The values of a list of ``known_values.yml``."""
    return yaml.safe_load(Path(__file__).with_name("known_values.yml").read_text())[name]["values"]


def problems(rendered: Rendered, cloud: str = "aws") -> list[str]:
    """What is wrong with a target, for a workspace of this cloud: ``aws``, ``azure`` or ``gcp``."""
    lines = [*_of_target(rendered.target)]
    for kind in ("jobs", "alerts"):
        for key, resource in rendered.resources.get(kind, {}).items():
            lines += [f"{key}: {line}" for line in _of_schedule(resource.get("schedule", {}))]
    for key, job in rendered.resources["jobs"].items():
        lines += [f"{key}: {line}" for line in [*_of_trigger(job.get("trigger", {})), *_of_compute(job, cloud)]]
        lines += [f"{key}: {line}" for task in job["tasks"] for line in _of_brokers(task)]
    for key, alert in rendered.resources["alerts"].items():
        lines += [f"{key}: {line}" for line in _of_alert(alert)]
    for kind in ("jobs", "alerts", "pipelines"):
        for key, resource in rendered.resources[kind].items():
            lines += [f"{key}: {address} is no address" for address in _addresses(resource) if not _MAIL.match(address)]
    return lines


def problems_of_dashboard(dashboard: dict[str, Any]) -> list[str]:
    """What is wrong with the widgets of a dashboard's file: expressions on columns that their datasets do not have."""
    columns = {dataset["name"]: _columns("".join(dataset["queryLines"])) for dataset in dashboard["datasets"]}
    widgets = [item["widget"] for page in dashboard["pages"] for item in page["layout"]]
    return [
        f"{widget['name']}: {query['query']['datasetName']} has no column '{column.name}'"
        for widget in widgets
        for query in widget["queries"]
        for field in query["query"]["fields"]
        for column in sqlglot.parse_one(field["expression"], dialect="databricks").find_all(Column)
        if column.name not in columns.get(query["query"]["datasetName"], ())
    ]


def _columns(query: str) -> list[str]:
    return sqlglot.parse_one(query, dialect="databricks").named_selects


def _of_alert(alert: dict[str, Any]) -> Iterator[str]:
    name = alert["evaluation"]["source"]["name"]
    if name not in _columns(alert["query_text"]):
        yield f"the query has no column '{name}'"
    for subscription in alert["evaluation"]["notification"]["subscriptions"]:
        destination = subscription.get("destination_id")
        if destination is not None and not _is_uuid(destination):
            yield f"{destination} is no id of a notification destination"


def _addresses(node: Any, wanted: bool = False) -> Iterator[str]:
    """The addresses of e-mail in a resource: notifications of jobs and pipelines, and subscriptions of alerts."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _addresses(value, wanted or key in ("email_notifications", "email_recipients", "user_email"))
    elif isinstance(node, list):
        for one in node:
            yield from _addresses(one, wanted)
    elif wanted and isinstance(node, str):
        yield node


def _of_brokers(task: dict[str, Any]) -> Iterator[str]:
    parameters = task["python_wheel_task"]["parameters"]
    if "--bootstrap-servers" in parameters:
        brokers = parameters[parameters.index("--bootstrap-servers") + 1]
        for broker in brokers.split(","):
            if not _BROKER.match(broker):
                yield f"{task['task_key']}: the broker '{broker}' is not HOST:PORT"


def _of_target(target: dict[str, Any]) -> Iterator[str]:
    principals = [target.get("run_as", {}), *target.get("permissions", [])]
    for principal in principals:
        name = principal.get("service_principal_name")
        if name is not None and not _is_uuid(name):
            yield f"service principal {name} is no application id"
    if target["mode"] == "production" and "service_principal_name" not in target.get("run_as", {}):
        yield "runs as a person"


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _of_schedule(schedule: dict[str, Any]) -> Iterator[str]:
    if not schedule:
        return
    if schedule["timezone_id"] not in zoneinfo.available_timezones():
        yield f"time zone {schedule['timezone_id']} is unknown"
    expression = schedule.get("quartz_cron_expression") or schedule["quartz_cron_schedule"]
    fields = expression.split()
    # Quartz has seconds first, and wants a question mark in one of the two fields for days; elsewhere it is a star.
    if len(fields) != 6 or [fields[3], fields[5]].count("?") != 1:
        yield f"'{expression}' is not of Quartz's form"
    elif not croniter.is_valid(expression.replace("?", "*"), second_at_beginning=True):
        yield f"'{expression}' is no cron expression"


def _of_trigger(trigger: dict[str, Any]) -> Iterator[str]:
    least = known("seconds_between_file_triggers")
    for name in ("min_time_between_triggers_seconds", "wait_after_last_change_seconds"):
        seconds = trigger.get("file_arrival", {}).get(name, least)
        if seconds < least:
            yield f"{name} is {seconds}, below {least}"
    if "file_arrival" in trigger and not trigger["file_arrival"]["url"].endswith("/"):
        yield f"the file arrival url {trigger['file_arrival']['url']} does not end with a slash"
    periodic = trigger.get("periodic")
    if periodic:
        if periodic["unit"] not in {unit.value for unit in PeriodicTriggerConfigurationTimeUnit}:
            yield f"a periodic trigger has no unit {periodic['unit']}"
        if not isinstance(periodic["interval"], int) or periodic["interval"] < 1:
            yield f"a periodic trigger cannot have the interval {periodic['interval']}"


def _of_compute(job: dict[str, Any], cloud: str) -> Iterator[str]:
    for environment in job.get("environments", []):
        version = environment["spec"].get("environment_version")
        if version not in known("environment_versions"):
            yield f"environment version {version!r} is unknown"
    for cluster in (job_cluster["new_cluster"] for job_cluster in job.get("job_clusters", [])):
        yield from _of_cluster(cluster, cloud)


def _of_cluster(cluster: dict[str, Any], cloud: str) -> Iterator[str]:
    if cluster["spark_version"] not in known("spark_versions"):
        yield f"spark_version {cluster['spark_version']} is unknown"
    for field in ("node_type_id", "driver_node_type_id"):
        if cluster.get(field, known("node_types")[cloud][0]) not in known("node_types")[cloud]:
            yield f"{field} {cluster[field]} is no machine of {cloud}"
    settings = cluster.get("spark_conf", {})
    partitions = settings.get(PARTITIONS)
    buckets = Settings.model_fields["buckets"].default
    if partitions is None or not 1 <= int(partitions) <= buckets:
        yield f"{PARTITIONS} is {partitions}: state has {buckets} buckets, which need no more partitions"
    # Without attributes of the cloud the API takes spot machines.
    for other, on_demand in known("on_demand").items():
        attributes = cluster.get(f"{other}_attributes")
        if other != cloud and attributes is not None:
            yield f"{other}_attributes are not of {cloud}"
        if other == cloud and (attributes or {}).get("availability") != on_demand:
            yield f"its machines are {(attributes or {}).get('availability', 'spot machines')}, not {on_demand}"
    # Databricks documentation, "Set up real-time mode".
    if settings.get("spark.databricks.streaming.realTimeMode.enabled") == "true":
        if cluster.get("runtime_engine") != "STANDARD":
            yield "real-time mode needs runtime_engine STANDARD, without Photon"
        if "autoscale" in cluster or not cluster.get("num_workers"):
            yield "real-time mode needs a fixed number of workers"
