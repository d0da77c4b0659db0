"""The bundle, checked without a workspace: what `databricks bundle validate` notices, and what it does not."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from databricks.bundles.alerts import Alert
from databricks.bundles.apps import App
from databricks.bundles.dashboards import Dashboard
from databricks.bundles.experiments import MlflowExperiment
from databricks.bundles.jobs import Job
from databricks.bundles.pipelines import Pipeline
from databricks.bundles.registered_models import RegisteredModel
from databricks.bundles.schemas import Schema
from databricks.bundles.sql_warehouses import SqlWarehouse
from databricks.bundles.volumes import Volume

from fraudlake import settings
from fraudlake import tables as all_tables
from fraudlake.delivery.destinations import DESTINATIONS, SECRETS
from fraudlake.errors import UsageError
from fraudlake_cli.commands import cli
from fraudlake_workspace import check

from .rendering import (
    APPLICATION_ID,
    GIVEN,
    ROOT,
    WITHOUT_A_PAUSE,
    UnresolvedError,
    includes_of,
    render,
    source,
    tasks,
)

TYPES = {
    "alerts": Alert,
    "apps": App,
    "dashboards": Dashboard,
    "experiments": MlflowExperiment,
    "jobs": Job,
    "pipelines": Pipeline,
    "registered_models": RegisteredModel,
    "schemas": Schema,
    "sql_warehouses": SqlWarehouse,
    "volumes": Volume,
}
TARGETS = ("dev", "staging", "prod")
STREAMS = {"ingest_and_detect_continuous", "realtime"}
CLUSTERS = STREAMS | {"probe_cluster"}
"""The jobs that need a cluster."""

targets = pytest.mark.parametrize("target", TARGETS)


def declared_tasks(target: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, job and task as they are declared, those on clusters, too."""
    return [
        (f"{key}.{task['task_key']}", job, task)
        for key, job in render(target, "aws", **GIVEN).jobs().items()
        for task in job["tasks"]
    ]


def test_the_bundle_names_every_destination_and_its_secrets() -> None:
    variables = source()["variables"]
    listed = variables["deliver_to"]["description"].removeprefix("Where alerts are delivered to, ").rstrip(".")
    assert set(re.split(", | or ", listed)) == set(DESTINATIONS)
    assert set(re.findall(r"\w+_(?:url|secret)", variables["delivery_secret"]["description"])) == set(SECRETS)


@targets
def test_every_resource_is_of_its_type(target: str) -> None:
    rendered = render(target, has_desk=True, **GIVEN)

    assert set(rendered.resources) == set(TYPES) - ({"sql_warehouses"} if target == "dev" else set())
    for kind, resources in rendered.resources.items():
        for resource in resources.values():
            TYPES[kind].from_dict(resource)


def test_a_resource_file_is_named_for_what_it_holds() -> None:
    whole = source("aws", has_desk=True, is_endless=True)
    for file in (ROOT / "resources").rglob("*.*.yml"):
        key, kind, _ = file.name.split(".")
        assert f"  {kind}s:\n" in file.read_text()
        assert key in whole["resources"].get(f"{kind}s", {}) | whole["targets"]["prod"]["resources"].get(f"{kind}s", {})


def test_every_variable_says_what_it_is_for_and_is_used() -> None:
    text = "".join(file.read_text() for file in [ROOT / "databricks.yml", *(ROOT / "resources").rglob("*.yml")])

    for name, variable in source("aws", has_desk=True, is_endless=True)["variables"].items():
        assert variable["description"]
        assert f"${{var.{name}}}" in text


@pytest.mark.parametrize("target", ["staging", "prod"])
@pytest.mark.parametrize("missing", sorted(GIVEN))
def test_a_missing_variable_is_named(target: str, missing: str) -> None:
    with pytest.raises(UnresolvedError, match=missing):
        render(target, **{name: value for name, value in GIVEN.items() if name != missing})


