"""The bundle against the schema of the Databricks CLI, if it is on the PATH."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from typing import Any

import pytest
from databricks.bundles.jobs import PeriodicTriggerConfigurationTimeUnit
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from .problems import known
from .rendering import GIVEN, render

CLI = shutil.which("databricks")

pytestmark = pytest.mark.skipif(CLI is None, reason="there is no Databricks CLI ('databricks') on the PATH")


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = str(tmp_path_factory.mktemp("home"))
    printed = subprocess.run(
        [str(CLI), "bundle", "schema"], capture_output=True, text=True, timeout=60, check=True, env={"HOME": home}
    )
    return _without_go_patterns(json.loads(printed.stdout))


def _without_go_patterns(node: Any) -> Any:
    """Leave out what a reference may look like (``\\p{L}``, which Python does not know): a rendered bundle has none."""
    if isinstance(node, dict):
        return {
            key: r"^\$\{" if key == "pattern" and isinstance(value, str) else _without_go_patterns(value)
            for key, value in node.items()
        }
    return [_without_go_patterns(one) for one in node] if isinstance(node, list) else node


def of_jobs(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """What the schema says of a type of the Jobs API."""
    types = schema["$defs"]["github.com"]["databricks"]["databricks-sdk-go"]["service"]
    return types[f"jobs.{name}"]["oneOf"][0]


@pytest.mark.parametrize(
    ("target", "cloud"),
    [("dev", None), ("staging", None), ("prod", None), ("prod", "aws"), ("prod", "azure"), ("prod", "gcp")],
)
def test_every_resource_is_as_the_schema_wants_it(target: str, cloud: str | None, schema: dict[str, Any]) -> None:
    rendered = render(target, cloud, **GIVEN)

    error = best_match(Draft202012Validator(schema).iter_errors({"resources": rendered.resources}))

    assert error is None, f"{list(error.absolute_path)}: {error.message}"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("jobs", "gold", "schedul"), {}),
        (("jobs", "gold", "max_concurrent_runs"), "one"),
        (("jobs", "train", "performance_target"), "SLOW"),
        (("volumes", "landing", "catalog_name"), None),
    ],
)
def test_what_the_schema_does_not_want_is_noticed(path: tuple[str, ...], value: Any, schema: dict[str, Any]) -> None:
    resources = copy.deepcopy(render("prod", **GIVEN).resources)
    kind, key, field = path

    resources[kind][key][field] = value

    assert best_match(Draft202012Validator(schema).iter_errors({"resources": resources})) is not None


def test_triggers_are_checked_as_the_schema_describes_them(schema: dict[str, Any]) -> None:
    units = of_jobs(schema, "PeriodicTriggerConfigurationTimeUnit")["enum"]
    fields = of_jobs(schema, "FileArrivalTriggerConfiguration")["properties"]
    descriptions = " ".join(" ".join(field.get("description", "") for field in fields.values()).split())

    assert set(units) == {unit.value for unit in PeriodicTriggerConfigurationTimeUnit}
    assert set(re.findall(r"minimum allowed value is (\d+) seconds", descriptions)) == {
        str(known("seconds_between_file_triggers"))
    }
