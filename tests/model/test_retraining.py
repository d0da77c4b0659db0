"""When `run` trains again: new transactions and verdicts since the latest version, against the setting."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake.commit import Commit
from fraudlake.model import training
from fraudlake.model.registry import Version

VERSIONS = {tables.SILVER_TRANSACTIONS.name: 3, tables.SILVER_VERDICTS.name: 0}
TRAINED_ON = {
    "labels": "auto",
    "holdout": 0.3,
    "algorithm": "trees",
    "max_training_rows": 5_000_000,
    "label_delay": "0 s",
    "genuine_after": "3888000 s",
    "train_from": None,
    "features": [],
}
TRAINED = Version("2", {"silver_version": 3, "verdicts_version": 0, **TRAINED_ON}, "", {}, ("champion",), None)


class Lake:
    """A lake of 1,000 transactions with an append of 100 in version 4, and no verdicts."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.commits = {
            tables.SILVER_TRANSACTIONS.name: [commit(4, "WRITE", 100), commit(3, "WRITE", 900)],
            tables.SILVER_VERDICTS.name: [commit(0, "CREATE TABLE")],
        }
        self.counts = {tables.SILVER_TRANSACTIONS.name: 1_000, tables.SILVER_VERDICTS.name: 0}

    @property
    def store(self) -> Lake:
        return self

    def history(self, table: Any) -> list[Commit]:
        return self.commits[table.name]

    def count(self, table: Any) -> int:
        return self.counts[table.name]


class Registered:
    """A registry whose champion is version 2, and can be loaded or not."""

    def __init__(self, failure: FraudlakeError | None = None) -> None:
        self.failure = failure

    def champion(self) -> Version:
        return TRAINED

    def load(self, number: str) -> None:
        if self.failure:
            raise self.failure


def commit(version: int, operation: str, rows: int | None = None, metadata: str | None = None) -> Commit:
    return Commit(version, operation, 0, False, metadata, rows=rows)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    from fraudlake.settings import Settings

    def make(known: list[Version] | None = None, failure: FraudlakeError | None = None, **values: Any) -> Lake:
        monkeypatch.setattr(training, "versions", lambda lake: [TRAINED] if known is None else known)
        monkeypatch.setattr(training.Registry, "of", lambda lake: Registered(failure))
        return Lake(Settings(lake=tmp_path / "lake", **values))

    return make


def test_few_new_rows_leave_the_champion(made: Any) -> None:
    outcome = training.unless_changed(made(retrain_share=0.2))
    assert (outcome.version.number, outcome.is_new, outcome.is_champion) == ("2", False, True)
    assert outcome.reason == "100 new rows of 1,000, below 20 %: the champion stays"


def test_the_share_is_that_of_the_rows_that_were_learned(made: Any) -> None:
    assert training.unless_changed(made(retrain_share=100 / 900)) is None
    assert training.unless_changed(made(retrain_share=0)) is None


def test_a_version_of_the_age_of_a_setting_is_replaced_if_anything_is_new(made: Any) -> None:
    week_old = replace(TRAINED, trained_at=datetime.now(UTC) - timedelta(days=7))
    values = {"retrain_share": 0.2}
    assert training.unless_changed(made([week_old], train_every="7 days", **values)) is None
    assert training.unless_changed(made([week_old], train_every="8 days", **values)) is not None
    assert training.unless_changed(made([week_old], **values)) is not None

    lake = made([week_old], train_every="7 days", **values)
    lake.commits[tables.SILVER_TRANSACTIONS.name] = [commit(3, "WRITE", 1_000)]
    reason = "0 new rows of 1,000, nothing is new: the champion stays"
    assert training.unless_changed(lake).reason == reason


def test_a_version_that_learned_with_other_settings_is_not_left_as_it_is(made: Any) -> None:
    delayed = {"label_delay": "604800 s", "train_from": "2026-03-01"}
    known = replace(TRAINED, trained_on=TRAINED.trained_on | delayed)
    values = {"retrain_share": 0.2, "train_from": "2026-03-01"}
    assert training.unless_changed(made([known], label_delay="7 days", **values)) is not None
    assert training.unless_changed(made([known], label_delay="6 days", **values)) is None
    assert training.unless_changed(made([known], retrain_share=0.2)) is None
    assert training.unless_changed(made(label_delay="7 days", retrain_share=0.2)) is None


def test_few_new_verdicts_leave_the_champion_and_many_do_not(made: Any) -> None:
    lake = made(retrain_share=0.2)
    lake.commits[tables.SILVER_VERDICTS.name] = [commit(1, "MERGE", 10), commit(0, "MERGE", 90)]
    lake.counts[tables.SILVER_VERDICTS.name] = 100
    reason = "100 new rows of 1,000 and 10 new verdicts of 100, below 20 %: the champion stays"
    assert training.unless_changed(lake).reason == reason
    lake.counts[tables.SILVER_VERDICTS.name] = 60
    assert training.unless_changed(lake) is None


@pytest.mark.parametrize("values", [{"labels": "flink"}, {}])
def test_verdicts_that_cannot_be_learned_do_not_count(made: Any, values: dict[str, Any]) -> None:
    known = replace(TRAINED, trained_on=TRAINED.trained_on | values)
    lake = made([known], retrain_share=0.2, **values)
    lake.commits[tables.SILVER_VERDICTS.name] = [commit(1, "MERGE", 59)]
    lake.counts[tables.SILVER_VERDICTS.name] = 1_000 if values else 59
    assert training.unless_changed(lake).reason == "100 new rows of 1,000, below 20 %: the champion stays"


@pytest.mark.parametrize(
    "known",
    [
        pytest.param([], id="no version"),
        pytest.param([replace(TRAINED, trained_on={})], id="a version that does not say what it learned"),
        pytest.param([replace(TRAINED, trained_on=TRAINED.trained_on | {"holdout": 0.2})], id="other settings"),
        pytest.param(
            [replace(TRAINED, trained_on=TRAINED.trained_on | {"silver_version": 1})], id="the log was cleaned up"
        ),
        pytest.param([replace(TRAINED, trained_on=TRAINED.trained_on | {"silver_version": 9})], id="another table"),
    ],
)
def test_what_is_not_known_trains(made: Any, known: list[Version]) -> None:
    assert training.unless_changed(made(known, retrain_share=0.2)) is None


def test_a_restored_table_trains_and_removed_rows_do_not(made: Any) -> None:
    lake = made(retrain_share=0.2)
    silver = lake.commits[tables.SILVER_TRANSACTIONS.name]
    silver.insert(0, commit(5, "DELETE"))
    silver.insert(0, commit(6, "WRITE", 0, '{"passed_over_by_streams": true}'))
    assert training.unless_changed(lake) is not None
    silver.insert(0, commit(7, "RESTORE"))
    assert training.unless_changed(lake) is None


def test_a_champion_that_cannot_score_trains(made: Any) -> None:
    assert training.unless_changed(made(failure=FraudlakeError("gone"), retrain_share=0.2)) is None


def test_the_latest_verdict_on_a_transaction_counts() -> None:
    from datetime import datetime

    from fraudlake.silver import verdicts

    rows = [("a", True, 1), ("b", False, 2), ("a", False, 3), ("b", True, 2)]
    table = pa.table(
        {
            "transaction_id": [row[0] for row in rows],
            "verdict": [row[1] for row in rows],
            "decided_at": [datetime(2026, 1, row[2]) for row in rows],
        }
    )
    latest = verdicts.latest_of(table)
    assert dict(zip(*(latest[name].to_pylist() for name in ("transaction_id", "verdict")), strict=True)) == {
        "a": False,
        "b": True,
    }
