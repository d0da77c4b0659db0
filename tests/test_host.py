"""Hosts: whatever user, environment, locale or disks a machine has, the same Spark starts, or a line says why not."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import open_lake, session
from fraudlake.process import host
from fraudlake.settings import Settings
from fraudlake.sources.folder import require_folder
from tests.conftest import FLINK, SHORT_LIVED

FOREIGN = {
    "SPARK_HOME": "/nowhere",
    "SPARK_CONF_DIR": "/nowhere",
    "SPARK_REMOTE": "sc://nowhere",
    "SPARK_API_MODE": "connect",
    "SPARK_CONNECT_MODE_ENABLED": "1",
    "SPARK_LOCAL_DIRS": "/proc/nowhere",
    "SPARK_MASTER": "spark://nowhere:7077",
    "MASTER": "yarn",
    "PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell",
    "PYSPARK_PYTHON": "/nowhere/python",
    "PYSPARK_DRIVER_PYTHON": "jupyter",
    "PYSPARK_GATEWAY_PORT": "1",
    "PYSPARK_PIN_THREAD": "false",
    "HADOOP_CONF_DIR": "/nowhere",
    "HADOOP_USER_NAME": "hdfs",
    "YARN_CONF_DIR": "/nowhere",
    "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC",
    "JDK_JAVA_OPTIONS": "-XX:+UseG1GC",
    "_JAVA_OPTIONS": "-Xmx8m",
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:1",
    "DATABRICKS_HOST": "https://127.0.0.1:1",
    "http_proxy": "http://127.0.0.1:1",
    "PYTHONVERBOSE": "1",
    "PYTHONINSPECT": "1",
    "PYTHONWARNINGS": "error",
    "PYTHONIOENCODING": "utf-16",
    "PYTHONSTARTUP": "/nowhere/startup.py",
    "PYTHONHASHSEED": "7",
}
"""What machines with another Spark, a cluster or a workspace have in their environment."""
OWN = {"MLFLOW_TRACKING_URI", "DATABRICKS_HOST", "http_proxy", "PYTHONHASHSEED"}
"""What stays: commands need it, or it changes nothing."""


def test_a_user_without_home_gets_one_for_libraries_that_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "~")
    monkeypatch.setenv("MLFLOW_RUN_ID", "of another run")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    host.complete_environment()
    assert Path.home() == tmp_path / f"fraudlake-{os.getuid()}"
    assert "MLFLOW_RUN_ID" not in os.environ
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_the_environment_of_another_spark_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JAVA_HOME", "/usr")
    host.isolate()
    assert {name for name in FOREIGN if name in os.environ} == OWN
    assert os.environ["JAVA_HOME"] == "/usr"


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_CACHE_HOME": "{tmp}/xdg"}, "xdg/fraudlake"),
        ({"HOME": "{tmp}/home"}, "home/.cache/fraudlake"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "{tmp}/home"}, "home/.cache/fraudlake"),
        ({"HOME": "/proc/home"}, f"t/fraudlake-{os.getuid()}"),
        ({"HOME": "~"}, f"t/fraudlake-{os.getuid()}"),
    ],
    ids=["named", "home", "relative", "unwritable home", "no home"],
)
def test_the_cache_is_in_the_first_folder_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], folder: str
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(tmp=tmp_path))
    (tmp_path / "t").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    assert host.cache_folder() == tmp_path / folder
    assert host.cache_folder().is_dir()


def test_a_folder_that_another_user_made_in_the_temporary_one_is_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/home")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("fraudlake.process.host._SECOND_TEMPORARY", Path("/proc"))
    monkeypatch.setattr("os.getuid", lambda: 54321)
    (tmp_path / "fraudlake-54321").mkdir()
    with pytest.raises(
        FraudlakeError,
        match=r"^no folder for programs .*: /proc/home/.cache/fraudlake, /proc/fraudlake-54321; name one with XDG",
    ):
        host.cache_folder()


def test_native_libraries_are_unpacked_where_they_may_be_loaded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert host.temporary_programs() == tmp_path
    noexec = [str(tmp_path), "/var/tmp"]
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC if str(path) in noexec else 0))
    assert host.temporary_programs() == tmp_path / "cache" / "fraudlake"
    noexec.append(str(tmp_path / "cache" / "fraudlake"))
    with pytest.raises(FraudlakeError, match=f"noexec disk.: {tmp_path}, /var/tmp, .*; name one with TMPDIR"):
        host.temporary_programs()


def test_options_of_java_and_spark_are_settings() -> None:
    wanted = Settings(java_options="-Dname='a b'", spark_options={"spark.sql.adaptive.enabled": "false"})
    configuration = session.with_options({"spark.ui.enabled": "false"}, wanted)
    assert configuration["spark.sql.adaptive.enabled"] == "false"
    assert session.java_options(wanted, "-Dpath=/a b", "-Xss4m").startswith('"-Dpath=/a b" -Xss4m -Djava.io.tmpdir=')
    assert session.java_options(wanted).endswith(" -Dname='a b'")


@pytest.mark.parametrize("name", ["spark.ui.enabled", "spark.remote", "spark.local.dir", "spark.hadoop.fs.defaultFS"])
def test_what_fraudlake_decides_is_no_option(name: str) -> None:
    wanted = Settings(spark_options={name: "true"})
    with pytest.raises(UsageError, match=f"spark_options: {name} cannot be set, since fraudlake decides it"):
        session.with_options({"spark.ui.enabled": "false"}, wanted)


def test_a_clusters_master_tells_which_address_of_this_machine_its_executors_reach(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        address = f"spark://localhost:{master.getsockname()[1]}"
        configured = session.configuration(Settings(lake=tmp_path, spark_master=address))
    assert configured["spark.driver.host"] == configured["spark.driver.bindAddress"] == "127.0.0.1"
    assert "/delta-spark_" in configured["spark.jars"]

    with pytest.raises(FraudlakeError, match=f"no Spark master answers at {address} .*set another spark_master"):
        session.configuration(Settings(lake=tmp_path, spark_master=address))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("FRAUDLAKE_JAVA_OPTIONS", "-Xss1", r"The Java thread stack size specified is too small"),
        ("FRAUDLAKE_DRIVER_MEMORY", "300m", r".*System memory \d+ must be at least \d+"),
    ],
)
def test_java_that_does_not_start_is_explained(tmp_path: Path, name: str, value: str, reason: str) -> None:
    (tmp_path / "lake" / "landing").mkdir(parents=True)
    environment = {**os.environ, name: value}
    ended = subprocess.run([program(), "refine"], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.match(rf"fraudlake: Spark did not start \({reason}", ended.stderr)


def test_the_modules_of_another_spark_are_refused_in_one_line(tmp_path: Path) -> None:
    module = tmp_path / "python" / "pyspark" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    path = os.pathsep.join([str(tmp_path / "python"), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [program(), "status"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"fraudlake: PYTHONPATH: {module} belongs to another Spark: remove it\n"


@pytest.mark.parametrize("name", ["random.py", "statistics.py", "calendar/__init__.py"])
def test_a_module_of_pythonpath_in_the_place_of_pythons_own_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    module = tmp_path / name
    module.parent.mkdir(exist_ok=True)
    module.write_text("raise SystemExit(3)")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "__init__.py").touch()  # what many projects have does no harm
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [program(), "status"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    path, own = name.partition("/")[0], name.partition("/")[0].partition(".")[0]
    assert ended.stderr == (
        f"fraudlake: PYTHONPATH: {tmp_path / path} takes the place of Python's module {own}: rename or remove it\n"
    )


def test_modules_of_the_current_folder_are_not_run_by_python_m(tmp_path: Path) -> None:
    (tmp_path / "statistics.py").write_text("raise SystemExit(3)")
    ended = subprocess.run(
        [sys.executable, "-m", "fraudlake_cli", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


MINE = """
import sys
print("mine was run")
open({ran!r}, "a").write(__name__ + " ")
"""


@pytest.mark.slow
def test_workers_run_no_module_of_the_current_folder_the_user_or_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is started as Java starts it: with the environment of Spark, in the current folder."""
    ran = tmp_path / "ran"
    folders = [tmp_path / "current", tmp_path / "path", tmp_path / "home"]
    monkeypatch.setenv("PYTHONUSERBASE", str(folders[2]))
    for folder in (folders[0], folders[1], Path(_user_site())):
        folder.mkdir(parents=True)
        for name in ("random", "statistics", "sitecustomize", "usercustomize"):
            if folder != folders[1] or name.endswith("customize"):
                (folder / f"{name}.py").write_text(MINE.format(ran=str(ran)))
    (Path(_user_site()) / "mine.pth").write_text(f"import pathlib; pathlib.Path({str(ran)!r}).write_text('mine.pth')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folders[1]), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONVERBOSE", "1")
    host.isolate()
    started = subprocess.run(
        [sys.executable, "-m", "json.tool", "--help"],  # a module that is run as pyspark.daemon is
        cwd=folders[0],
        env={**os.environ, **host.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    imported = subprocess.run(
        [sys.executable, "-c", "import random, statistics"],
        cwd=folders[0],
        env={**os.environ, **host.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (started.returncode, imported.returncode, imported.stdout, imported.stderr) == (0, 0, "", "")
    assert not ran.exists()


def _user_site() -> str:
    """Return the user's folder of packages, as another Python sees it that has one."""
    code = "import site; print(site.getusersitepackages())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_workers_keep_the_folders_of_pythonpath_that_packages_are_installed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, customized, installed = (tmp_path / name for name in ("plain", "customized", "installed"))
    for folder in (plain, customized, installed):
        folder.mkdir()
    (customized / "sitecustomize.py").touch()
    (installed / "sitecustomize.py").touch()
    (installed / "pyspark-4.2.0.dist-info").mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(plain), str(customized), str(installed), "/nowhere"]))
    assert host.environment()["PYTHONPATH"] == os.pathsep.join([str(plain), str(installed), "/nowhere"])


def test_a_terminal_without_arrows_shows_help() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    printed = subprocess.run([program(), "--help"], env=environment, capture_output=True, check=True).stdout
    assert b"silver_transactions \\u2192 silver_alerts." in printed


def test_a_landing_folder_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, rights: False)  # root may read everything
    with pytest.raises(UsageError, match="may not be read: run as a user who may"):
        require_folder(str(tmp_path))


