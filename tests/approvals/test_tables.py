"""Tables in a lake that needs two people: restore and forget wait, and leave nothing that they should not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.approvals import gate, log
from fraudlake.bronze import parquet
from fraudlake.delivery import event
from fraudlake.errors import UsageError
from fraudlake.forget import removal
from fraudlake.operations.restore import restore
from fraudlake.process import host
from fraudlake.streams import ingest, refine, stream
from fraudlake_desk import effects
from tests.delivery.alerts import alert
from tests.forget.test_forget import NAMED, OTHER, rows, traces
from tests.oracle import Row
from tests.transactions import MARCH_7, land

pytestmark = pytest.mark.stream

SILVER = "silver_transactions"


@pytest.fixture(autouse=True)
def _ann(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "system_user", lambda: "ann")


def approve(lake: Any, number: int) -> str:
    request = log.find(lake.store, number)
    assert request.event.action is not None
    return gate.approve(lake.store, number, "bob", "seen", effects.find(request.event.action), lake).status


def test_a_table_is_restored_when_another_person_agrees_and_has_not_changed_since(lake: Any) -> None:
    opened = lake(approvals=2)
    land(opened, [Row("1", MARCH_7, 5.0)])
    wanted = opened.store.version(tables.SILVER_TRANSACTIONS)
    land(opened, [Row("1", MARCH_7, 6.0, position=1)])
    with pytest.raises(gate.WaitingError, match=f"{SILVER} to version {wanted}: request 1 waits"):
        restore(opened, SILVER, wanted, reason="rows of a test")
    land(opened, [Row("1", MARCH_7, 7.0, position=2)])
    with pytest.raises(UsageError, match="request 1 was asked when number of rows was 2, and now it is 3"):
        approve(opened, 1)
    with pytest.raises(gate.WaitingError, match="request 2 waits"):
        restore(opened, SILVER, wanted, reason="rows of a test")
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 3
    assert approve(opened, 2) == "carried out"
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 1
    # A process that was killed after the commit only completes the record.
    request = log.find(opened.store, 2)
    version = opened.store.version(tables.SILVER_TRANSACTIONS)
    effect = effects.find("restore")
    assert effect.state(opened, request) == request.after
    effect.carry_out(opened, request)
    assert opened.store.version(tables.SILVER_TRANSACTIONS) == version


@pytest.mark.long
def test_an_account_is_forgotten_when_another_person_agrees_and_no_request_names_it_then(
    lake: Any, tmp_path: Path
) -> None:
    landing = tmp_path / "elsewhere"
    delivered = tmp_path / "delivered"
    opened = lake(approvals=2, landing=str(landing), delivery_folder=str(delivered))
    landing.mkdir()
    delivered.mkdir()
    parquet.write_own(rows((0, NAMED, 5.0), (1, OTHER, 6.0)), landing / "part-own-0.parquet")
    (delivered / "alerts-1.jsonl").write_text(event.as_json(event.make_event(alert(1, NAMED), "lake")) + "\n")
    for step in (ingest, refine):
        stream.run(opened, step.streams(opened), "available-now")
    with pytest.raises(UsageError, match="nobody: not found in"):
        removal.forget(opened, ["nobody"], "asked for")
    with pytest.raises(gate.WaitingError, match="request 1 waits"):
        removal.forget(opened, [NAMED], "asked for")
    assert opened.read(tables.SILVER_TRANSACTIONS).where(f"account_id = '{NAMED}'").count() == 1
    # Who approves need not name the folders that the request was asked for.
    assert approve(lake(), 1) == "carried out"
    assert opened.read(tables.SILVER_TRANSACTIONS).select("account_id").collect() == [(OTHER,)]
    assert traces(tmp_path, NAMED) == set()
    request = log.find(opened.store, 1)
    assert (request.event.is_erased, request.event.subject, request.event.account_ids) == (True, None, ())
    assert [event.kind for event in request.followed] == ["approved", "carried out"]
    assert log.verify(log.read_events(opened.store), None, True).faults == []
