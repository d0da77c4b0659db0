from __future__ import annotations

from typing import Any

import pytest

from fraudlake.lake.commit import Commit


def commit(operation: str, parameters: dict[str, Any] | None = None, metrics: dict[str, Any] | None = None) -> Commit:
    entry = {"version": 3, "operation": operation, "timestamp": 0}
    return Commit.of({**entry, "operationParameters": parameters, "operationMetrics": metrics})


@pytest.mark.parametrize(
    ("operation", "metrics", "rows"),
    [
        ("WRITE", {"numFiles": "1", "numOutputRows": "12"}, 12),
        ("WRITE", {"num_added_files": 1, "num_added_rows": 12}, 12),
        ("WRITE", {"numFiles": "0", "numOutputRows": "0"}, 0),
        ("MERGE", {"numOutputRows": "12", "numTargetRowsInserted": "5"}, 5),
        ("MERGE", {"num_output_rows": 12, "num_target_rows_inserted": 5}, 5),
        ("WRITE", {}, None),
        ("WRITE", None, None),
    ],
)
def test_a_commit_says_how_many_rows_it_added_whoever_wrote_it(
    operation: str, metrics: dict[str, Any] | None, rows: int | None
) -> None:
    assert commit(operation, metrics=metrics).rows == rows


@pytest.mark.parametrize(
    ("parameters", "is_clustered"),
    [
        ({"zOrderBy": '["account_id"]', "clusterBy": "[]"}, True),
        ({"zOrderBy": "[]", "clusterBy": '["date","account_id"]'}, True),
        ({"zOrderBy": "[]", "clusterBy": "[]", "auto": "false"}, False),
        ({"zOrderBy": [], "auto": True}, False),
        ({}, False),
        (None, False),
    ],
)
def test_an_optimize_that_clusters_differs_from_one_that_only_compacts(
    parameters: dict[str, Any] | None, is_clustered: bool
) -> None:
    assert commit("OPTIMIZE", parameters).is_clustered == is_clustered