def test_a_development_copy_needs_no_variable_and_no_service_principal() -> None:
    rendered = render("dev")

    assert source()["targets"]["dev"]["variables"]["service_principal"] == "unused"
    assert "unused" not in json.dumps([rendered.target, rendered.resources], default=str).replace(
        '"service_principal": "unused"', ""
    )


@targets
def test_every_task_calls_the_wheels_entry_point_as_on_a_laptop(target: str) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    for name, _, task in declared_tasks(target):
        wheel = task["python_wheel_task"]
        assert wheel["package_name"] == "fraudlake", name
        assert wheel["entry_point"] in scripts, name
        assert all(isinstance(parameter, str) for parameter in wheel["parameters"]), name
        assert {"notebook_task", "spark_python_task", "sql_task", "condition_task"}.isdisjoint(task), name


class OpenedError(Exception):
    """A command has understood its parameters, and would now open the lake."""


@targets
def test_the_parameters_of_every_task_are_understood(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_(values: settings.Settings, must_exist: bool = False) -> None:
        raise OpenedError(values)

    monkeypatch.setattr("fraudlake.lake.open_lake", open_)

    # The probe asks the workspace, and the fast lane a broker, not the lake.
    rules = str(ROOT / "rules.toml")
    steps = [
        task
        for task in tasks(target, "aws", **GIVEN, file=rules)
        if task[0] not in ("probe", "probe_cluster", "realtime")
    ]
    for job, key, parameters in steps:
        result = CliRunner().invoke(cli, parameters)
        assert isinstance(result.exception, OpenedError), f"{job}.{key}: {result.output}{result.exception}"


def test_the_steps_of_a_job_are_one_task_that_starts_once() -> None:
    runs = {job: parameters for job, key, parameters in tasks("prod", **GIVEN) if key == "run"}
    steps = {job: parameters[parameters.index("--steps") + 1] for job, parameters in runs.items()}

    assert steps == {"ingest_and_detect": "ingest,refine,detect", "gold": "disputes,aggregate,score,status"}


def test_a_jobs_parameters_are_filled_in() -> None:
    [(_, _, parameters)] = [task for task in tasks("prod", **GIVEN, model_version="7") if task[0] == "backfill"]

    assert parameters[parameters.index("--from") + 1] == "2026-03-07"
    assert parameters[parameters.index("--model-version") + 1] == "7"
    assert not any(
        "{{" in parameter or "${" in parameter for _, _, some in tasks("prod", **GIVEN) for parameter in some
    )


def test_the_fast_lanes_parameters_are_understood_where_its_topic_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def require_spark() -> None:
        raise OpenedError

    monkeypatch.setattr("fraudlake_lane.session.require_spark", require_spark)
    for topic, answer in (("fast-alerts", OpenedError), ("", UsageError)):
        given = tasks("prod", "aws", **GIVEN, fast_alerts_topic=topic)
        [parameters] = [parameters for job, _, parameters in given if job == "realtime"]
        assert isinstance(CliRunner().invoke(cli, parameters).exception, answer)


@targets
def test_what_a_task_refers_to_is_there(target: str) -> None:
    for name, job, task in declared_tasks(target):
        siblings = {sibling["task_key"] for sibling in job["tasks"]}
        assert {needed["task_key"] for needed in task.get("depends_on", [])} <= siblings - {task["task_key"]}, name
        if "environment_key" in task:
            environments = {environment["environment_key"]: environment["spec"] for environment in job["environments"]}
            assert environments[task["environment_key"]]["dependencies"] == ["./dist/*.whl"], name
        else:
            assert task["job_cluster_key"] in {cluster["job_cluster_key"] for cluster in job["job_clusters"]}, name
            assert task["libraries"] == [{"whl": "../../dist/*.whl"}], name


@targets
def test_only_a_cluster_runs_streams_without_end(target: str) -> None:
    for name, _, task in declared_tasks(target):
        is_continuous = bool({"continuous", "realtime"} & set(task["python_wheel_task"]["parameters"]))
        assert is_continuous == (name.partition(".")[0] in STREAMS), name


@targets
def test_every_job_runs_alone_and_tells_when_it_fails(target: str) -> None:
    for key, job in render(target, "aws", **GIVEN).jobs().items():
        assert job["max_concurrent_runs"] == 1, key
        assert job["email_notifications"]["on_failure"], key
        assert job["health"]["rules"], key
        assert job["tags"] == {"project": "fraudlake", "target": target}, key
        if "continuous" in job:
            # The Jobs documentation ("Run jobs continuously") allows neither; such a job restarts by itself.
            assert not any({"depends_on", "max_retries"} & set(task) for task in job["tasks"]), key
        else:
            assert job["queue"] == {"enabled": True}, key
            assert all(task["timeout_seconds"] for task in job["tasks"]), key
            # The probe would only give the same answers again.
            assert all(bool(task["max_retries"]) == (key not in ("probe", "probe_cluster")) for task in job["tasks"]), (
                key
            )


@targets
def test_jobs_and_alerts_that_go_by_the_clock(target: str) -> None:
    resources = render(target, **GIVEN).resources
    scheduled = {key for kind in ("jobs", "alerts") for key, value in resources[kind].items() if "schedule" in value}

    assert scheduled == {
        "deliver",
        "gold",
        "review_queue",
        "train",
        "maintain",
        "lag",
        "quality",
        "model_quality",
        "review",
    }


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_alerts_begin_when_they_are_asked_for_and_wake_a_warehouse_once_an_hour(target: str) -> None:
    """Before, their tables may not be there; and a warehouse that four minutes of an hour wake never sleeps."""
    alerts = render(target, **GIVEN).resources["alerts"].values()
    asked = render(target, **GIVEN, alerts="UNPAUSED").resources["alerts"].values()

    assert {alert["schedule"]["pause_status"] for alert in alerts} == {"PAUSED"}
    assert {alert["schedule"]["pause_status"] for alert in asked} == {"UNPAUSED"}
    fields = [alert["schedule"]["quartz_cron_schedule"].split() for alert in alerts]
    assert {tuple(field[:2]) for field in fields} == {("0", "50")}
    # After `gold`, from which the alert on the model has its figures.
    assert render(target, **GIVEN).jobs()["gold"]["schedule"]["quartz_cron_expression"] == "0 10 * * * ?"


@targets
def test_all_serverless_compute_is_paid_by_one_policy(target: str) -> None:
    resources = render(target, has_desk=True, **GIVEN, budget_policy_id="policy").resources

    for resource in [one for kind in ("jobs", "pipelines", "apps") for one in resources[kind].values()]:
        assert resource["budget_policy_id"] == "policy"


def test_development_copies_stay_out_of_each_others_way() -> None:
    rendered = render("dev")

    assert rendered.resources["schemas"]["fraudlake"]["name"] == "dev_someone_fraudlake"
    assert rendered.resources["volumes"]["landing"]["schema_name"] == "dev_someone_fraudlake"
    assert rendered.jobs()["gold"]["schedule"]["pause_status"] == "PAUSED"
    assert rendered.jobs()["ingest_and_detect"]["trigger"]["pause_status"] == "PAUSED"
    assert not CLUSTERS & set(render("dev", "aws").jobs())
    assert "grants" not in rendered.resources["schemas"]["fraudlake"]
    assert "run_as" not in rendered.target


def test_staging_is_started_by_hand_and_prod_by_itself() -> None:
    staging, prod = (render(target, **GIVEN) for target in ("staging", "prod"))

    assert staging.jobs()["gold"]["schedule"]["pause_status"] == "PAUSED"
    assert staging.jobs()["ingest_and_detect"]["trigger"]["pause_status"] == "PAUSED"
    assert "pause_status" not in prod.jobs()["gold"]["schedule"]
    assert "pause_status" not in prod.jobs()["ingest_and_detect"]["trigger"]
    assert staging.resources["schemas"]["fraudlake"]["name"] == "staging_fraudlake"
    assert prod.resources["schemas"]["fraudlake"]["name"] == "fraudlake"


@targets
def test_jobs_on_clusters_exist_only_where_they_are_asked_for(target: str) -> None:
    assert not CLUSTERS & set(render(target, **GIVEN).jobs())
    assert not any("job_clusters" in job for job in render(target, **GIVEN).jobs().values())


@pytest.mark.parametrize("target", ["staging", "prod"])
@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_jobs_on_clusters_are_asked_for_by_cloud(target: str, cloud: str) -> None:
    jobs = render(target, cloud, **GIVEN).jobs()

    assert set(jobs) >= CLUSTERS
    for key in CLUSTERS:
        [cluster] = jobs[key]["job_clusters"]
        assert cluster["new_cluster"]["policy_id"] == "id-of-Job Compute"
        assert jobs[key].get("continuous", {"pause_status": "PAUSED"})["pause_status"] == "PAUSED"
    for variable, key in (("continuous", "ingest_and_detect_continuous"), ("realtime", "realtime")):
        unpaused = render(target, cloud, **GIVEN, **{variable: "UNPAUSED"})
        assert unpaused.jobs()[key]["continuous"]["pause_status"] == "UNPAUSED"


@targets
def test_the_desk_is_an_app_where_it_is_asked_for(target: str) -> None:
    app = render(target, has_desk=True, **GIVEN).resources["apps"]["desk"]

    assert "apps" not in render(target, **GIVEN).resources

    assert re.fullmatch(r"[a-z0-9-]{2,30}", app["name"])
    assert app["lifecycle"] == {"started": True}
    assert app["user_api_scopes"] == ["sql", "files.files"]
    assert (ROOT / "requirements.txt").read_text() == ".[desk]\n"
    assert (ROOT / "resources" / "apps" / app["source_code_path"]).resolve() == ROOT


@targets
def test_the_desks_command_is_understood(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = render(target, has_desk=True, **GIVEN).resources["apps"]["desk"]["config"]["command"]
    listened: list[tuple[str, int]] = []
    monkeypatch.setenv("DATABRICKS_APP_PORT", "8000")
    monkeypatch.setattr("fraudlake_desk.web.server.listen", lambda *address: listened.append(address))
    monkeypatch.setattr("fraudlake_desk.web.server.serve", lambda *given: None)

    CliRunner().invoke(cli, arguments, catch_exceptions=False)

    assert program == "fraudlake"
    assert listened == [("0.0.0.0", 8000)]


def test_the_serverless_job_without_a_pause_is_the_triggered_one_in_an_endless_row() -> None:
    """Jobs documentation, "Run jobs continuously": on serverless compute with bounded triggers, as available-now."""
    jobs = source(is_endless=True)["resources"]["jobs"]
    triggered, endless = jobs["ingest_and_detect"], jobs["ingest_and_detect_serverless"]
    [task] = endless["tasks"]

    assert f"  # - {WITHOUT_A_PAUSE}" in (ROOT / "databricks.yml").read_text().splitlines()
    assert Job.from_dict(endless).continuous
    assert not {"trigger", "schedule", "queue", "job_clusters"} & set(endless)
    assert not {"max_retries", "depends_on"} & set(task)
    assert endless["environments"] == triggered["environments"]
    assert task["python_wheel_task"] == triggered["tasks"][0]["python_wheel_task"]


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_another_runtime_is_probed_on_the_cluster_that_streams_would_have(cloud: str) -> None:
    jobs = render("prod", cloud, **GIVEN, runtime="18.2.x-scala2.13").jobs()
    clusters = {key: jobs[key]["job_clusters"][0]["new_cluster"] for key in CLUSTERS}

    assert {cluster["spark_version"] for cluster in clusters.values()} == {"18.2.x-scala2.13"}
    probed, streams = clusters["probe_cluster"], clusters["ingest_and_detect_continuous"]
    assert {**probed, "spark_conf": {}} == {**streams, "spark_conf": {}}
    assert probed["spark_conf"].items() <= streams["spark_conf"].items()


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_what_holds_data_is_protected(target: str) -> None:
    resources = render(target, **GIVEN).resources
    protected = {
        key
        for kind in ("schemas", "volumes", "registered_models")
        for key, resource in resources[kind].items()
        if resource.get("lifecycle") == {"prevent_destroy": True}
    }

    assert protected == {"fraudlake", "landing", "checkpoints", "attachments", "fraud_model"}


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_everybody_queries_the_bundles_own_warehouse(target: str) -> None:
    resources = render(target, has_desk=True, **GIVEN).resources
    [warehouse] = resources["sql_warehouses"].values()
    desk = resources["apps"]["desk"]

    assert 0 < warehouse["auto_stop_mins"] <= 10
    assert {"group_name": "users", "level": "CAN_USE"} in warehouse["permissions"]
    used = {one["warehouse_id"] for kind in ("alerts", "dashboards") for one in resources[kind].values()}
    assert used == {desk["resources"][0]["sql_warehouse"]["id"]} == {f"id-of-{warehouse['name']}"}


def test_the_desk_of_a_development_copy_needs_no_group_of_the_account() -> None:
    command = render("dev", has_desk=True).resources["apps"]["desk"]["config"]["command"]

    assert [command[at + 1] for at, word in enumerate(command) if word == "--analyst-groups"] == ["users, users"]


def test_databricks_yml_shows_the_lines_that_ask_for_jobs_on_clusters() -> None:
    lines = (ROOT / "databricks.yml").read_text().splitlines()

    assert [f"  # - {pattern}" for pattern in includes_of("aws")] == [
        line.partition(" # or")[0] for line in lines if "resources/clusters/" in line
    ]


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_a_shared_copy_belongs_to_its_service_principal(target: str) -> None:
    rendered = render(target, **GIVEN)

    assert rendered.target["mode"] == "production"
    assert rendered.target["run_as"] == {"service_principal_name": APPLICATION_ID}
    assert rendered.target["workspace"]["root_path"] == f"/Workspace/Users/{APPLICATION_ID}/.bundle/fraudlake/{target}"
    assert {"service_principal_name": APPLICATION_ID, "level": "CAN_MANAGE"} in rendered.target["permissions"]
    assert rendered.resources["experiments"]["training"]["name"].startswith(f"/Users/{APPLICATION_ID}/")


def test_roles_may_do_what_they_need_and_no_more() -> None:
    resources = render("prod", **GIVEN).resources
    granted = {
        (key, grant["principal"].removeprefix("fraudlake-")): set(grant["privileges"])
        for kind in ("schemas", "volumes", "registered_models")
        for key, resource in resources[kind].items()
        for grant in resource.get("grants", [])
    }

    assert granted == {
        ("fraudlake", "readers"): {"USE_SCHEMA", "SELECT"},
        ("fraudlake", "analysts"): {"USE_SCHEMA", "SELECT"},
        ("fraudlake", "engineers"): {"USE_SCHEMA", "SELECT", "MODIFY"},
        **{("pipeline", role): {"USE_SCHEMA", "SELECT"} for role in ("readers", "analysts", "engineers")},
        ("landing", "analysts"): {"READ_VOLUME"},
        ("landing", "engineers"): {"READ_VOLUME", "WRITE_VOLUME"},
        ("checkpoints", "engineers"): {"READ_VOLUME"},
        ("fraud_model", "analysts"): {"EXECUTE"},
        ("fraud_model", "engineers"): {"EXECUTE"},
        # It runs the jobs, and owns nothing of what a person has deployed for it.
        ("fraudlake", APPLICATION_ID): {"USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE", "CREATE_MODEL", "MANAGE"},
        ("pipeline", APPLICATION_ID): {"USE_SCHEMA", "SELECT", "MODIFY", "CREATE_TABLE", "CREATE_MATERIALIZED_VIEW"},
        ("landing", APPLICATION_ID): {"READ_VOLUME", "WRITE_VOLUME"},
        ("checkpoints", APPLICATION_ID): {"READ_VOLUME", "WRITE_VOLUME"},
        ("attachments", APPLICATION_ID): {"READ_VOLUME", "WRITE_VOLUME"},
        ("fraud_model", APPLICATION_ID): {"ALL_PRIVILEGES"},
    }


def test_the_bundle_grants_its_service_principal_what_check_asks_for() -> None:
    resources = render("prod", **GIVEN).resources
    granted = {
        (kind, key): set(grant["privileges"])
        for kind in ("schemas", "volumes", "registered_models")
        for key, resource in resources[kind].items()
        for grant in resource["grants"]
        if grant["principal"] == APPLICATION_ID
    }

    assert set(check._ON_SCHEMA) <= granted["schemas", "fraudlake"]
    assert set(check._ON_LANDING) <= granted["volumes", "landing"]
    assert set(check._ON_CHECKPOINTS) <= granted["volumes", "checkpoints"]
    # The model inherits MANAGE of its schema. In one grant with ALL_PRIVILEGES, CLI 1.10 to 1.16 would not send it.
    assert granted["registered_models", "fraud_model"] == {"ALL_PRIVILEGES"}
    assert "MANAGE" in check._ON_MODEL and "MANAGE" in granted["schemas", "fraudlake"]
    assert not [some for some in granted.values() if {"ALL_PRIVILEGES", "MANAGE"} <= some]


def test_kafka_is_one_variable_away() -> None:
    given = {**GIVEN, "source": "kafka", "kafka_bootstrap_servers": "b1:9092,b2:9092"}
    ingest = render("prod", **given).jobs()["ingest_and_detect"]["tasks"][0]["python_wheel_task"]["parameters"]

    assert ingest[ingest.index("--source") + 1] == "kafka"
    assert ingest[ingest.index("--bootstrap-servers") + 1] == "b1:9092,b2:9092"


@targets
@pytest.mark.parametrize("source", ["files", "kafka"])
def test_the_default_trigger_needs_neither_files_nor_file_events(target: str, source: str) -> None:
    trigger = render(target, **GIVEN, source=source).jobs()["ingest_and_detect"]["trigger"]

    assert trigger.items() >= {"periodic": {"interval": 15, "unit": "MINUTES"}}.items()


def test_a_new_lake_is_one_variable_away_from_liquid_clustering() -> None:
    def given(**values: str) -> settings.Settings:
        [parameters] = [parameters for job, _, parameters in tasks("prod", **GIVEN, **values) if job == "define"]
        return settings.load(clustering=parameters[parameters.index("--clustering") + 1])

    assert (given().clustering, given(clustering="liquid").clustering) == ("zorder", "liquid")


def test_nothing_is_delivered_unless_it_is_wanted() -> None:
    wanted = render("prod", deliver="UNPAUSED", **GIVEN).jobs()["deliver"]

    assert render("prod", **GIVEN).jobs()["deliver"]["schedule"]["pause_status"] == "PAUSED"
    assert wanted["schedule"]["pause_status"] == "UNPAUSED"
    assert render("staging", deliver="UNPAUSED", **GIVEN).jobs()["deliver"]["schedule"]["pause_status"] == "UNPAUSED"


_OF_PACKAGE = (
    "payload",
    "columns",
    "currency",
    "entities",
    "features",
    "disputes",
    "suppress_within",
    "max_alerts_per_minute",
)


def test_thresholds_and_columns_are_those_of_the_package() -> None:
    variables = {name: declared.get("default") for name, declared in source()["variables"].items()}
    package = settings.Settings()

    given = settings.load(**{name: variables[name] for name in _OF_PACKAGE})
    assert all(getattr(given, name) == getattr(package, name) for name in _OF_PACKAGE)


def test_dashboard_widgets_show_what_their_datasets_give() -> None:
    file = render("prod", **GIVEN).resources["dashboards"]["fraud"]["file_path"]
    dashboard = json.loads((ROOT / "resources" / file).read_text())
    datasets = {dataset["name"] for dataset in dashboard["datasets"]}
    widgets = [item["widget"] for page in dashboard["pages"] for item in page["layout"]]

    assert len({widget["name"] for widget in widgets}) == len(widgets)
    for widget in widgets:
        fields = {field["name"] for query in widget["queries"] for field in query["query"]["fields"]}
        assert {query["query"]["datasetName"] for query in widget["queries"]} <= datasets, widget["name"]
        assert set(_field_names(widget["spec"]["encodings"])) == fields, widget["name"]


def _field_names(node: Any) -> list[str]:
    if isinstance(node, dict):
        return (
            [node["fieldName"]]
            if "fieldName" in node
            else [name for child in node.values() for name in _field_names(child)]
        )
    return [name for child in node for name in _field_names(child)] if isinstance(node, list) else []


def test_the_ci_example_deploys_to_staging_before_prod() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "deploy.yml").read_text())
    jobs = workflow["jobs"]
    runs = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}

    assert set(jobs["staging"]["needs"]) == {"test", "validate"}
    assert (jobs["prod"]["needs"], jobs["prod"]["environment"]) == ("staging", "prod")
    for target in ("staging", "prod"):
        assert f"databricks bundle deploy --target {target}" in runs[target]
    schema = render("staging", **GIVEN).resources["schemas"]["fraudlake"]["name"]
    deployed, probed, smoked = (
        next(number for number, run in enumerate(runs["staging"]) if command in run)
        for command in ("bundle deploy", f"--schema {schema} workspace probe", f"--schema {schema} workspace smoke")
    )
    assert deployed < probed < smoked


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_the_ci_example_gives_the_desk_the_code_of_each_deploy(target: str) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "deploy.yml").read_text())
    steps = workflow["jobs"][target]["steps"]
    deployed = next(number for number, step in enumerate(steps) if "bundle deploy" in step.get("run", ""))

    assert steps[deployed + 1]["run"] == f"databricks bundle run desk --target {target}"
    assert steps[deployed + 1]["if"] == "vars.FRAUDLAKE_DESK == 'true'"
    assert "desk" in render(target, has_desk=True, **GIVEN).resources["apps"]


