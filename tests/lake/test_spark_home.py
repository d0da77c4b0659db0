"""Spark's home: every jar in one folder, no zipped Python, and Java's classes from the archive."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from fraudlake.lake import jars, session, spark_home


def test_it_has_the_jars_of_pyspark_and_the_added_ones_and_no_zipped_python() -> None:
    home = spark_home.folder()
    names = {path.name for path in home.glob("jars/*.jar")}
    assert names == {path.name for path in (*_own_jars(), *jars.folder().glob("*.jar"))} | {"fraudlake-log-store.jar"}
    assert not list(home.rglob("*.zip"))


def test_its_jars_outlive_the_environment_that_they_came_with() -> None:
    assert not any(path.is_symlink() for path in spark_home.folder().glob("jars/*.jar"))


@pytest.mark.long
@pytest.mark.slow
def test_the_first_java_writes_an_archive_of_classes_from_which_the_next_one_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_home, "class_archive", lambda: tmp_path / "classes.jsa")
    first, second = (_sources_of_classes() for _ in range(2))
    assert first and not any("(top)" in line for line in first)
    assert second and all("shared objects file (top)" in line for line in second), second
    assert [file.name for file in tmp_path.iterdir()] == ["classes.jsa"]


def test_an_archive_that_is_not_complete_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_home, "class_archive", lambda: tmp_path / "classes.jsa")
    for name in ("classes.jsa.1", "classes.jsa.2"):
        (tmp_path / name).write_bytes(bytes(4096))  # Java writes the head last
    os.utime(tmp_path / "classes.jsa.2", (0, 0))  # its Java was killed long ago
    options = spark_home.java_options()
    assert options[0] == f"-XX:ArchiveClassesAtExit={tmp_path}/classes.jsa.{os.getpid()}"
    assert [file.name for file in tmp_path.iterdir()] == ["classes.jsa.1"]


def _sources_of_classes() -> list[str]:
    """Start Spark's program for a moment; return the lines in which Java says where it takes its class from."""
    environment = {**os.environ, "SPARK_HOME": str(spark_home.folder())}
    options = " ".join([*spark_home.java_options(), "-Xlog:class+load:stdout", *session.JAVA_OPTIONS])
    command = [spark_home.folder() / "bin" / "spark-submit", "--driver-java-options", options, "--version"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return [line for line in printed.splitlines() if " org.apache.spark.deploy.SparkSubmit source:" in line]


def _own_jars() -> list[Path]:
    return list((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
