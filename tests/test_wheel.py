"""The wheel, as a Databricks runtime installs it: light, without Spark, and with entry points that start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import wheel_version
from fraudlake import __version__
from fraudlake.errors import UsageError
from fraudlake.lake import open_lake
from fraudlake.settings import Settings
from fraudlake_cli.commands import cli

ROOT = Path(__file__).parent.parent
PACKAGES = {path.name for path in (ROOT / "src").iterdir() if (path / "__init__.py").exists()}
# What serverless environment 5 and Databricks Runtime 18 bring, as Databricks' own list of its Python packages has it.
BROUGHT = {
    "databricks-sdk": "0.67.0",
    "mlflow-skinny": "3.8.1",
    "numpy": "2.1.3",
    "pandas": "2.2.3",
    "pyarrow": "21.0.0",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel as pip unpacks it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--quiet", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def wheel(site: Path) -> Distribution:
    (info,) = site.glob("*.dist-info")
    return PathDistribution(info)


def test_it_brings_no_spark_and_fits_what_the_runtime_brings(wheel: Distribution) -> None:
    wanted = [Requirement(line) for line in wheel.requires or []]
    always = {one.name: one.specifier for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})}
    assert not {"pyspark", "delta-spark", "databricks-connect", "mlflow"} & set(always)
    assert {name: version for name, version in BROUGHT.items() if version not in always[name]} == {}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "fraudlake"
    for name in ("gold", "process"):
        (package / name).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (package / "process" / "version.py").write_text('__version__ = "1.2.3"\n')
    (package / "gold" / "__init__.py").write_text("")
    return tmp_path


@pytest.mark.parametrize("changed", ["src/fraudlake/gold/__init__.py", "src/fraudlake/new.sql", "pyproject.toml"])
def test_the_version_changes_with_the_code(checkout: Path, changed: str) -> None:
    before = wheel_version.version(checkout)
    with (checkout / changed).open("a") as file:
        file.write("# Changed.\n")
    assert wheel_version.version(checkout) != before


def test_the_version_changes_where_a_file_is_moved(checkout: Path) -> None:
    before = wheel_version.version(checkout)
    (checkout / "src/fraudlake/gold").rename(checkout / "src/fraudlake/silver")
    assert wheel_version.version(checkout) != before


def test_the_same_code_has_the_same_version_wherever_and_whenever_it_is_built(checkout: Path, tmp_path: Path) -> None:
    before = wheel_version.version(checkout)
    (checkout / "README.md").write_text("More words.\n")
    (checkout / "src" / "fraudlake" / "__pycache__").mkdir()
    (checkout / "src" / "fraudlake" / "__pycache__" / "gold.pyc").write_bytes(b"compiled")
    os.utime(checkout / "pyproject.toml", (0, 0))
    assert wheel_version.version(checkout) == before


def test_the_version_is_of_the_form_in_which_pip_writes_it(checkout: Path) -> None:
    text = wheel_version.version(checkout)
    assert re.fullmatch(r"1\.2\.3\+c[0-9a-f]{12}", text) and str(Version(text)) == text


def test_the_wheel_has_the_version_of_its_code(wheel: Distribution) -> None:
    assert wheel.version == wheel_version.version() and wheel.version.startswith(f"{__version__}+")


def test_a_wheel_needs_neither_java_nor_the_environment() -> None:
    """As a machine has it that only deploys: what make would run, from a checkout without an environment."""
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", "VENV=none", "wheel"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    commands = planned.stdout.splitlines()
    assert [line for line in commands if "pip wheel" in line]
    assert not [line for line in commands if "fraudlake setup" in line or "requirements" in line or "-m venv" in line]


@pytest.mark.parametrize("python", ["3.11.0", "3.12.3"])  # serverless environment 2, Databricks Runtime 17.3
def test_it_installs_on_the_runtimes_python(wheel: Distribution, python: str) -> None:
    assert python in SpecifierSet(wheel.metadata["Requires-Python"])


def test_a_workspace_needs_nothing_of_a_local_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    for name in ("local", "local_store"):
        monkeypatch.delitem(sys.modules, f"fraudlake.lake.{name}", raising=False)
    with pytest.raises(UsageError, match="need the Spark of a Databricks workspace"):
        open_lake(Settings(catalog="main", schema="fraud"))
    with pytest.raises(UsageError, match=r"deltalake is not installed: pip install 'fraudlake\[local\]'"):
        open_lake(Settings())
    with pytest.raises(UsageError, match=r"deltalake is not installed: pip install 'fraudlake\[local\]'"):
        cli.main(["queue", "list"], standalone_mode=False)


def test_a_job_of_a_workspace_needs_no_server(wheel: Distribution, monkeypatch: pytest.MonkeyPatch) -> None:
    always = {one.name for one in map(Requirement, wheel.requires or []) if one.marker is None}
    assert "jinja2" in always and not {"starlette", "uvicorn", "python-multipart"} & always
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "fraudlake_desk.web.application", raising=False)
    with pytest.raises(UsageError, match=r"starlette.* is not installed: pip install 'fraudlake\[desk\]'"):
        cli.main(["desk"], standalone_mode=False)


def test_it_holds_the_package_and_nothing_else(site: Path) -> None:
    assert {path.name.partition("-")[0] for path in site.iterdir()} == PACKAGES
    assert (site / "fraudlake" / "ivy.xml").is_file()


def test_every_entry_point_starts_as_a_wheel_task_calls_it_and_ends_without_an_exception(
    site: Path, wheel: Distribution, tmp_path: Path
) -> None:
    scripts = [one for one in wheel.entry_points if one.group == "console_scripts"]
    assert [one.name for one in scripts] == ["fraudlake"]
    for script in scripts:
        module, _, function = script.value.partition(":")
        # As Databricks does: the function is called in a Python that runs already, which must continue after it.
        program = (
            "import sys; sys.modules['pyspark'] = None\n"
            f"from {module} import {function}; import fraudlake\n"
            f"sys.argv = [{script.name!r}, '--version']\n"
            f"{function}()\n"
            "print('went on', fraudlake.__file__)"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            timeout=60,
            check=True,
        )
        assert ended.stdout.splitlines()[-1] == f"went on {site / 'fraudlake' / '__init__.py'}"
