"""The options given to Auto Loader, and the paths made from its URIs; Auto Loader itself runs only on Databricks."""

from __future__ import annotations

from typing import Any

import pytest

from fraudlake.settings import Settings
from fraudlake.sources import auto_loader
from tests.standin.auto_loader import DOCUMENTED


@pytest.mark.parametrize("file_events", ["off", "managed"])
def test_every_option_is_a_documented_one(file_events: str) -> None:
    options = auto_loader.options(Settings(file_events=file_events, max_bytes_per_trigger="10g"))
    assert set(options) <= DOCUMENTED
    assert all(isinstance(value, str) for value in options.values())


def test_listing_is_asked_for_since_newer_runtimes_use_file_events_by_themselves() -> None:
    assert auto_loader.options(Settings())["cloudFiles.useManagedFileEvents"] == "false"


def test_settings_choose_bounds_and_events() -> None:
    options = auto_loader.options(Settings(file_events="managed", max_files_per_trigger=7))
    assert options["cloudFiles.useManagedFileEvents"] == "true"
    assert options["cloudFiles.maxFilesPerTrigger"] == "7"
    # Databricks excludes both kinds of events together; there is no limit of bytes unless one is set.
    assert not {"cloudFiles.useNotifications", "cloudFiles.maxBytesPerTrigger"} & set(options)


URIS = ["/Volumes/main/fraud/landing/a/part-0", "dbfs:/Volumes/main/fraud/landing/a/part-0", "a/part-0"]


@pytest.mark.parametrize("uri", URIS)
def test_a_file_is_found_under_the_path_that_python_opens(uri: str) -> None:
    assert auto_loader.posix_path("/Volumes/main/fraud/landing/", uri) == "/Volumes/main/fraud/landing/a/part-0"


@pytest.mark.parametrize("uri", ["/Volumes/main/fraud/other/part-0", "dbfs:/Volumes/main/fraud/other/part-0"])
def test_a_file_of_another_landing_folder_stays_where_it_is(uri: str) -> None:
    assert auto_loader.posix_path("/Volumes/main/fraud/landing", uri) == "/Volumes/main/fraud/other/part-0"


@pytest.mark.stream
def test_spark_cuts_the_landing_folder_off_as_python_does(spark: Any) -> None:
    rows = spark.createDataFrame([(uri,) for uri in URIS], "path STRING")
    sources = rows.select(auto_loader.source("path", "/Volumes/main/fraud/landing").alias("source")).collect()
    assert [row["source"] for row in sources] == ["a/part-0"] * 3
