"""Auto Loader itself runs on Databricks only; here are its options and what is made of its rows."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.bronze import autoloader, contract
from fraudlake.settings import Settings
from tests.conftest import FLINK

# Databricks' reference, "Auto Loader options": common, file notification and generic options that are of use here.
DOCUMENTED = {
    "cloudFiles.format",
    "cloudFiles.maxBytesPerTrigger",
    "cloudFiles.maxFilesPerTrigger",
    "cloudFiles.partitionColumns",
    "cloudFiles.schemaEvolutionMode",
    "cloudFiles.schemaHints",
    "cloudFiles.schemaLocation",
    "cloudFiles.useManagedFileEvents",
    "cloudFiles.useNotifications",
    "ignoreCorruptFiles",
    "ignoreMissingFiles",
    "pathGlobFilter",
    "readerCaseSensitive",
    "recursiveFileLookup",
    "rescuedDataColumn",
}


@pytest.mark.parametrize("file_events", ["off", "notifications", "managed"])
def test_every_option_is_a_documented_one(file_events: str) -> None:
    chosen = autoloader.options(Settings(file_events=file_events, max_bytes_per_trigger="10g"), "/checkpoint")
    assert set(chosen) <= DOCUMENTED
    assert all(isinstance(value, str) for value in chosen.values())


def test_settings_choose_evolution_bounds_and_events() -> None:
    chosen = autoloader.options(
        Settings(schema_evolution="addNewColumns", file_events="managed", max_files_per_trigger=7), "/checkpoint"
    )
    assert chosen["cloudFiles.schemaEvolutionMode"] == "addNewColumns"
    assert chosen["cloudFiles.useManagedFileEvents"] == "true"
    assert chosen["cloudFiles.maxFilesPerTrigger"] == "7"
    # Databricks: not to be used together; no bound of bytes unless one is set.
    assert not {"cloudFiles.useNotifications", "cloudFiles.maxBytesPerTrigger"} & set(chosen)


def test_the_hints_are_the_contract() -> None:
    assert [hint.split()[0] for hint in autoloader.SCHEMA_HINTS.split(", ")] == contract.CONTRACT.names


@pytest.mark.parametrize(
    "uri", ["/Volumes/main/fraud/landing/a/part-0", "dbfs:/Volumes/main/fraud/landing/a/part-0", "a/part-0"]
)
def test_a_file_is_found_under_the_path_that_python_opens(uri: str) -> None:
    assert autoloader.below("/Volumes/main/fraud/landing/", uri) == "/Volumes/main/fraud/landing/a/part-0"


def test_a_new_column_is_told_apart_from_other_failures() -> None:
    said = autoloader.new_column("[UNKNOWN_FIELD_EXCEPTION.NEW_FIELDS_IN_FILE] Encountered unknown fields: `merchant`")
    assert said is not None and "run it again" in said
    assert autoloader.new_column("[DELTA_CONCURRENT_APPEND]") is None


@pytest.mark.stream
def test_its_rows_become_those_of_bronze(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    shutil.copytree(FLINK / "tutorial" / "int64_micros_jvm_newyork", folder / "a b%20+ü")
    (name,) = (path.name for path in (folder / "a b%20+ü").iterdir())
    files = (
        spark.read.schema(f"{autoloader.SCHEMA_HINTS}, merchant STRING")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", autoloader.options(Settings(), "")["pathGlobFilter"])
        .parquet(str(folder))
        .select("*", F.lit(None).cast("string").alias("_rescued_data"), "_metadata")
    )
    rows = autoloader.transactions(files, str(folder), "America/New_York")
    assert rows.columns == [*tables.BRONZE_TRANSACTIONS.column_names, "merchant"]
    first = rows.orderBy("_source_row").first()
    assert (first["accountId"], first["_source_row"], first["_source_file"]) == ("1", 0, f"a b%20+ü/{name}")
    assert str(rows.selectExpr("string(min(dt))").first()[0]) == str(datetime(1970, 1, 1, 0, 0, 1))
    assert rows.count() == 10
