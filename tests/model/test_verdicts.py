"""Files of verdicts: analysts name transactions or alerts, and learn which ids the lake does not have."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.errors import UsageError
from fraudlake.lake import delta_rs_reader
from fraudlake.model import disputed, verdicts
from fraudlake.rules.kinds import RULE
from fraudlake.settings.disputes import Format
from fraudlake.silver.verdicts import latest_of
from fraudlake.streams import cases, ingest, refine
from fraudlake_tools import simulator
from tests.conftest import FLINK, FraudlakeHere
from tests.every_rule import run
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected, land

pytestmark = pytest.mark.stream

MARCH_7_UTC = datetime(2026, 3, 7, tzinfo=UTC)
LACKING = (
    "needs the columns verdict, and transaction_id, alert_id, case_id or reference, or account_id, amount and timestamp"
)
DEAR = {"kind": "threshold", "name": "dear", "aggregate": "max", "window": "1 transaction", "above": 800}


@pytest.fixture
def raised(lake: Any) -> Any:
    """A lake with an alert, and one of a shadow that ends with the same transaction."""
    opened = lake()
    rule_table.add(opened, [RULE.validate_python(DEAR)], "ann", None)
    rule_table.set_status(opened.store, "dear", "shadow", "ann", None)
    amounts = (20.0, 0.5, 900.0, 30.0)
    detected(opened, [Row("1", MARCH_7 + i * SECOND, amount, position=i) for i, amount in enumerate(amounts)])
    return opened


def ids(lake: Any) -> list[str]:
    """The id of the alert, and that of the shadow's."""
    of_tables = (tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS)
    return [lake.store.query(f"SELECT alert_id FROM {table.name}", table)["alert_id"][0].as_py() for table in of_tables]


def paid(lake: Any, payments: list[dict[str, Any]]) -> None:
    """Write payments t0, t1, … to silver."""
    known = {"timestamp": MARCH_7_UTC, "date": MARCH_7_UTC.date()}
    rows = [{"transaction_id": f"t{n}", **known, **payment} for n, payment in enumerate(payments)]
    table = lake.table(tables.SILVER_TRANSACTIONS)
    lake.writer(table).write(pa.Table.from_pylist(rows, table.schema), "append")


def decided(lake: Any) -> list[tuple[str, bool, str | None]]:
    rows = lake.store.query(
        f"SELECT transaction_id, verdict, analyst FROM {tables.SILVER_VERDICTS.name}", tables.SILVER_VERDICTS
    ).to_pylist()
    return sorted((row["transaction_id"], row["verdict"], row["analyst"]) for row in rows)


