"""The quarantine through the command line: its report, and replays, exactly once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import Lake
from fraudlake.lake.local import LocalLake
from fraudlake.lake.spark_store import SparkStore
from fraudlake.operations.status import status
from fraudlake.quarantine import replay
from fraudlake.streams import refine, stream
from fraudlake_cli.commands import cli
from tests import plain_lake
from tests.conftest import LONG_BY_SPARK

pytestmark = pytest.mark.stream

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
NAN = float("nan")


def land(lake: Lake, rows: list[tuple[str | None, float, str | None]], first: int = 0) -> None:
    """Append rows to bronze: account, amount and id; their positions begin with ``first``."""
    assert lake.folder is not None
    common = {"dt": NOON, "alert": False, "_source_file": "a", "_ingested_at": NOON, "date": NOON.date()}
    full = [
        {**common, "accountId": account, "amount": amount, "transaction_id": own, "_source_row": at}
        for at, (account, amount, own) in enumerate(rows, first)
    ]
    plain_lake.fill(lake.folder, tables.BRONZE_TRANSACTIONS, *full)


@pytest.fixture(scope="module")
def refined(module_lake: Lake) -> Lake:
    """A lake with rows 0 and 5 in silver and rows 1 to 5 in quarantine: row 5 is late, so it is in both."""
    rows = [
        ("1", 5.0, "x"),
        ("1", -6.0, None),
        (None, -7.0, None),
        ("2", NAN, None),
        ("1", -5.0, "x"),
        ("3", 9.0, None),
    ]
    land(module_lake, rows)
    stream.run(module_lake, refine.streams(module_lake), "available-now")
    module_lake.spark.sql(
        "INSERT INTO silver_quarantine SELECT * EXCEPT (date), array('late'), current_timestamp() "
        "FROM bronze_transactions WHERE _source_row = 5"
    )
    return module_lake


@pytest.fixture
def broken(refined: Lake, lake: Callable[..., Lake], tmp_path: Path) -> Lake:
    """A copy of the lake."""
    assert refined.folder is not None
    shutil.copytree(refined.folder, tmp_path / "lake")
    return lake()


def silver(lake: Lake) -> list[tuple[int, float, list[str] | None]]:
    rows = lake.store.query(
        f"SELECT * FROM {tables.SILVER_TRANSACTIONS.name} ORDER BY position", tables.SILVER_TRANSACTIONS
    ).to_pylist()
    return [(row["position"], row["amount"], row["warnings"]) for row in rows]


def quarantine(lake: Lake) -> list[tuple[int, list[str]]]:
    rows = lake.store.query(
        f"SELECT * FROM {tables.SILVER_QUARANTINE.name} ORDER BY _source_row", tables.SILVER_QUARANTINE
    ).to_pylist()
    return [(row["_source_row"], row["reasons"]) for row in rows]


def run(lake: Lake, *arguments: str) -> None:
    cli.main(["--lake", str(lake.root), "--json", *arguments], standalone_mode=False)


@pytest.mark.long
def test_a_time_in_seconds_is_taken_once_it_is_mended(lake: Callable[..., Lake]) -> None:
    opened = lake()
    assert opened.folder is not None
    row = {"accountId": "1", "amount": 5.0, "alert": False, "_topic": "t", "_partition": 0, "_ingested_at": NOON}
    misread = {"_misfits": ["dt in seconds"], "reasons": ["timestamp_is_not_in_seconds"]}
    read = datetime.fromtimestamp(NOON.timestamp() / 1000, UTC)
    plain_lake.fill(opened.folder, tables.SILVER_QUARANTINE, {**row, **misread, "dt": read, "_offset": 1})

    mended = "dt=timestamp_micros(1000 * unix_micros(dt))"
    run(opened, "quarantine", "--replay", "--rule", "timestamp_is_not_in_seconds", "--set", mended)

    taken = opened.store.query(
        f"SELECT * FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS
    ).to_pylist()
    assert [(row["position"], row["timestamp"]) for row in taken] == [(1, NOON)]
    assert opened.store.query(f"SELECT * FROM {tables.SILVER_QUARANTINE.name}", tables.SILVER_QUARANTINE).num_rows == 0


@pytest.fixture(params=["delta-rs", pytest.param("spark", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What reads the tables: delta-rs, or Spark as in a workspace."""
    if request.param == "spark":
        monkeypatch.setattr(LocalLake, "store", property(SparkStore))
    return str(request.param)


