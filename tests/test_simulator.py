from __future__ import annotations

import csv
import math
import re
import tomllib
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby, islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fraudlake.bronze import contract, parquet
from fraudlake.settings import Settings
from fraudlake_tools import simulator
from fraudlake_tools.simulator import DECLARATION, SCHEMA, Traffic, Written, batches, simulate

NAME = re.compile(r"part-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+\.parquet")


def first(rows: int, traffic: Traffic) -> pa.Table:
    return pa.Table.from_batches([next(batches(traffic, rows))])


def landed(folder: Path) -> pa.Table:
    files = sorted(folder.iterdir(), key=lambda path: int(path.stem.rsplit("-", 1)[1]))
    return pa.concat_tables([pq.read_table(path) for path in files])


def with_truth(folder: Path, rows: int, traffic: Traffic) -> pa.Table:
    """The rows in one table, with the columns ``fraud`` and ``kind``."""
    simulate(folder / "landing", traffic, rows=rows, truth=folder / "truth")
    table, truth = landed(folder / "landing"), landed(folder / "truth")
    return table.append_column("fraud", truth["fraud"]).append_column("kind", truth["kind"])


def is_clean(row: dict[str, Any]) -> bool:
    return (
        bool(row["accountId"] and row["accountId"].strip())
        and row["amount"] is not None
        and 0 < row["amount"] < math.inf
        and row["dt"] is not None
        and row["dt"].year < 2900
    )


def oracle(table: pa.Table) -> list[bool]:
    """Flink's detector, a row at a time, in event time; equal times in the order of the stream."""
    rows = table.to_pylist()
    alerts = [False] * len(rows)
    small_at: dict[str, datetime] = {}
    for number in sorted((n for n, row in enumerate(rows) if is_clean(row)), key=lambda n: rows[n]["dt"]):
        row = rows[number]
        small = small_at.pop(row["accountId"], None)
        alerts[number] = small is not None and row["amount"] > 500 and row["dt"] - small <= timedelta(seconds=60)
        if row["amount"] < 1:
            small_at[row["accountId"]] = row["dt"]
    return alerts


def test_the_same_seed_gives_the_same_rows(tmp_path: Path) -> None:
    for run in ("a", "b"):
        simulate(tmp_path / run, Traffic(out_of_order=0.1, bad=0.1), rows=100_000)

    [a], [b] = (tmp_path / "a").iterdir(), (tmp_path / "b").iterdir()
    assert a.read_bytes() == b.read_bytes()


def test_another_seed_gives_other_rows() -> None:
    assert not first(1000, Traffic(seed=1)).equals(first(1000, Traffic(seed=2)))


def test_further_columns_fit_the_setting_that_is_printed() -> None:
    further = Traffic(out_of_order=0.1, fraud=0.05, columns=True)
    rows = first(150_000, further)

    assert pa.Table.from_batches(islice(batches(further, 30_000), 5)).equals(rows)
    declared = contract.make(Settings(**tomllib.loads(DECLARATION)).columns)
    fitted = pa.table(contract.fit(rows.combine_chunks().to_batches()[0], contract=declared))
    assert fitted["_rescued_data"].null_count == fitted["_misfits"].null_count == len(rows)
    assert fitted["merchant_id"].equals(rows["merchantId"])
    assert fitted["terminal_id"].equals(rows["terminalId"])
    assert fitted["device_id"].equals(rows["deviceId"])
    assert 0.05 < rows["deviceId"].null_count / len(rows) < 0.15


