"""The doctor: each fault of a machine, of the settings and of a lake is a finding with its remedy."""

from __future__ import annotations

import json
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest

from fraudlake.errors import FraudlakeError
from fraudlake.lake import jars, java
from fraudlake.operations import doctor
from fraudlake.operations.doctor import Finding
from fraudlake.settings import Settings
from tests import plain_lake
from tests.conftest import FraudlakeHere


@pytest.fixture
def healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing is wrong, whatever runs the test."""
    monkeypatch.setattr(java, "require", lambda: Path("/usr/bin/java"))
    monkeypatch.setattr(java, "version", lambda program: "17.0.15")
    (tmp_path / "jars").mkdir()
    monkeypatch.setattr(jars, "target", lambda: tmp_path / "jars")
    monkeypatch.setattr(doctor, "_total_memory", lambda: 16 * 2**30)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(50 * 2**30))


def findings(**given: object) -> dict[str, Finding]:
    return {one.what: one for one in doctor.examine(lambda: Settings.model_validate(given))}


@pytest.mark.usefixtures("healthy")
def test_a_healthy_machine_has_no_finding_that_matters(tmp_path: Path) -> None:
    found = findings(lake=tmp_path / "lake")
    assert [*found][2:8] == ["Java", "locale", "temporary folder", "jars", "settings", "memory"]
    assert [one.what for one in found.values() if not one.ok] == ["lake"]
    assert not found["lake"].matters and "there is no lake" in found["lake"].seen


@pytest.mark.usefixtures("healthy")
def test_a_lake_is_opened(tmp_path: Path) -> None:
    plain_lake.make(tmp_path / "lake")
    assert findings(lake=tmp_path / "lake")["lake"].ok


@pytest.mark.usefixtures("healthy")
def test_each_fault_of_the_machine_has_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> Path:
        raise FraudlakeError("no Java on the PATH: install Java 17 or 21")

    monkeypatch.setattr(java, "require", no_java)
    monkeypatch.setattr(jars, "target", lambda: tmp_path / "no jars")
    monkeypatch.setattr(doctor, "_total_memory", lambda: 2 * 2**30)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(2**20))
    monkeypatch.setattr(doctor, "_version", lambda package: {"pyspark": "3.5.0", "click": None}.get(package, "100"))

    found = findings(lake=tmp_path / "lake")

    assert (found["Java"].seen, found["Java"].remedy) == ("no Java on the PATH", "install Java 17 or 21")
    assert "click missing" in found["packages"].seen and "pyspark 3.5.0" in found["packages"].seen
    for what, remedy in {"jars": "fraudlake setup", "memory": "driver_memory", "disk": "make room"}.items():
        assert not found[what].ok and remedy in str(found[what].remedy)
    assert {one.what for one in found.values() if not one.ok and not one.matters} == {"jars", "memory", "lake"}


@pytest.mark.usefixtures("healthy")
def test_a_broker_takes_connections_or_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        address = f"127.0.0.1:{broker.getsockname()[1]}"
        assert findings(lake=tmp_path, bootstrap_servers=address)["Kafka"].ok
    gone = findings(lake=tmp_path, bootstrap_servers=address)["Kafka"]
    assert not gone.ok and gone.seen == f"no connection to {address}"


@pytest.mark.usefixtures("healthy")
def test_wrong_settings_leave_out_what_depends_on_them() -> None:
    def load() -> Settings:
        raise FraudlakeError("FRAUDLAKE_BUCKETS=x: must be an integer")

    *_, last = doctor.examine(load)
    assert (last.what, last.ok) == ("settings", False)


def test_the_command_prints_a_line_each_and_starts_no_spark(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    ended = fraudlake_here("--json", "--lake", str(tmp_path / "lake"), "doctor")
    told = json.loads(ended.stdout)
    assert ended.returncode == (0 if told["ok"] else 1)
    assert {frozenset(one) for one in told["findings"]} == {frozenset({"what", "ok", "seen", "remedy", "matters"})}
    assert not (tmp_path / "lake").exists()


def test_a_workspace_is_refused(fraudlake_here: FraudlakeHere) -> None:
    ended = fraudlake_here("--catalog", "main", "--schema", "fraud", "doctor")
    assert ended.returncode == 2 and "fraudlake workspace check" in ended.stderr


def test_an_entity_of_no_column_is_found_before_there_is_a_lake(tmp_path: Path) -> None:
    found = findings(lake=tmp_path / "lake", entities={"shop": "shop_id"})["lake"]
    assert not found.ok and found.matters
    assert "entities: shop is keyed by shop_id, which is not a column of" in found.seen
