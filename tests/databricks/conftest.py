"""The tests of `make databricks`: they need databricks-connect, in whose environment there is no separate pyspark."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def pytest_sessionstart() -> None:
    if find_spec("pyspark") is None or find_spec("pyspark.dbconnect_version") is None:
        pytest.exit("databricks-connect is not installed here: run these tests with 'make databricks'", returncode=1)