@pytest.mark.usefixtures("engine")
def test_rows_are_counted_by_rule_with_samples(broken: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    run(broken, "quarantine", "--limit", "1")
    shown = json.loads(capfd.readouterr().out)
    assert shown["rows"] == 5
    assert shown["reasons"] == {
        "account_is_named": 1,
        "amount_is_known": 1,
        "amount_is_positive": 3,
        "late": 1,
        "transaction_is_new": 1,
    }
    (sample,) = shown["samples"]["amount_is_positive"]
    assert (sample["source"], sample["position"], sample["amount"]) == ("a", 1, -6.0)
    assert sample["dt"] == "2026-03-07 12:00:00"

    run(broken, "quarantine", "--rule", "amount_is_known")
    only = json.loads(capfd.readouterr().out)
    assert (only["rows"], only["reasons"]) == (1, {"amount_is_known": 1})
    assert only["samples"]["amount_is_known"][0]["amount"] == "NaN"  # which JSON has no number for

    with pytest.raises(UsageError, match="--rule amount: there is no such rule; there are message_is_readable, "):
        run(broken, "quarantine", "--rule", "amount")


@pytest.mark.usefixtures("engine")
def test_status_adds_up_with_late_rows_and_says_why_rows_are_kept(broken: Lake) -> None:
    counts = status(broken)
    assert (counts.rows.bronze, counts.rows.silver, counts.rows.quarantine, counts.rows.late) == (6, 2, 5, 1)
    assert not [gap for gap in counts.gaps if "refine" in gap]
    assert counts.rows.reasons["amount_is_positive"] == 3
    assert set(counts.streams.last_batches) == {"refine"}


@pytest.mark.long
def test_a_rule_that_is_mended_lets_rows_back_in_once(lake: Callable[..., Lake], broken: Lake) -> None:
    mended = lake(warn=("amount_is_positive",))
    first = replay.replay(mended, None, {})
    assert (first.moved, first.stayed, first.not_replayable) == (1, 3, 1)
    assert silver(mended) == [(0, 5.0, None), (1, -6.0, ["amount_is_positive"]), (5, 9.0, None)]
    # Rows that stay have the reasons that they have now.
    assert quarantine(mended) == [
        (2, ["account_is_named"]),
        (3, ["amount_is_known"]),
        (4, ["transaction_is_new"]),
        (5, ["late"]),
    ]
    again = replay.replay(mended, None, {})
    assert (again.moved, again.stayed) == (0, 3)
    assert status(mended).rows.warnings == {"amount_is_positive": 1}


@pytest.mark.long
def test_a_value_that_is_mended_lets_rows_of_one_rule_back_in(broken: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    run(broken, "quarantine", "--replay", "--rule", "amount_is_positive", "--set", "amount=abs(amount)")
    message = json.loads(capfd.readouterr().out)
    assert message == {"moved": 1, "stayed": 2, "not_replayable": 0, "finished": 0}
    assert silver(broken) == [(0, 5.0, None), (1, 6.0, None), (5, 9.0, None)]
    assert quarantine(broken)[0] == (2, ["account_is_named", "amount_is_positive"])
    landed = broken.read(tables.BRONZE_TRANSACTIONS).where("_source_row = 1").first()
    assert landed is not None and landed["amount"] == -6.0


@pytest.mark.long
@pytest.mark.usefixtures("each_writer")
@pytest.mark.parametrize("cut_before", ["append", "delete", "done"])
def test_a_replay_that_was_interrupted_is_finished_by_the_next_one(
    broken: Lake, monkeypatch: pytest.MonkeyPatch, cut_before: str
) -> None:
    def killed(*arguments: Any, **options: Any) -> None:
        raise OSError("killed")

    target: dict[str, tuple[Any, str]] = {
        "append": (replay.Appender, "append"),
        "delete": (replay, "_update_quarantine"),
        "done": (Path, "touch"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(*target[cut_before], killed)
        with pytest.raises(OSError, match="killed"):
            replay.replay(broken, None, {"amount": "abs(nvl(amount, 1))", "accountId": "nvl(accountId, '9')"})
    assert any("1 replay of the quarantine not finished" in gap for gap in status(broken).gaps)

    again = replay.replay(broken, None, {})
    assert (again.finished, again.moved) == (1, 0)
    assert silver(broken) == [(0, 5.0, None), (1, 6.0, None), (2, 7.0, None), (5, 9.0, None)]
    assert [row[0] for row in quarantine(broken)] == [3, 4, 5]
    assert not [gap for gap in status(broken).gaps if "refine" in gap or "cut" in gap]


def ids(lake: Lake) -> list[str]:
    rows = lake.read(tables.SILVER_TRANSACTIONS).select("transaction_id").collect()
    return sorted(row["transaction_id"] for row in rows)


@pytest.mark.long
@pytest.mark.usefixtures("each_writer")
@LONG_BY_SPARK
def test_refine_takes_no_id_that_a_cut_replay_moves(broken: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(broken, [("1", -8.0, "y")], first=6)
    stream.run(broken, refine.streams(broken), "available-now")
    with monkeypatch.context() as patched:
        patched.setattr(replay, "_carry_out", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            replay.replay(broken, "amount_is_positive", {"amount": "abs(amount)"})
    land(broken, [("1", 8.0, "y")], first=7)
    stream.run(broken, refine.streams(broken), "available-now")
    replay.replay(broken, None, {})
    assert ids(broken).count("y") == 1
    assert [
        row["position"] for row in broken.read(tables.SILVER_TRANSACTIONS).where("transaction_id = 'y'").collect()
    ] == [6]
    assert not [gap for gap in status(broken).gaps if "refine" in gap or "cut" in gap]


@pytest.mark.long
@pytest.mark.usefixtures("each_writer")
def test_a_replay_first_finishes_the_micro_batch_in_which_refine_was_cut(
    broken: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(broken, [("1", 8.0, "y"), ("1", -8.0, "y"), ("1", -9.0, "z")], first=6)
    append = replay.Appender.append

    def killed(self: Any, lake: Lake, rows: Any, table: tables.Table, *arguments: Any, **options: Any) -> None:
        if table is tables.SILVER_QUARANTINE:
            raise OSError("killed")
        append(self, lake, rows, table, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(replay.Appender, "append", killed)
        with pytest.raises(FraudlakeError, match="killed"):
            stream.run(broken, refine.streams(broken), "available-now")
    with pytest.raises(FraudlakeError, match="run 'fraudlake refine' first to finish it"):
        replay.replay(broken, None, {})

    run(
        broken,
        "quarantine",
        "--replay",
        "--set",
        "amount=abs(nvl(amount, 1))",
        "--set",
        "accountId=nvl(accountId, '9')",
    )
    assert [name for name in ids(broken) if name in "xyz"] == ["x", "y", "z"]
    assert not [gap for gap in status(broken).gaps if "refine" in gap or "cut" in gap]


def test_a_replay_is_refused_while_refine_runs(broken: Lake) -> None:
    with FileLock(broken.root / "locks" / "refine"), pytest.raises(FraudlakeError, match="already runs 'refine'"):
        replay.replay(broken, None, {})


@pytest.mark.parametrize(
    ("mended", "line"),
    [
        ({"date": "dt"}, "--set date: there is no such column; there are dt, accountId"),
        ({"amount": "abs(betrag)"}, "--set amount=abs\\(betrag\\): .*betrag"),
        ({"amount": "abs("}, "--set amount=abs\\(: "),
        ({"amount": "CAST('x' AS DOUBLE)"}, "nothing was changed: .*CAST_INVALID_INPUT"),
    ],
)
def test_an_expression_that_cannot_be_used_changes_nothing(broken: Lake, mended: dict[str, str], line: str) -> None:
    before = quarantine(broken)
    with pytest.raises(FraudlakeError, match=line) as refused:
        replay.replay(broken, None, mended)
    assert "\n" not in str(refused.value)
    assert (quarantine(broken), replay.unfinished(broken)) == (before, [])
