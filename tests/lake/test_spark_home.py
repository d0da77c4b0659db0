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


@pytest.mark.slow
def test_java_takes_sparks_classes_from_the_archive() -> None:
    spark_home.archive_classes()
    log = "-Xlog:class+load:stdout"
    environment = {**os.environ, "SPARK_HOME": str(spark_home.folder())}
    options = " ".join([*spark_home.java_options(), log, *session.JAVA_OPTIONS])
    command = [spark_home.folder() / "bin" / "spark-submit", "--driver-java-options", options, "--version"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    loaded = [line for line in printed.splitlines() if " org.apache.spark.deploy.SparkSubmit source:" in line]
    assert loaded and all("shared objects file (top)" in line for line in loaded), loaded


def test_a_second_archive_is_not_made() -> None:
    spark_home.archive_classes()
    assert not spark_home.archive_classes()


def _own_jars() -> list[Path]:
    return list((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