@pytest.mark.parametrize("batch_rows", [3000, 100_000])
def test_the_batch_size_does_not_change_the_rows(batch_rows: int) -> None:
    traffic = Traffic(out_of_order=0.1, disorder=20)
    stream = batches(traffic, batch_rows)

    parts = [next(stream) for _ in range(300_000 // batch_rows)]

    assert {part.num_rows for part in parts} == {batch_rows}
    assert all(part.schema == SCHEMA for part in parts)
    assert pa.Table.from_batches(parts).equals(first(300_000, traffic))


@pytest.mark.parametrize("file_rows", [999, 10_000, 1_000_000])
def test_the_files_hold_the_first_rows_of_the_stream(tmp_path: Path, file_rows: int) -> None:
    written = simulate(tmp_path, Traffic(), rows=70_001, file_rows=file_rows)

    assert (written.files, written.rows) == (math.ceil(70_001 / file_rows), 70_001)
    assert landed(tmp_path).equals(first(70_001, Traffic()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "traffic",
    [
        Traffic(fraud=0.01),
        Traffic(rate=2, fraud=0.05),
        Traffic(accounts=50, rate=5, bad=0.2, out_of_order=0.3, disorder=100),
        Traffic(accounts=3, rate=1_000_000, fraud=0.05, bad=0.1, out_of_order=0.5, disorder=0.01),
    ],
    ids=["default", "slow", "disorder-and-bad", "equal-times"],
)
def test_alert_is_what_a_row_at_a_time_detector_says_in_event_time(traffic: Traffic) -> None:
    # Late rows may not have come when the table ends, so only alerts well before its end are compared.
    table = first(200_000, traffic)
    settled = 199_000 if traffic.out_of_order == 0 else 150_000

    expected = oracle(table)[:settled]

    assert table["alert"].to_pylist()[:settled] == expected
    assert sum(expected) > 100


def test_hours_in_which_nobody_pays_do_not_end_the_stream() -> None:
    table = first(2000, Traffic(accounts=1, rate=0.001, fraud=0.2, bad=0.5))

    assert table["alert"].to_pylist() == oracle(table)


def test_rows_come_in_event_time_order_at_the_rate() -> None:
    times = first(200_000, Traffic(rate=500))["dt"].to_numpy()

    assert (np.diff(times) >= np.timedelta64(0)).all()
    assert times[0] >= np.datetime64("2026-01-01")
    assert (times[-1] - times[0]) / np.timedelta64(1, "s") == pytest.approx(400, rel=0.02)


def test_the_stream_starts_at_the_instant_given_in_any_zone() -> None:
    start = datetime.fromisoformat("2026-03-07T23:00:00-05:00")

    assert first(1, Traffic(rate=1000, start=start))["dt"][0].as_py().isoformat().startswith("2026-03-08T04:00:00")


@pytest.mark.slow
@pytest.mark.parametrize(
    "traffic",
    [Traffic(), Traffic(fraud=0.2), Traffic(accounts=5, fraud=0.05), Traffic(rate=1), Traffic(fraud=0.03, bad=0.3)],
    ids=["default", "much", "few-accounts", "slow", "bad"],
)
def test_the_share_of_fraud_is_what_was_asked_a_third_each_kind(tmp_path: Path, traffic: Traffic) -> None:
    table = with_truth(tmp_path, 300_000, traffic)

    fraud = 300_000 * traffic.fraud
    counts = {entry["values"]: entry["counts"] for entry in table["kind"].drop_null().value_counts().to_pylist()}
    assert counts == {kind: pytest.approx(fraud / 3, rel=0.1) for kind in ("small_then_large", "burst", "foreign")}


def test_no_fraud_can_be_asked(tmp_path: Path) -> None:
    assert simulate(tmp_path, Traffic(fraud=0), rows=100_000).fraud_rows == 0


@pytest.mark.parametrize("accounts", [1, 10, 100_000])
def test_the_rule_flags_every_small_then_large_and_no_other_fraud(tmp_path: Path, accounts: int) -> None:
    table = with_truth(tmp_path, 200_000, Traffic(accounts=accounts, fraud=0.02, out_of_order=0.2, bad=0.1))

    kinds = table.group_by(["kind", "alert"]).aggregate([([], "count_all")]).to_pylist()
    assert {(row["kind"], row["alert"]) for row in kinds} == {
        ("small_then_large", True),
        ("burst", False),
        ("foreign", False),
        (None, False),
        (None, True),  # honest pairs
    }


def test_legitimate_traffic_has_small_large_and_paired_amounts_sometimes(tmp_path: Path) -> None:
    table = with_truth(tmp_path, 300_000, Traffic())

    legitimate = table.filter(pc.invert(table["fraud"]))
    assert 0.01 < pc.mean(pc.less(legitimate["amount"], 1)).as_py() < 0.05
    assert 0.002 < pc.mean(pc.greater(legitimate["amount"], 500)).as_py() < 0.02
    assert 0 < pc.sum(legitimate["alert"]).as_py() < 0.5 * pc.sum(table["alert"]).as_py()


def test_a_burst_is_five_to_ten_middling_payments_within_minutes(tmp_path: Path) -> None:
    table = with_truth(tmp_path, 200_000, Traffic(accounts=20_000, rate=50, fraud=0.003))

    frauds = table.filter(pc.equal(table["kind"], "burst")).sort_by([("accountId", "ascending"), ("dt", "ascending")])
    assert pc.min(frauds["amount"]).as_py() >= 80
    assert pc.max(frauds["amount"]).as_py() <= 400
    by_account = [list(rows) for _, rows in groupby(frauds.to_pylist(), key=lambda row: row["accountId"])]
    assert len(by_account) > 10
    single = [rows for rows in by_account if len(rows) <= 10]  # the others are of several bursts
    whole = [rows for rows in single if rows[-1]["dt"] < table["dt"][-1].as_py() - timedelta(minutes=4)]
    assert min(len(rows) for rows in whole) >= 5
    gaps = [b["dt"] - a["dt"] for rows in single for a, b in pairwise(rows)]
    assert np.median(gaps) < timedelta(minutes=1)


def test_a_foreign_payment_is_far_above_the_accounts_own_and_at_an_hour_when_it_sleeps(tmp_path: Path) -> None:
    table = with_truth(tmp_path, 400_000, Traffic(accounts=100, rate=2))

    hours = table.append_column("hour", pc.hour(table["dt"]))
    usual = hours.filter(pc.and_(pc.invert(hours["fraud"]), pc.greater(hours["amount"], 1)))
    foreign = hours.filter(pc.equal(hours["kind"], "foreign"))
    awake = set(zip(usual["accountId"].to_pylist(), usual["hour"].to_pylist(), strict=True))
    level = {
        row["accountId"]: row["amount_approximate_median"]
        for row in usual.group_by("accountId").aggregate([("amount", "approximate_median")]).to_pylist()
    }
    assert not awake & set(zip(foreign["accountId"].to_pylist(), foreign["hour"].to_pylist(), strict=True))
    assert all(row["amount"] > 6 * level[row["accountId"]] for row in foreign.to_pylist() if row["amount"] != 500)


def test_accounts_have_their_own_level_and_hours_and_some_pay_much_more_often() -> None:
    table = first(400_000, Traffic(accounts=200, rate=2))

    accounts = table.append_column("hour", pc.hour(table["dt"])).group_by("accountId")
    summary = accounts.aggregate([("amount", "approximate_median"), ("hour", "count_distinct"), ("hour", "count")])
    assert summary.num_rows == 200
    assert pc.stddev(pc.ln(summary["amount_approximate_median"])).as_py() > 0.5
    assert pc.mean(summary["hour_count_distinct"]).as_py() < 18
    assert pc.max(summary["hour_count"]).as_py() > 5 * pc.approximate_median(summary["hour_count"]).as_py()


FURTHER = Traffic(accounts=3000, rate=0.4, fraud=0.02, bad=0.02, out_of_order=0.1, columns=True, compromised_days=2)
"""Six days, in which terminals are compromised for two days each, and cards stolen for one."""


@pytest.fixture(scope="module")
def further(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The rows of ``FURTHER`` with their truth, and ``plain``: their amounts in the stream without columns."""
    folder = tmp_path_factory.mktemp("further")
    rows = with_truth(folder, 200_000, FURTHER).to_pandas()
    plain = with_truth(folder / "plain", 200_000, replace(FURTHER, columns=False)).to_pandas()
    pd.testing.assert_frame_equal(rows[["dt", "accountId"]], plain[["dt", "accountId"]])
    pd.testing.assert_series_equal(rows["kind"][plain["fraud"]], plain["kind"][plain["fraud"]])
    named = rows["accountId"].str.strip().fillna("") != ""
    is_clean = named & rows["amount"].between(0, math.inf, inclusive="neither") & (rows["dt"].dt.year < 2900)
    return rows.assign(plain=plain["amount"], plain_kind=plain["kind"], is_clean=is_clean)


@pytest.mark.slow
def test_with_columns_only_stolen_cards_pay_other_amounts_and_flinks_verdict_follows(further: pd.DataFrame) -> None:
    stolen = further[further["kind"] == "stolen_card"]
    others = further[further["kind"] != "stolen_card"]

    pd.testing.assert_series_equal(others["amount"], others["plain"], check_names=False)
    np.testing.assert_allclose(stolen["amount"], stolen["plain"] * 5, atol=0.006)
    assert stolen["plain"].min() >= 1
    rows = pa.Table.from_pandas(further[["dt", "accountId", "amount"]])
    assert further["alert"].tolist()[:190_000] == oracle(rows)[:190_000]


@pytest.mark.slow
def test_a_compromised_terminal_takes_nothing_but_fraud_until_its_time_is_over(further: pd.DataFrame) -> None:
    clean = further[further["is_clean"]].sort_values(["terminalId", "dt"])
    honest_so_far = (~clean["fraud"]).groupby(clean["terminalId"]).cumsum()
    fraud = clean[clean["kind"] == "compromised_terminal"]

    # A period is a run of payments without an honest one. A terminal that is compromised again has two.
    runs = fraud.groupby(["terminalId", honest_so_far])["dt"].agg(["min", "max", "count"])
    lasted = runs["max"] - runs["min"]
    alone = lasted[lasted <= timedelta(days=2)]
    assert len(alone) > 0.98 * len(runs)
    assert alone.max() > timedelta(days=1.9)
    assert runs["count"].median() > 20
    assert len(fraud) / len(clean) == pytest.approx(FURTHER.fraud, rel=0.15)
    assert fraud.groupby(fraud["dt"].dt.date).size().min() > 100  # it begins with the stream, and goes on


@pytest.mark.slow
def test_a_third_of_a_stolen_cards_payments_are_multiplied_until_its_time_is_over(further: pd.DataFrame) -> None:
    clean = further[further["is_clean"] & further["plain_kind"].isna() & (further["plain"] >= 1)]
    ends = clean[clean["kind"] == "stolen_card"].groupby("accountId")["dt"].agg(["min", "max", "count"])
    once = ends[ends["max"] - ends["min"] <= timedelta(days=1)]
    while_stolen = clean.join(once, on="accountId", how="inner")
    inside = while_stolen[(while_stolen["dt"] > while_stolen["min"]) & (while_stolen["dt"] < while_stolen["max"])]

    assert len(once) > 200
    assert (once["max"] - once["min"]).max() > timedelta(hours=20)
    assert (inside["kind"] == "stolen_card").mean() == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.slow
def test_every_payment_above_the_limit_is_fraud(further: pd.DataFrame) -> None:
    clean = further[further["is_clean"]]

    assert clean[clean["amount"] > 1500]["fraud"].all()
    assert clean[clean["kind"] == "large_amount"]["amount"].min() > 1500
    assert (clean["kind"] == "large_amount").sum() > 10


@pytest.mark.slow
def test_an_account_pays_at_terminals_near_its_home_and_a_foreign_payment_is_anywhere(further: pd.DataFrame) -> None:
    named = further[further["is_clean"]]
    abroad = named[named["kind"] == "foreign"]
    at_home = named[named["kind"] != "foreign"].groupby("accountId")["terminalId"].agg(set)

    assert at_home.map(len).max() == 16
    strange = [one.terminalId not in at_home[one.accountId] for one in abroad.itertuples()]
    assert np.mean(strange) > 0.97
    assert further["terminalId"].between(0, 1999).all()
    assert (further["merchantId"] == "m" + (further["terminalId"] // 4).astype(str)).all()


@pytest.mark.slow
def test_by_default_a_terminal_is_compromised_while_it_has_28_payments_whatever_the_rate(tmp_path: Path) -> None:
    counts = []
    for rate in (1000.0, 0.5):
        rows = with_truth(tmp_path / str(rate), 250_000, Traffic(rate=rate, columns=True)).to_pandas()
        fraud = rows[rows["kind"] == "compromised_terminal"]
        begins = rows["dt"].min() + timedelta(seconds=2000 * 28 / rate)  # those open at the start are over
        fraud = fraud[fraud["terminalId"].isin(set(fraud[fraud["dt"] > begins]["terminalId"]))]
        counts.append(fraud.groupby("terminalId").size().mean())
    assert counts == [pytest.approx(28, rel=0.5)] * 2


def test_without_fraud_further_columns_bring_none(tmp_path: Path) -> None:
    assert not pc.any(with_truth(tmp_path, 100_000, Traffic(fraud=0, columns=True))["fraud"]).as_py()


def test_no_row_stands_later_in_the_stream_than_the_bound() -> None:
    times = first(200_000, Traffic(rate=500, out_of_order=0.2, disorder=30))["dt"].to_numpy()

    behind = (np.maximum.accumulate(times) - times) / np.timedelta64(1, "s")
    assert 25 < behind.max() <= 30
    assert (behind > 0).mean() == pytest.approx(0.2, rel=0.1)


def test_disorder_moves_rows_and_changes_none() -> None:
    straight = first(300_000, Traffic())
    displaced = first(300_000, Traffic(out_of_order=0.5, disorder=3))

    by_time = [("dt", "ascending"), ("accountId", "ascending")]
    assert displaced.sort_by(by_time).slice(0, 290_000).equals(straight.sort_by(by_time).slice(0, 290_000))


def test_bad_rows_come_in_every_kind_and_share() -> None:
    rows = first(100_000, Traffic(bad=0.1)).to_pylist()

    kinds = {
        "null account": lambda row: row["accountId"] is None,
        "blank account": lambda row: row["accountId"] is not None and not row["accountId"].strip(),
        "null amount": lambda row: row["amount"] is None,
        "nan": lambda row: row["amount"] is not None and math.isnan(row["amount"]),
        "infinite": lambda row: row["amount"] == math.inf,
        "negative": lambda row: row["amount"] is not None and row["amount"] < 0,
        "zero": lambda row: row["amount"] == 0,
        "null dt": lambda row: row["dt"] is None,
        "far future": lambda row: row["dt"] is not None and row["dt"].year > 2900,
    }
    counts = {kind: sum(map(broken, rows)) for kind, broken in kinds.items()}
    assert counts == dict.fromkeys(kinds, pytest.approx(100_000 * 0.1 / 9, rel=0.15))
    assert sum(not is_clean(row) for row in rows) == pytest.approx(10_000, rel=0.05)
    assert not any(row["alert"] for row in rows if not is_clean(row))


def test_clean_traffic_has_no_bad_row() -> None:
    assert all(map(is_clean, first(50_000, Traffic()).to_pylist()))


def test_files_look_like_flinks(tmp_path: Path) -> None:
    simulate(tmp_path, Traffic(bad=0.1), rows=2500, file_rows=1000)

    assert len(list(tmp_path.iterdir())) == 3
    for path in tmp_path.iterdir():
        assert NAME.fullmatch(path.name)
        file = pq.ParquetFile(path)
        assert file.schema_arrow.equals(SCHEMA)
        assert file.schema_arrow.metadata == {b"fraudlake": b"simulate"}  # who wrote it: forget may rewrite it
        dt = file.schema.column(0)
        assert (dt.physical_type, dt.max_definition_level) == ("INT64", 1)
        assert "isAdjustedToUTC=false, timeUnit=microseconds" in str(dt.logical_type)
        assert file.metadata.format_version == "1.0"
        assert file.metadata.row_group(0).column(0).compression == "SNAPPY"


def test_a_file_is_hidden_until_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def write_and_look(table: pa.Table, path: Path) -> None:
        write_own(table, path)
        seen.append([file.name for file in tmp_path.iterdir()])

    write_own = parquet.write_own
    monkeypatch.setattr(parquet, "write_own", write_and_look)

    simulate(tmp_path, Traffic(), rows=100)

    [[unfinished]] = seen
    [finished] = tmp_path.iterdir()
    assert re.fullmatch(rf"\.{re.escape(finished.name)}\.inprogress\.[0-9a-f-]{{36}}", unfinished)


def test_an_interrupt_goes_on_to_the_caller_and_leaves_complete_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, truth = tmp_path / "landing", tmp_path / "truth"

    def interrupted(table: pa.Table, path: Path) -> None:
        path.write_bytes(b"PAR1")
        if path.parent == landing:
            raise KeyboardInterrupt

    def interrupt_the_next(rows: int) -> None:
        monkeypatch.setattr(parquet, "write_own", interrupted)

    with pytest.raises(KeyboardInterrupt):
        simulate(landing, Traffic(), rows=300, file_rows=100, truth=truth, progress=interrupt_the_next)

    assert landed(landing).num_rows == 100
    assert [path.name for path in truth.iterdir()] == [path.name for path in landing.iterdir()]


def test_truth_tells_of_every_row_where_it_is_and_what(tmp_path: Path) -> None:
    landing, truth = tmp_path / "landing", tmp_path / "truth"

    written = simulate(landing, Traffic(bad=0.1, fraud=0.05), rows=25_000, file_rows=10_000, truth=truth)

    assert sorted(path.name for path in truth.iterdir()) == sorted(path.name for path in landing.iterdir())
    for path in landing.iterdir():
        rows, truth_rows = pq.read_table(path), pq.read_table(truth / path.name)
        assert truth_rows.select(["accountId", "dt"]).equals(rows.select(["accountId", "dt"]))
        assert set(truth_rows["file"].to_pylist()) == {path.name}
        assert truth_rows["row"].to_pylist() == list(range(rows.num_rows))
        assert truth_rows["fraud"].equals(truth_rows["kind"].is_valid())
    assert written == Written(files=3, rows=25_000, fraud_rows=pc.sum(landed(truth)["fraud"]).as_py())
    assert landed(truth).schema.equals(
        pa.schema(
            [
                ("file", pa.string()),
                ("row", pa.int64()),
                ("accountId", pa.string()),
                ("dt", pa.timestamp("us")),
                ("fraud", pa.bool_()),
                ("kind", pa.string()),
            ]
        )
    )


def test_a_second_run_overwrites_nothing(tmp_path: Path) -> None:
    simulate(tmp_path, Traffic(), rows=200, file_rows=100)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    simulate(tmp_path, Traffic(), rows=200, file_rows=100)

    assert len(list(tmp_path.iterdir())) == 4
    assert {path: path.read_bytes() for path in before} == before


def test_progress_tells_the_rows_written_so_far(tmp_path: Path) -> None:
    reported: list[int] = []

    simulate(tmp_path, Traffic(), rows=250, file_rows=100, progress=reported.append)

    assert reported == [100, 200, 250]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that only moves by sleeping."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(simulator, "time", clock)
    return clock


def test_in_real_time_a_file_is_written_every_second(tmp_path: Path, clock: SimpleNamespace) -> None:
    reported: list[tuple[float, int]] = []

    simulate(tmp_path, Traffic(rate=50), rows=120, real_time=True, progress=lambda n: reported.append((clock.now, n)))

    assert reported == [(1.0, 50), (2.0, 100), (2.4, 120)]


def test_in_real_time_a_slow_stream_writes_each_row_when_it_is_due(tmp_path: Path, clock: SimpleNamespace) -> None:
    written = simulate(tmp_path, Traffic(rate=0.25), seconds=10, real_time=True)

    assert (written.files, written.rows, clock.now) == (2, 2, 8.0)


def test_a_run_ends_when_its_seconds_are_over(tmp_path: Path, clock: SimpleNamespace) -> None:
    def a_second_a_file(rows: int) -> None:
        clock.now += 1

    assert simulate(tmp_path, Traffic(), seconds=2.5, file_rows=10, progress=a_second_a_file).files == 3


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("accounts", 0, "from 1 to 10,000,000"),
        ("rate", 0, "from 0.001 to 10,000,000"),
        ("rate", math.nan, "from 0.001 to 10,000,000"),
        ("start", datetime(2026, 1, 1), "must have a time zone"),
        ("fraud", 0.3, "from 0 to 0.2"),
        ("out_of_order", 1.1, "from 0 to 1"),
        ("disorder", -1, "from 0 to 86,400"),
        ("bad", 0.6, "from 0 to 0.5"),
        ("seed", -1, "at least 0"),
        ("compromised_days", 0, "from 0.01 to 3,650"),
    ],
)
def test_impossible_traffic_is_refused_by_name_value_and_what_is_allowed(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}=.*{allowed}") as error:
        Traffic(**{field: value})

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("limits", [{"rows": 0}, {"seconds": -1}, {"file_rows": 0}])
def test_impossible_limits_are_refused(tmp_path: Path, limits: dict[str, int]) -> None:
    [name] = limits
    with pytest.raises(ValueError, match=f"^{name}=.*at least"):
        simulate(tmp_path / "landing", Traffic(), **limits)  # type: ignore[arg-type]

    assert not (tmp_path / "landing").exists()


def test_truth_inside_the_landing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"truth=.*must be outside the landing folder"):
        simulate(tmp_path, Traffic(), rows=10, truth=tmp_path / "truth")


def test_chargebacks_are_the_frauds_by_the_day_on_which_they_become_known(tmp_path: Path) -> None:
    traffic = Traffic(accounts=200, rate=0.02, columns=True, bad=0.05)
    folders = {"truth": tmp_path / "truth", "chargebacks": tmp_path / "bank"}
    simulate(tmp_path / "landing", traffic, rows=30_000, file_rows=7_000, **folders)
    paid, truth = landed(tmp_path / "landing"), landed(tmp_path / "truth")
    is_fraud = truth["fraud"].to_pylist()
    frauds = [row for row, fraud in zip(paid.to_pylist(), is_fraud, strict=True) if fraud]
    expected = sorted((row["accountId"], f"{row['amount']:.2f}", row["dt"]) for row in frauds)

    found = []
    for file in (tmp_path / "bank").iterdir():
        with file.open() as lines:
            for row in csv.DictReader(lines):
                at, known = map(datetime.fromisoformat, (row["timestamp"], row["decided_at"]))
                assert file.name == f"{known.date()}.csv"
                assert timedelta(days=5) <= known - at <= timedelta(days=20)
                found.append((row["account_id"], row["amount"], at))
    assert sorted(found) == expected
    assert len(found) > 300
