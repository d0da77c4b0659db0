from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake.appender import Appender
from fraudlake.lake.commit import Commit

SILVER, QUARANTINE = tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE


@dataclass
class Log:
    """A fake lake: the commits of its tables, the newest first."""

    commits: dict[tables.Table, list[Commit]]

    @property
    def store(self) -> Log:
        return self

    def history(self, table: tables.Table, limit: int | None = None) -> list[Commit]:
        return self.commits[table][:limit]


def commit(application: str | None, batch: int, rows: int) -> Commit:
    metadata = None if application is None else f'{{"application": "{application}", "batch": {batch}}}'
    return Commit(batch, "WRITE", 0, False, metadata, rows=rows)


def log(silver: list[Commit], quarantine: list[Commit]) -> Any:
    return Log({SILVER: silver, QUARANTINE: quarantine})


@pytest.mark.parametrize(
    ("silver", "quarantine"),
    [
        (commit("own", 3, 5), commit("own", 3, 2)),
        (commit("own", 3, 0), commit("own", 3, 7)),
    ],
)
def test_the_rows_of_a_micro_batch_are_those_of_its_commits_to_all_tables(silver: Commit, quarantine: Commit) -> None:
    others = [commit("other", 3, 100), commit("own", 2, 100), commit(None, 3, 100)]
    lake = log([others[0], silver, *others[1:]], [*others, quarantine])

    Appender("own").require_rows(lake, (SILVER, QUARANTINE), 3, 7)
    with pytest.raises(FraudlakeError, match=r"micro-batch 3 has 8 rows, but its commits have 7: "):
        Appender("own").require_rows(lake, (SILVER, QUARANTINE), 3, 8)


def test_a_micro_batch_without_a_commit_has_no_rows() -> None:
    lake = log([], [])
    Appender("own").require_rows(lake, (), 3, 0)
    Appender("own").require_rows(lake, (SILVER,), 3, 0)
    with pytest.raises(FraudlakeError, match=r"micro-batch 3 has 7 rows, but its commits have 0: "):
        Appender("own").require_rows(lake, (SILVER,), 3, 7)


def test_a_repeated_micro_batch_may_have_a_commit_of_an_earlier_version_which_does_not_name_it() -> None:
    lake = log([commit("own", 3, 5)], [commit(None, 3, 2)])
    Appender("own", repeated=3).require_rows(lake, (SILVER, QUARANTINE), 3, 7)
    with pytest.raises(FraudlakeError):
        Appender("own", repeated=2).require_rows(lake, (SILVER, QUARANTINE), 3, 7)
    with pytest.raises(FraudlakeError):
        Appender("own", repeated=3).require_rows(
            log([commit("own", 3, 5)], [commit("own", 3, 1)]), (SILVER, QUARANTINE), 3, 7
        )


def test_rows_are_counted_from_a_micro_batch_on() -> None:
    lake = log([commit("own", 5, 5), commit("other", 5, 100), commit("own", 4, 4), commit("own", 3, 3)], [])
    assert Appender("own").rows_since(lake, SILVER, 4) == 9