STEPS = """
import sys
from fraudlake_cli.main import main
for step in ("ingest", "refine", "detect"):
    sys.argv = ["fraudlake", "--lake", {lake!r}, step]
    main()
"""
NO_NAME = ("unshare", "--user", "--map-user=54321", "--map-group=54321")
NOEXEC = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
needs_a_disk_of_its_own = pytest.mark.skipif(
    subprocess.run([*NOEXEC, "true"], capture_output=True, check=False).returncode != 0,
    reason="only root or a user namespace may mount a disk for a test, and neither is allowed here",
)


@pytest.mark.long
@pytest.mark.stream
@needs_a_disk_of_its_own
def test_a_container_without_user_home_locale_and_temporary_programs_raises_the_tutorials_alerts(
    tmp_path: Path,
) -> None:
    """Its user has no name and no home, its locale is C, its temporary folder noexec, its environment a cluster's."""
    lake, temporary, conf = tmp_path / "lake", tmp_path / "temporary", tmp_path / "conf"
    shutil.copytree(FLINK / "tutorial" / "int96", lake / "landing" / "zürich 日本")
    for folder in (temporary, conf):
        folder.mkdir()
    (conf / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://nowhere:8020</value></property></configuration>"
    )
    (conf / "spark-defaults.conf").write_text("spark.master spark://nowhere:7077\n")
    (conf / "spark-env.sh").write_text("export JAVA_HOME=/nowhere\n")
    of_conf = dict.fromkeys(("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"), str(conf))
    environment = {**os.environ, **SHORT_LIVED, **FOREIGN, **of_conf, "LC_ALL": "C", "PYTHONUTF8": "0"}
    environment |= {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(host.cache_folder().parent)}
    for name in ("HOME", "USER", "LOGNAME"):
        environment.pop(name, None)
    mounted = f'mount -t tmpfs -o noexec tmpfs "$0" && exec {" ".join(NO_NAME)} "$@"'
    steps = STEPS.format(lake=str(lake))

    ended = subprocess.run(
        [*NOEXEC, mounted, str(temporary), sys.executable, "-c", steps],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )

    assert ended.returncode == 0, ended.stderr
    alerts = open_lake(Settings(lake=lake), must_exist=True).store.query(
        f"SELECT account_id FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS
    )
    assert sorted(alerts["account_id"].to_pylist()) == ["2", "3", "4"]


@pytest.mark.long
@pytest.mark.stream
@needs_a_disk_of_its_own
def test_a_full_disk_is_one_line_without_a_panic(tmp_path: Path) -> None:
    mounted = 'mount -t tmpfs -o size=400k tmpfs "$0" && exec "$@"'
    ingest = ("--lake", str(tmp_path / "lake"), "run", "--landing", str(FLINK / "twodays"), "--steps", "ingest")

    ended = subprocess.run(
        [*NOEXEC, mounted, str(tmp_path), program(), *ingest],
        env={**os.environ, **SHORT_LIVED},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert line.startswith("fraudlake: ingest failed: ") and "a disk is full" in line


def program() -> str:
    return str(Path(sys.executable).with_name("fraudlake"))