@pytest.mark.parametrize(
    ("page", "heading", "deploys"),
    [("deploy", "The desk", 1), ("upgrade", "In a workspace", 0), ("upgrade", "Roll back the code", 1)],
)
def test_the_pages_give_the_desk_the_code_of_a_deploy(page: str, heading: str, deploys: int) -> None:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
    section = " ".join(text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].split())
    parts = section.split("databricks bundle deploy")

    assert len(parts) == 1 + deploys
    assert all("databricks bundle run desk --target prod" in part for part in parts[deploys:])


def test_the_bundle_asks_for_a_cli_that_the_tutorial_and_the_ci_example_have() -> None:
    """Older ones drop the rights on the model, and Terraform sends other requests than those that are tested."""
    bundle = yaml.safe_load((ROOT / "databricks.yml").read_text())["bundle"]
    (floor,) = re.findall(r"^>= (\d+)\.(\d+)\.0$", bundle["databricks_cli_version"])
    tutorial = (ROOT / "docs" / "tutorials" / "first-deploy.md").read_text()

    assert bundle["engine"] == "direct"
    assert tuple(map(int, floor)) >= (1, 13)
    assert re.findall(r"the Databricks CLI \((\d+)\.(\d+) or newer\)", tutorial) == [floor]


def test_the_ci_example_has_the_cli_for_its_tests_and_pins_it() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "deploy.yml").read_text())

    for name, job in workflow["jobs"].items():
        steps = [str(step.get("uses", step.get("run"))) for step in job["steps"]]
        [installed] = [number for number, step in enumerate(steps) if step.startswith("databricks/setup-cli@")]
        # A commit: a tag or branch of somebody else's action may be moved.
        assert re.fullmatch(r"databricks/setup-cli@[0-9a-f]{40}", steps[installed]), name
        assert tuple(map(int, job["steps"][installed]["with"]["version"].split("."))) >= (1, 20), name
        needs = [number for number, step in enumerate(steps) if step == "make test" or "databricks bundle" in step]
        assert needs and installed < min(needs), name
        # A deploy needs no Java, nor all that the tests need.
        assert name == "test" or not any("make setup" in step or "setup-java" in step for step in steps), name


