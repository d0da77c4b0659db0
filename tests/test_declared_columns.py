"""Declared columns: one setting adds them to a running lake, and removes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake import Lake
from fraudlake.lake.appender import Appender
from fraudlake.lake.definition import Change
from fraudlake.operations.status import status
from fraudlake.quarantine import replay
from fraudlake.streams import aggregate, detect, ingest, refine, stream
from fraudlake.tables import Table
from fraudlake_cli.commands import cli
from tests.conftest import FraudlakeHere

pytestmark = pytest.mark.stream

Open = Callable[..., Lake]
Step = Callable[[Lake], list[stream.Stream]]
ALL = (ingest.streams, refine.streams, detect.streams, aggregate.streams)
ME = Change("me")
MARCH_7 = datetime(2026, 3, 7)
COLUMNS = {
    "kind": "string",
    "merchant_id": {"from": "merchantId", "type": "string", "nullable": False},
    "terminal_id": {"from": "terminalId", "type": "bigint"},
}


def land(folder: Path, name: str, second: int, amount: float, **fields: Any) -> None:
    """Land a file of one row of account 1."""
    time = pa.array([MARCH_7 + timedelta(seconds=second)], pa.timestamp("us"))
    row = {"dt": time, "accountId": ["1"], "amount": [amount], "alert": [False]}
    pq.write_table(pa.table({**row, **{field: [value] for field, value in fields.items()}}), folder / name)


def run(lake: Lake, *chosen: Step) -> None:
    """Run the streams of steps over what is there."""
    for step in chosen:
        stream.run(lake, step(lake), "available-now")


def silver(lake: Lake, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in lake.read(tables.SILVER_TRANSACTIONS).orderBy("timestamp").select(*names).collect()]


def quarantine(lake: Lake) -> list[tuple[str, list[str]]]:
    rows = lake.read(tables.SILVER_QUARANTINE).orderBy("dt").collect()
    return [(row["_source_file"], row["reasons"]) for row in rows]


@pytest.mark.long
def test_a_lake_that_runs_takes_columns_on_and_gives_them_up(
    lake: Open, landing: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    land(landing, "old", 0, 0.5, kind="chip", merchantId="m1", terminalId=1)
    without = lake()
    run(without, *ALL)
    ids = {step: without.checkpoint(step).notes.id for step in ("ingest", "refine", "detect", "account_daily")}

    land(landing, "new", 1, 900.0, kind="chip", merchantId="m2", terminalId=2.0, shop="x")
    land(landing, "wrong", 2, 7.0, kind=5, merchantId="m3", terminalId="T3")
    land(landing, "without", 3, 8.0, kind="chip")
    declared = lake(columns=COLUMNS, change=ME)
    run(declared, *ALL)

    # The state of the detector is older than the columns, and still holds the small transaction.
    assert declared.read(tables.SILVER_ALERTS).select("amount").collect() == [(900.0,)]
    assert {step: declared.checkpoint(step).notes.id for step in ids} == ids
    assert silver(declared, "amount", *COLUMNS) == [(0.5, None, None, None), (900.0, "chip", "m2", 2)]
    assert dict(declared.read(tables.SILVER_TRANSACTIONS).dtypes)["terminal_id"] == "bigint"
    assert quarantine(declared) == [("wrong", ["terminal_id_fits"]), ("without", ["merchant_id_is_given"])]
    bronze = declared.read(tables.BRONZE_TRANSACTIONS).orderBy("dt").select(*COLUMNS, "_rescued_data", "_misfits")
    assert [tuple(row) for row in bronze.collect()] == [
        (None, None, None, '{"kind": "chip", "merchantId": "m1", "terminalId": 1}', None),
        ("chip", "m2", 2, '{"shop": "x"}', None),
        ("5", "m3", None, '{"terminalId": "T3"}', ["terminal_id"]),
        ("chip", None, None, None, None),
    ]
    assert status(declared).gaps == []

    cli.main(
        ["--lake", str(declared.root), "--json", "quarantine", "--rule", "terminal_id_fits"], standalone_mode=False
    )
    (sample,) = json.loads(capfd.readouterr().out)["samples"]["terminal_id_fits"]
    assert (sample["merchant_id"], sample["_rescued_data"]) == ("m3", '{"terminalId": "T3"}')

    mended = "CAST(substr(get_json_object(_rescued_data, '$.terminalId'), 2) AS BIGINT)"
    assert replay.replay(declared, "terminal_id_fits", {"terminal_id": mended}).moved == 1
    assert silver(declared, "merchant_id", "terminal_id")[-1] == ("m3", 3)

    land(landing, "later", 4, 9.0, kind="chip", merchantId="m4", terminalId=4)
    removed = lake(columns={}, change=ME)
    run(removed, ingest.streams, refine.streams)
    assert silver(removed, "amount", *COLUMNS)[-1] == (9.0, None, None, None)
    later = removed.read(tables.BRONZE_TRANSACTIONS).where("_source_file = 'later'").first()
    assert later is not None
    assert (later["kind"], later["_rescued_data"]) == (None, '{"kind": "chip", "merchantId": "m4", "terminalId": 4}')
    # Nothing asks for the merchant any more.
    assert replay.replay(removed, "merchant_id_is_given", {}).moved == 1
    run(removed, *ALL)
    assert status(removed).gaps == []

    with pytest.raises(UsageError) as refused:
        lake(columns={"terminal_id": "string"}, change=ME)
    assert str(refused.value) == (
        "columns: 'terminal_id' is STRING, but bronze_transactions has 'terminal_id', BIGINT: "
        "declare it so, or under another name"
    )
    with pytest.raises(UsageError, match="'Kind' is STRING, but bronze_transactions has 'kind', STRING: declare it so"):
        lake(columns={"Kind": "string"}, change=ME)
    assert lake().settings.columns == {}


@pytest.mark.long
@pytest.mark.usefixtures("each_writer")
def test_a_micro_batch_that_is_repeated_is_checked_under_the_columns_of_its_first_commit(
    lake: Open, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(landing, "valid", 0, 5.0, kind="chip")
    land(landing, "wrong", 1, 6.0, kind=True)
    declared = lake(columns={"kind": {"type": "string", "nullable": False}})
    run(declared, ingest.streams)
    append = Appender.append

    def cut(self: Appender, lake: Lake, rows: Any, table: Table, batch_id: int, **options: Any) -> None:
        if table is tables.SILVER_QUARANTINE:
            raise OSError("killed")
        append(self, lake, rows, table, batch_id, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "append", cut)
        with pytest.raises(Exception, match="killed"):
            run(declared, refine.streams)
    changed = lake(columns={"shop": {"type": "string", "nullable": False}}, change=ME)
    run(changed, refine.streams)

    assert silver(changed, "amount", "kind") == [(5.0, "chip")]
    assert quarantine(changed) == [("wrong", ["kind_fits"])]


@pytest.mark.long
def test_steps_from_another_folder_without_a_settings_file_do_the_same(
    lake: Open, landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fraudlake_here: FraudlakeHere
) -> None:
    columns = '[columns]\nmerchant_id = { from = "merchantId", type = "string", nullable = false }\n'
    rule = (
        'kind = "threshold"\nname = "shops"\naggregate = "distinct"\ncolumn = "merchant_id"\n'
        'window = "1 hour"\nabove = 2'
    )
    Path("fraudlake.toml").write_text(f"{columns}[[rules]]\n{rule}\n")
    land(landing, "first", 0, 5.0, merchantId="m1")
    for step in ("ingest", "refine", "detect"):
        assert fraudlake_here("--lake", str(landing.parent), step).returncode == 0

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for second, shop in enumerate(("m2", "m3", "m3"), start=1):
        land(landing, f"of {shop} {second}", second, 6.0, merchantId=shop)
    land(landing, "of none", 9, 7.0)
    for step in ("ingest", "refine", "detect"):
        assert fraudlake_here("--lake", str(landing.parent), step).returncode == 0

    opened = lake()
    assert silver(opened, "amount", "merchant_id") == [(5.0, "m1"), (6.0, "m2"), (6.0, "m3"), (6.0, "m3")]
    assert quarantine(opened) == [("of none", ["merchant_id_is_given"])]
    raised = opened.store.query(
        f"SELECT rule, transaction_id FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS
    ).to_pylist()
    assert [alert["rule"] for alert in raised] == ["shops", "shops"]  # the third shop is there twice

    # A column is taken on by a declared change, and by nothing else.
    flags = (
        "--columns",
        '{"merchant_id": {"from": "merchantId", "type": "string", "nullable": false}, "kind": "string"}',
    )
    refused = fraudlake_here("--lake", str(landing.parent), "ingest", *flags)
    assert refused.returncode == 2
    assert f"--columns contradicts {landing.parent} in columns (kind is new): leave it out" in refused.stderr
    assert fraudlake_here("--lake", str(landing.parent), "define", *flags, "--yes").returncode == 0
    land(landing, "with kind", 10, 8.0, merchantId="m1", kind="chip")
    for step in ("ingest", "refine", "detect"):
        assert fraudlake_here("--lake", str(landing.parent), step).returncode == 0
    assert silver(lake(), "amount", "merchant_id", "kind")[-1] == (8.0, "m1", "chip")
