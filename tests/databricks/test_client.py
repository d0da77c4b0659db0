"""The package against databricks-connect: its modules import, and each PySpark name in use is there."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.session import SparkSession as ClassicSession

from tests.databricks.package import LOCAL_ONLY, ROOT, attributes, modules, pyspark_names

IN_WORKSPACE = {name: path for name, path in modules().items() if name not in LOCAL_ONLY}

FUNCTIONS = "pyspark.sql.functions"
# What a session and its frames have in the process of a JVM only.
CLASSIC_ONLY = {
    name
    for classic, connect in ((ClassicSession, SparkSession), (ClassicDataFrame, DataFrame))
    for name in set(dir(classic)) - set(dir(connect))
    if not name.startswith("__")
}
# The client has these and raises JVM_ATTRIBUTE_NOT_SUPPORTED or NOT_IMPLEMENTED.
REFUSED = {"_jc", "_jconf", "_jdf", "_jreader", "_jsc", "_jsparkSession", "_jvm", "enableHiveSupport", "rdd", "toJSON"}
OF_THE_JVM = CLASSIC_ONLY | REFUSED | {"RDD", "SparkConf", "SparkContext", "SQLContext"}

# The client of 17.3 wants a function that takes any iterable, and calls it with an iterator. Spark 4.2 says so, too.
WRONG_TYPE = re.compile(r'Argument 1 to "mapInArrow" .*"Callable\[\[Iterator\[Any\]\], Iterator\[Any\]\]"; expected')


def missing(source: str) -> list[str]:
    """Return the PySpark names that a source uses and the client lacks."""
    return [f"line {line}: {name}" for line, name in pyspark_names(source) if not _is_there(name)]


def _is_there(name: str) -> bool:
    if "._typing." in name:  # where types are only: mypy looks there
        return True
    # What a function does over Spark Connect is in a separate module.
    connect = name.replace(FUNCTIONS, "pyspark.sql.connect.functions.builtin")
    return _resolves(name) and (not name.startswith(f"{FUNCTIONS}.") or _resolves(connect))


def _resolves(name: str) -> bool:
    """Return whether a dotted name is a module or an attribute inside one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            owner: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(owner, part):
                return False
            owner = getattr(owner, part)
        return True
    return False


def needing_a_jvm(source: str) -> list[str]:
    """Return the attributes and imports of a source that a client of Spark Connect refuses."""
    return [f"line {line}: {name}" for line, name in attributes(source) if name in OF_THE_JVM]


def test_the_client_is_that_of_compute_that_is_deployed() -> None:
    """`make databricks` runs these tests twice: with the client of serverless compute, and with that of clusters."""
    from databricks.connect import DatabricksSession
    from pyspark.dbconnect_version import __dbconnect_version__

    resources = "".join(path.read_text() for path in (ROOT / "resources").rglob("*.yml"))
    (runtime,) = set(re.findall(r"runtime:\n +description: .*\n +default: (\d+\.\d+\.)x", resources))
    (environment,) = set(re.findall(r'environment_version: "(\d+)"', resources))
    assert __dbconnect_version__.startswith(runtime) or DatabricksSession._client_image_version == environment


@pytest.mark.parametrize("module", IN_WORKSPACE)
def test_a_module_that_a_workspace_uses_imports(module: str) -> None:
    importlib.import_module(module)


@pytest.mark.parametrize("module", IN_WORKSPACE)
def test_every_pyspark_name_in_use_is_there(module: str) -> None:
    assert missing(IN_WORKSPACE[module].read_text()) == []


@pytest.mark.parametrize("module", IN_WORKSPACE)
def test_nothing_in_use_needs_a_jvm_in_the_process(module: str) -> None:
    assert needing_a_jvm(IN_WORKSPACE[module].read_text()) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from pyspark.sql import functions as F\nF.no_such('x')", f"{FUNCTIONS}.no_such"),
        ("import pyspark.sql.functions as F\ndef f():\n    return F.no_such", f"{FUNCTIONS}.no_such"),
        ("from pyspark.sql import Window\nWindow.no_such", "pyspark.sql.Window.no_such"),
        ("from pyspark.sql import no_such", "pyspark.sql.no_such"),
        ("import pyspark.no_such.module", "pyspark.no_such.module"),
    ],
)
def test_a_name_that_the_client_lacks_is_noticed(source: str, name: str) -> None:
    assert [line.partition(": ")[2] for line in missing(source)] == [name]


@pytest.mark.parametrize(
    "source",
    ["spark.sparkContext", "frame.rdd.map(f)", "spark._jvm", "batch.sparkSession.newSession()", "import pyspark.RDD"],
)
def test_what_needs_a_jvm_is_noticed(source: str) -> None:
    assert len(needing_a_jvm(source)) == 1


def test_the_package_type_checks_against_the_client() -> None:
    # A line that pyspark's types make ignore may be right by the client's.
    command = [sys.executable, "-m", "mypy", "--python-version", "3.12", "--no-warn-unused-ignores"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert "checked" in ended.stdout, ended.stdout + ended.stderr
    local = tuple(str(modules()[name].relative_to(ROOT)) for name in LOCAL_ONLY)
    errors = [line for line in ended.stdout.splitlines() if ": error:" in line and not line.startswith(local)]
    errors = [line for line in errors if not WRONG_TYPE.search(line)]
    assert not errors, "\n".join(errors)