def test_the_ci_example_signs_in_as_the_federation_policy_of_the_documentation_says() -> None:
    text = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "deploy.yml").read_text())
    example = re.search(r"--json '(\{\"oidc_policy.*?\}\})'", text, re.DOTALL)
    assert example
    policy = json.loads(example[1].replace("'$environment'", "staging"))["oidc_policy"]

    audience = workflow["env"]["DATABRICKS_TOKEN_AUDIENCE"].replace("${{ github.repository_owner }}", "ORG")
    assert policy["audiences"] == [audience]
    assert policy["subject"] == "repo:ORG/REPO:environment:staging"
    signed_in = {name for name, job in workflow["jobs"].items() if "DATABRICKS_CLIENT_ID" in job.get("env", {})}
    assert {workflow["jobs"][name]["environment"] for name in signed_in} == {"staging", "prod"}
    assert workflow["permissions"]["id-token"] == "write"


def test_the_ci_example_gives_every_variable_that_must_be_given() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "deploy.yml").read_text())

    for name in ("validate", "staging", "prod"):
        given = {**workflow["env"], **workflow["jobs"][name]["env"]}
        assert {f"BUNDLE_VAR_{variable}" for variable in GIVEN} <= set(given), name


def test_alerts_are_delivered_by_default_to_where_somebody_sees_them() -> None:
    """The log of a micro-batch is nowhere to be seen on serverless compute."""
    [task] = render("prod", **GIVEN).jobs()["deliver"]["tasks"]
    given = task["python_wheel_task"]["parameters"]

    assert given[given.index("--to") + 1] == "file"
    assert given[given.index("--delivery-folder") + 1].startswith("/Volumes/main/fraudlake/checkpoints/")


