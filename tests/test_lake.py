from __future__ import annotations

from typing import Any

import pytest

from fraudlake import tables
from tests.oracle import Row
from tests.silver.test_alerts import MARCH_7, SECOND, land

pytestmark = pytest.mark.stream


def test_small_files_are_compacted_on_the_way_and_no_row_changes(lake: Any) -> None:
    opened = lake()
    opened.spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "4")
    for i in range(5):
        land(opened, [Row(str(i), MARCH_7 + i * SECOND, 20.0, position=i)])
    operations = opened.spark.sql("DESCRIBE HISTORY silver_transactions").select("operation").collect()
    assert "OPTIMIZE" in {row["operation"] for row in operations}
    assert opened.spark.sql("DESCRIBE DETAIL silver_transactions").first()["numFiles"] < 5
    assert sorted(row["position"] for row in opened.read(tables.SILVER_TRANSACTIONS).collect()) == [0, 1, 2, 3, 4]