def test_verdicts_name_transactions_alerts_or_cases_and_unknown_ids_are_listed(
    raised: Any, tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    alert, shadow = ids(raised)
    cases.update_all(raised)
    file = tmp_path / "decided.csv"
    file.write_text(
        "alert_id,transaction_id,case_id,verdict,analyst\n"
        f"{alert},,,fraud,ann\n{shadow},,,yes,bob\nno-such-alert,,,true,ann\n"
        f",part-0-0,,false,ann\n,part-0-99,,false,ann\n,,{alert},genuine,eve\n,,no-such-case,fraud,eve\n"
    )
    done = fraudlake_here("--lake", str(raised.root), "verdicts", str(file))
    assert done.returncode == 1
    assert done.stdout == "4 verdicts loaded, 0 were known already; no model scores yet: 'fraudlake train' makes one\n"
    assert done.stderr.splitlines()[-1] == (
        f"fraudlake: {file}: 3 rows with no payment in this lake, or with several: not loaded, but written to "
        "decided.csv.unmatched.csv: no-such-alert, no-such-case, part-0-99"
    )
    expected = [
        ("part-0-0", False, "ann"),
        ("part-0-2", False, "eve"),
        ("part-0-2", True, "ann"),
        ("part-0-2", True, "bob"),
    ]
    assert decided(raised) == expected

    again = fraudlake_here("--lake", str(raised.root), "--json", "verdicts", str(file))
    assert again.returncode == 1
    unknown = ["no-such-alert", "no-such-case", "part-0-99"]
    loaded = {"taken": 0, "known": 4, "unmatched": 3, "unknown": unknown, "future": 0}
    assert json.loads(again.stdout) == loaded
    assert decided(raised) == expected

    file.write_text("transaction_id,verdict,decided_at\npart-0-1,true,2100-01-01 00:00:00\n")
    of_future = fraudlake_here("--lake", str(raised.root), "verdicts", str(file))
    assert of_future.stdout.splitlines()[1] == "1 verdict dated in the future: training leaves each out until then"


def test_payments_are_found_by_their_own_reference_and_the_rest_is_a_file_to_load_again(
    lake: Any, tmp_path: Path
) -> None:
    opened = lake(columns=json.dumps({"row_id": "bigint"}))
    paid(opened, [{"row_id": row_id} for row_id in (7, 8, 8, None)])
    file = tmp_path / "disputes.csv"
    file.write_text('ref;code\n7;"lost; stolen"\n8;x\n9;y\n')
    read_as = Format(map={"reference": "ref", "reason": "code"}, verdict="fraud", reference="row_id")
    done = verdicts.load(opened, file, read_as)
    assert (done.taken, done.known, done.unmatched, done.unknown) == (1, 0, 2, ["8", "9"])
    loaded = opened.store.query(
        f"SELECT transaction_id, verdict, reason FROM {tables.SILVER_VERDICTS.name}", tables.SILVER_VERDICTS
    ).to_pylist()
    assert loaded == [{"transaction_id": "t0", "verdict": True, "reason": "lost; stolen"}]
    left_out = verdicts.left_out_file(file)
    assert left_out.read_text().splitlines() == [
        '"ref","code","problem"',
        '"8","x","several payments have this reference"',
        '"9","y","no such payment in the lake"',
    ]
    for _ in range(2):
        assert verdicts.load(opened, left_out, read_as).unmatched == 2
        left_out = verdicts.left_out_file(left_out)
    assert left_out.read_text().splitlines()[0] == '"ref","code","problem"'
    file.write_text('ref;code\n7;"lost; stolen"\n')
    assert verdicts.load(opened, file, read_as).unmatched == 0
    assert not verdicts.left_out_file(file).exists()
    with pytest.raises(UsageError, match="--reference row is not a declared column: the lake has row_id"):
        verdicts.load(opened, file, Format(reference="row"))
    with pytest.raises(UsageError, match="has the reference 7: name the declared column that has it with --reference"):
        verdicts.load(opened, file, Format(map={"reference": "ref"}, verdict="fraud"))


def test_payments_are_found_by_account_amount_and_time(lake: Any, tmp_path: Path) -> None:
    opened = lake()
    minutes = (0, 50, 55, 0, 0, 300)
    amounts = (20.0, 19.99, 19.99, 20.0, 20.004, 20.0)
    accounts = "111231"
    paid(
        opened,
        [
            {"account_id": account, "amount": amount, "timestamp": MARCH_7_UTC + timedelta(minutes=minute)}
            for account, amount, minute in zip(accounts, amounts, minutes, strict=True)
        ],
    )
    file = tmp_path / "disputes.csv"
    file.write_text(
        "card,sum,paid\n"
        '1,"20,00",2026-03-07 01:00:00\n'  # t0; t5 is four hours later
        "1,19.99,2026-03-07 00:10:00\n"  # t1 or t2
        "2,20,2026-03-07 01:00:01\n"  # a second too late for t3
        "3,20,2026-03-06 23:00:00\n"  # t4, whose amount is that to the cent
    )
    of = Format(map="account_id=card, amount=sum, timestamp=paid", verdict="fraud", tolerance=timedelta(hours=1))
    done = verdicts.load(opened, file, of)
    assert (done.taken, done.unmatched, done.unknown) == (2, 2, ["1", "2"])
    assert [row[0] for row in decided(opened)] == ["t0", "t4"]
    left_out = verdicts.left_out_file(file)
    assert left_out.read_text().splitlines() == [
        '"card","sum","paid","problem"',
        '"1","19.99","2026-03-07 00:10:00","several payments of this account, amount and time"',
        '"2","20","2026-03-07 01:00:01","no such payment in the lake"',
    ]
    # Completed by a person, it can be loaded again.
    left_out.write_text("transaction_id,card,sum,paid,problem\nt1,1,19.99,2026-03-07 00:10:00,several\n")
    assert verdicts.load(opened, left_out, of).taken == 1
    assert [row[0] for row in decided(opened)] == ["t0", "t1", "t4"]


def test_spark_finds_the_payments_that_delta_rs_finds(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = lake(columns=json.dumps({"rowId": "bigint"}))
    paid(opened, [{"account_id": "1", "amount": 0.285, "rowId": n // 2} for n in range(4)])
    case = {"alert_ids": ["a", "b"], "transaction_ids": ["t1", "t2"], "date": MARCH_7_UTC.date()}
    opened.writer(tables.GOLD_CASES).write(pa.Table.from_pylist([case], tables.GOLD_CASES.schema), "append")
    alert = {"alert_id": "a", "transaction_id": "t3"}
    opened.writer(tables.SILVER_ALERTS).write(pa.Table.from_pylist([alert], tables.SILVER_ALERTS.schema), "append")
    time = pa.timestamp("us", "UTC")
    texts = {name: [None] * 6 for name in ("transaction_id", "alert_id", "case_id", "reference", "account_id")}
    for nth, (name, text) in enumerate(zip(texts, ("t0", "a", "b", "1", "1"), strict=True)):
        texts[name][nth] = text
    columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    columns["amount"] = pa.array([None] * 4 + [0.285, 0.29], pa.float64())
    columns["timestamp"] = pa.array([None] * 4 + [MARCH_7_UTC, MARCH_7_UTC], time)
    rows = pa.table(columns)
    by_delta_rs, of = disputed.payments(opened, rows, Format(reference="rowId")), Format(reference="rowId")
    monkeypatch.setattr(delta_rs_reader, "is_readable", lambda delta: False)
    by_spark = disputed.payments(opened, rows, of)
    expected = [(0, "t0", 1), (1, "t3", 1), (2, "t1", 1), (2, "t2", 1), (3, "t2", 2), (4, "t0", 4)]
    for found in (by_delta_rs, by_spark):
        assert sorted((row["nth"], row["transaction_id"], row["alike"]) for row in found.to_pylist()) == expected


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        (["t0,fraud,ann\nt0,genuine,ann\n"], False),
        (["t0,fraud,ann\n", "t0,genuine,bob\n"], False),
        (["t0,genuine,ann\n", "t0,fraud,ann\n", "t0,genuine,bob\n"], False),
        (["t0,fraud,ann\nt0,genuine,ann\nt0,fraud,ann\n"], True),
        (["t0,fraud,ann\n", "t0,genuine,ann\nt0,fraud,ann\n"], True),
        # The third file is the first one, which is known.
        (["t0,fraud,ann\n", "t0,genuine,bob\n", "t0,fraud,ann\n"], False),
    ],
)
def test_of_verdicts_of_one_instant_the_later_loaded_counts(
    lake: Any, tmp_path: Path, files: list[str], counts: bool
) -> None:
    opened = lake()
    paid(opened, [{}])
    for content in files:
        file = tmp_path / "decided.csv"
        file.write_text("transaction_id,verdict,analyst,decided_at\n" + content.replace("\n", ",2026-04-06\n"))
        verdicts.load(opened, file)
        assert verdicts.load(opened, file).taken == 0
    written = opened.store.query(
        f"SELECT transaction_id, verdict, decided_at FROM {tables.SILVER_VERDICTS.name}", tables.SILVER_VERDICTS
    )
    assert latest_of(written).to_pylist() == [{"transaction_id": "t0", "verdict": counts}]
    assert len(set(written["decided_at"].to_pylist())) == len(written)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("id,verdict\n1,true\n", f": {LACKING}"),
        ("alert_id\n1\n", f": {LACKING}"),
        ("transaction_id,verdict\npart-0-0,maybe\n", ": row 2: verdict 'maybe' must be true or false"),
        ("transaction_id,verdict\npart-0-0,true\n1,maybe\n", ": row 3: verdict 'maybe' must be true or false"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_line_and_loads_nothing(
    lake: Any, tmp_path: Path, fraudlake_here: FraudlakeHere, text: str, line: str
) -> None:
    opened = lake()
    land(opened, [Row("1", MARCH_7, 20.0)])
    file = tmp_path / "decided.csv"
    file.write_text(text)
    done = fraudlake_here("--lake", str(opened.root), "verdicts", str(file))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"fraudlake: {file}{line}")
    assert decided(opened) == []


@pytest.mark.long
def test_the_documented_query_makes_verdicts_of_a_simulations_truth(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fraudlake_here: FraudlakeHere
) -> None:
    opened = lake()
    traffic = simulator.Traffic(fraud=0.1, bad=0.1, columns=True)
    simulator.simulate(opened.root / "landing", traffic, rows=2000, file_rows=900, truth=tmp_path / "truth")
    run(opened, ingest.streams, refine.streams)
    (query,) = re.findall(
        r"```python\n(.*?silver_transactions JOIN truth.*?)```",
        (FLINK.parent.parent / "docs" / "how-to" / "model.md").read_text(),
        re.S,
    )

    monkeypatch.chdir(tmp_path)
    exec(re.sub(r'parquet\("', f'parquet("{tmp_path}/', query), {})  # Java does not know the new working folder
    done = fraudlake_here("--lake", str(opened.root), "--json", "verdicts", "verdicts")

    assert done.returncode == 0, done.stderr
    truth = {(row["file"], row["row"]): row for row in pq.read_table("truth").to_pylist()}
    silver = opened.store.query(
        f"SELECT transaction_id, source, position FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS
    ).to_pylist()
    known = {row["transaction_id"]: truth[row["source"], row["position"]] for row in silver}
    given = opened.store.query(
        f"SELECT transaction_id, verdict, decided_at FROM {tables.SILVER_VERDICTS.name}", tables.SILVER_VERDICTS
    ).to_pylist()
    assert 0.25 < len(given) / len(silver) < 0.35
    assert sum(row["verdict"] for row in given) > 50
    for row in given:
        assert row["verdict"] == known[row["transaction_id"]]["fraud"]
        assert row["decided_at"].replace(tzinfo=None) == known[row["transaction_id"]]["dt"] + timedelta(days=7)