def test_the_guide_grants_what_the_desk_writes() -> None:
    """`queue.py` and its table are the job's."""
    core = ROOT / "src" / "fraudlake"
    folders = (ROOT / "src" / "fraudlake_desk", core / "review", core / "approvals")
    desk = [file for folder in folders for file in folder.rglob("*.py") if file.stem != "queue"]
    desk.append(core / "detection" / "rule_table.py")
    text = "".join(file.read_text() for file in desk)
    written = set(re.findall(r"store\.(?:insert|insert_all|append)\((?:tables\.)?(SILVER_\w+),", text))
    written |= set(re.findall(r"chain\.write\(store, (SILVER_\w+),", text))
    if re.search(r"store\.insert_all\(table,", text):
        written |= set(re.findall(r"^    table = tables\.(SILVER_RULES)$", text, re.MULTILINE))
    if re.search(r"store\.(?:insert|append)\(_TABLE,", text):
        written |= set(re.findall(r"^_TABLE = tables\.(SILVER_LIST_ENTRIES)$", text, re.MULTILINE))
    granted = re.findall(r"GRANT MODIFY ON TABLE main\.fraudlake\.(\w+)", (ROOT / "docs/how-to/deploy.md").read_text())

    assert {getattr(all_tables, name).name for name in written} == set(granted)
    assert len(granted) == 5
