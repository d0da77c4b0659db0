"""The checks of ``problems`` notice values that a workspace would refuse, and the bundle has none of them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from .problems import problems, problems_of_dashboard
from .rendering import GIVEN, ROOT, Rendered, render

Break = Callable[[Rendered], Any]
CONTINUOUS = "ingest_and_detect_continuous"


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
@pytest.mark.parametrize("target", ["dev", "staging", "prod"])
def test_the_bundle_has_no_problem(target: str, cloud: str) -> None:
    assert problems(render(target, cloud, **GIVEN), cloud) == []


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_machines_of_a_cloud_are_none_of_another(cloud: str) -> None:
    rendered = render("prod", cloud, **GIVEN)

    assert all(problems(rendered, other) for other in {"aws", "azure", "gcp"} - {cloud})


def test_the_periodic_trigger_of_the_documentation_is_a_good_one() -> None:
    text = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    example = re.search(r'"ingest_trigger": (\{.*?\}\})', text)
    assert example
    assert problems(render("prod", **GIVEN, ingest_trigger=yaml.safe_load(example[1]))) == []


@pytest.mark.parametrize(
    "trigger",
    [
        {"periodic": {"interval": 15, "unit": "MINUTES"}},
        {"file_arrival": {"url": "/Volumes/main/fraudlake/landing/", "min_time_between_triggers_seconds": 60}},
    ],
)
def test_a_good_trigger_is_no_problem(trigger: dict[str, Any]) -> None:
    assert problems(render("prod", **GIVEN, ingest_trigger=trigger)) == []


@pytest.mark.parametrize(
    ("trigger", "line"),
    [
        ({"periodic": {"interval": 30, "unit": "SECONDS"}}, "no unit SECONDS"),
        ({"periodic": {"interval": 0, "unit": "MINUTES"}}, "the interval 0"),
        ({"file_arrival": {"url": "/Volumes/a/b/c/", "min_time_between_triggers_seconds": 59}}, "59, below 60"),
        ({"file_arrival": {"url": "/Volumes/a/b/c/", "wait_after_last_change_seconds": 10}}, "10, below 60"),
        ({"file_arrival": {"url": "/Volumes/a/b/c"}}, "does not end with a slash"),
    ],
)
def test_a_wrong_trigger_is_noticed(trigger: dict[str, Any], line: str) -> None:
    [problem] = problems(render("prod", **GIVEN, ingest_trigger=trigger))

    assert problem.startswith("ingest_and_detect: ") and line in problem


def dashboard() -> dict[str, Any]:
    file = render("prod", **GIVEN).resources["dashboards"]["fraud"]["file_path"]
    return json.loads((ROOT / "resources" / file).read_text())


def test_the_dashboards_widgets_show_columns_of_their_datasets() -> None:
    assert problems_of_dashboard(dashboard()) == []


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("`date_`", ["date_"]),
        ("sum(`alert`)", ["alert"]),
        ("DATE_TRUNC('DAY', `day`)", ["day"]),
        ("max(date) - min(`days`)", ["days"]),
        ("count(*)", []),
        ("sum(`alerts`) / count(DISTINCT `date`)", []),
    ],
)
def test_an_expression_on_an_unknown_column_is_noticed(expression: str, unknown: list[str]) -> None:
    spoilt = dashboard()
    [widget] = [
        item["widget"]
        for page in spoilt["pages"]
        for item in page["layout"]
        if item["widget"]["name"] == "alerts_over_time"
    ]

    widget["queries"][0]["query"]["fields"][0]["expression"] = expression

    assert problems_of_dashboard(spoilt) == [f"alerts_over_time: days has no column '{name}'" for name in unknown]


def test_a_widget_of_another_dataset_is_noticed() -> None:
    spoilt = dashboard()
    widget = next(item["widget"] for item in spoilt["pages"][0]["layout"] if item["widget"]["name"] == "transactions")

    widget["queries"][0]["query"]["datasetName"] = "days_"

    assert problems_of_dashboard(spoilt) == ["transactions: days_ has no column 'transactions'"]


@pytest.mark.parametrize(
    "address",
    ["fraud@example", "fraud.example.com", "fraud@@example.com", "a@example.com, b@example.com", "Fraud <f@e.com>", ""],
)
def test_a_malformed_address_is_noticed_wherever_it_is_used(address: str) -> None:
    lines = problems(render("prod", "aws", **{**GIVEN, "notification_email": address}), "aws")

    resources = render("prod", "aws", **GIVEN).resources
    told = {key for kind in ("jobs", "alerts", "pipelines") for key in resources[kind]}
    assert set(lines) == {f"{key}: {address} is no address" for key in told}


@pytest.mark.parametrize(
    "brokers", ["broker", "broker:", "broker:9092;other:9092", "kafka://broker:9092", "a:9092,", ""]
)
def test_a_malformed_broker_is_noticed(brokers: str) -> None:
    lines = problems(render("prod", kafka_bootstrap_servers=brokers, **GIVEN))

    assert lines and all("is not HOST:PORT" in line for line in lines)


def test_alerts_go_to_a_destination_that_is_no_user() -> None:
    destination = "22222222-3333-4444-5555-666666666666"
    rendered = render("prod", **GIVEN, alert_subscriptions=[{"destination_id": destination}])

    assert problems(rendered) == []
    for alert in rendered.resources["alerts"].values():
        assert alert["evaluation"]["notification"]["subscriptions"] == [{"destination_id": destination}]


def new_cluster(rendered: Rendered, job: str = CONTINUOUS) -> dict[str, Any]:
    return rendered.jobs()[job]["job_clusters"][0]["new_cluster"]


def fast(rendered: Rendered) -> dict[str, Any]:
    return new_cluster(rendered, "realtime")


def subscriptions(rendered: Rendered) -> list[dict[str, str]]:
    return rendered.resources["alerts"]["lag"]["evaluation"]["notification"]["subscriptions"]


def environment(rendered: Rendered) -> dict[str, Any]:
    return rendered.jobs()["gold"]["environments"][0]["spec"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda r: r.jobs()["gold"]["schedule"].update(timezone_id="Mars/Olympus"), "gold: time zone Mars/Olympus"),
        (lambda r: r.resources["alerts"]["lag"]["schedule"].update(timezone_id="UTC+25"), "lag: time zone UTC+25"),
        (lambda r: r.jobs()["gold"]["schedule"].update(quartz_cron_expression="0 10 * * *"), "not of Quartz's form"),
        (lambda r: r.jobs()["gold"]["schedule"].update(quartz_cron_expression="0 10 * * * *"), "not of Quartz's form"),
        (lambda r: r.jobs()["gold"]["schedule"].update(quartz_cron_expression="0 70 * * * ?"), "no cron expression"),
        (lambda r: environment(r).update(environment_version="3"), "gold: environment version '3'"),
        (lambda r: environment(r).update(environment_version=4), "gold: environment version 4"),
        (lambda r: environment(r).pop("environment_version"), "gold: environment version None"),
        (lambda r: new_cluster(r).update(spark_version="17.3.x-scala2.12"), f"{CONTINUOUS}: spark_version 17.3.x"),
        (lambda r: new_cluster(r).update(node_type_id="Standard_D4ds_v5"), "is no machine of aws"),
        (lambda r: new_cluster(r).update(driver_node_type_id="i3.tiny"), "driver_node_type_id i3.tiny"),
        (lambda r: new_cluster(r)["spark_conf"].pop("spark.sql.shuffle.partitions"), "partitions is None"),
        (lambda r: new_cluster(r)["spark_conf"].update({"spark.sql.shuffle.partitions": "200"}), "partitions is 200"),
        (lambda r: fast(r).pop("aws_attributes"), "realtime: its machines are spot machines"),
        (lambda r: fast(r).update(aws_attributes={}), "realtime: its machines are spot machines"),
        (lambda r: fast(r).update(aws_attributes={"availability": "SPOT"}), "realtime: its machines are SPOT"),
        (
            lambda r: new_cluster(r).update(aws_attributes={"availability": "SPOT_WITH_FALLBACK"}),
            f"{CONTINUOUS}: its machines are SPOT_WITH_FALLBACK, not ON_DEMAND",
        ),
        (lambda r: fast(r).update(gcp_attributes={"availability": "ON_DEMAND_GCP"}), "gcp_attributes are not of aws"),
        (lambda r: fast(r).update(runtime_engine="PHOTON"), "without Photon"),
        (lambda r: fast(r).pop("runtime_engine"), "without Photon"),
        (lambda r: fast(r).update(autoscale={"min_workers": 1, "max_workers": 4}), "a fixed number of workers"),
        (lambda r: r.resources["alerts"]["lag"]["evaluation"]["source"].update(name="rows"), "lag: the query has no"),
        (lambda r: subscriptions(r).append({"destination_id": "slack"}), "lag: slack is no id"),
        (lambda r: subscriptions(r).append({"user_email": "fraud team"}), "lag: fraud team is no address"),
        (lambda r: r.target["run_as"].update(service_principal_name="jane@example.com"), "jane@example.com is no"),
        (
            lambda r: r.target["permissions"][0].update(service_principal_name="fraudlake"),
            "fraudlake is no application",
        ),
        (lambda r: r.target.update(run_as={"user_name": "jane@example.com"}), "runs as a person"),
    ],
)
def test_a_wrong_value_is_noticed(spoil: Break, line: str) -> None:
    rendered = copy.deepcopy(render("prod", "aws", **GIVEN))

    spoil(rendered)

    [problem] = problems(rendered)
    assert line in problem


def test_a_person_is_no_service_principal() -> None:
    given = {**GIVEN, "service_principal": "jane@example.com"}

    assert set(problems(render("prod", **given))) == {"service principal jane@example.com is no application id"}


def test_each_list_says_where_and_when_it_was_read() -> None:
    lists = yaml.safe_load((ROOT / "tests" / "bundle" / "known_values.yml").read_text())

    assert all(known["source"] and known["read"].year >= 2026 and known["values"] for known in lists.values())
