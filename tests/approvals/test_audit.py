"""The audit of what people did: tampering with the tables is found, and a year leaves the lake as one signed file."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from deltalake import write_deltalake

from fraudlake import tables
from fraudlake.approvals import gate, log
from fraudlake.approvals.log import Proposal
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import chain
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import audit_file, event_log, items
from fraudlake_desk.review import actions
from tests.approvals.conftest import Command

REVIEW, APPROVALS = tables.SILVER_REVIEW_EVENTS, tables.SILVER_APPROVAL_EVENTS
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
TAMPERINGS = 1_000
FILLED = {"fraud_amount": 1.5, "file_size": 1, "day": NEW_YEAR.date(), "expires_at": NEW_YEAR, "account_ids": ["x"]}
"""Values for fields that are null, if they are not texts."""
Row = dict[str, Any]


@pytest.fixture
def filled(store: LocalStore) -> LocalStore:
    """Ten events of the review and nine of approvals, about New Year."""
    item = items.require(store, "alert0")
    for number in range(10):
        id_ = f"e{number}"
        make = partial(actions.set_aside, item, analyst="ann", kind="noted", event_id=id_, note="seen")
        event_log.record(store, item, id_, make, NEW_YEAR + timedelta(hours=number - 4))
    for number in range(3):
        at = NEW_YEAR + timedelta(hours=number - 1)
        wanted = Proposal("rules", f"rule {number}", {"n": number}, {"n": 9}, {"n": number})
        asked = log.ask(store, wanted, "ann", "why", at).number
        log.decide(store, asked, "approved", "bob", "so", at)
        log.decide(store, asked, "carried out", "bob", None, at)
    return store


def rows_of(store: LocalStore, table: tables.Table) -> list[Row]:
    return store.query(f"SELECT * FROM {table.name} ORDER BY number", table).to_pylist()


def write(store: LocalStore, table: tables.Table, rows: list[Row]) -> None:
    """Write a table anew, as somebody can who may write all files."""
    write_deltalake(store.path(table), pa.Table.from_pylist(rows, table.schema), mode="overwrite")


def rehashed(store: LocalStore, table: tables.Table, rows: list[Row], first: int, last: int) -> list[Row]:
    """Compute the hashes of some rows anew, as one who knows how they are made."""
    write(store, table, rows)
    events: Any = event_log.read_events(store) if table is REVIEW else log.read_events(store)
    before = events[first - 1].hash if first else None
    for place in range(first, last):
        event = events[place]
        rows[place]["hash"] = before = chain.link(before, event)
    return rows


def removed(draw: random.Random, rows: list[Row]) -> list[Row]:
    place = draw.randrange(len(rows) - 1)
    left = rows[:place] + rows[place + 1 :]
    if draw.random() < 0.5:  # and all later ones are numbered anew
        return [{**row, "number": number} for number, row in enumerate(left, 1)]
    return left


def altered(draw: random.Random, rows: list[Row]) -> list[Row]:
    place = draw.randrange(len(rows))
    row = rows[place]
    name = draw.choice([name for name in row if name not in ("date", "number", "is_erased")])
    value = row[name]
    if isinstance(value, datetime):
        row[name] = value + timedelta(microseconds=draw.choice([-1, 1, 10**9]))
    elif isinstance(value, date):
        row[name] = value + timedelta(days=1)
    elif isinstance(value, list):
        row[name] = [*value, "another"]
    elif isinstance(value, int):
        row[name] = value + 1
    elif value is None:
        row[name] = FILLED.get(name, "x")
    else:
        row[name] = f"{value}x"
    return rows


def inserted(draw: random.Random, rows: list[Row]) -> list[Row]:
    place = draw.randrange(1, len(rows))
    new = {**rows[place], "event_id": "new", "person": "bob", "analyst": "bob"}
    new = {name: value for name, value in new.items() if name in rows[0]}
    if draw.random() < 0.3:  # with a number that there is
        return [*rows, {**new, "number": rows[place]["number"]}]
    return [{**row, "number": number} for number, row in enumerate([*rows[:place], new, *rows[place:]], 1)]


def swapped(draw: random.Random, rows: list[Row]) -> list[Row]:
    one, other = draw.sample(range(len(rows)), 2)
    rows[one], rows[other] = ({**rows[b], "number": rows[a]["number"]} for a, b in ((one, other), (other, one)))
    return rows


def erased(draw: random.Random, rows: list[Row]) -> list[Row]:
    row = altered(draw, rows)[draw.randrange(len(rows))]
    row["is_erased"] = True
    return rows


KINDS: list[Callable[[random.Random, list[Row]], list[Row]]] = [removed, altered, inserted, swapped, erased]


def test_a_thousand_tamperings_of_the_written_tables_are_found(filled: LocalStore) -> None:
    draw = random.Random(4)
    whole = {table: rows_of(filled, table) for table in (REVIEW, APPROVALS)}
    missed: Counter[str] = Counter()
    for number in range(TAMPERINGS):
        table = (REVIEW, APPROVALS)[number % 2]
        tamper = KINDS[number // 2 % len(KINDS)]
        copied = [dict(row) for row in whole[table]]
        write(filled, table, tamper(draw, copied))
        missed[tamper.__name__] += not audit_file.verify(filled)[table.name].faults
    assert +missed == Counter()
    for table, rows in whole.items():
        write(filled, table, rows)
    assert [one.faults for one in audit_file.verify(filled).values()] == [[], []]


@pytest.mark.parametrize("table", [REVIEW, APPROVALS], ids=["review", "approvals"])
def test_an_event_whose_own_hash_is_computed_anew_is_found_by_the_next(filled: LocalStore, table: Any) -> None:
    draw = random.Random(5)
    whole = rows_of(filled, table)
    for place in range(len(whole) - 1):
        rows = [dict(row) for row in whole]
        rows[place]["reason"] = f"another {draw.random()}"
        write(filled, table, rehashed(filled, table, rows, place, place + 1))
        assert audit_file.verify(filled)[table.name].faults, f"event {place + 1}"


@pytest.mark.parametrize("table", [REVIEW, APPROVALS], ids=["review", "approvals"])
def test_a_cut_end_and_a_chain_written_anew_are_found_only_by_a_noted_hash(filled: LocalStore, table: Any) -> None:
    whole = rows_of(filled, table)
    noted = (len(whole), whole[-1]["hash"])
    known = {"known" if table is REVIEW else "known_approval": noted}
    anew = [dict(row) for row in whole]
    anew[0]["reason"] = "another"
    for rows in (whole[:-1], rehashed(filled, table, anew, 0, len(anew))):
        write(filled, table, rows)
        assert audit_file.verify(filled)[table.name].faults == []
        assert "not the hash that was noted" in audit_file.verify(filled, **known)[table.name].faults[0]


def test_a_forged_approval_of_ones_own_is_found_even_in_a_chain_that_fits(filled: LocalStore) -> None:
    rows = rows_of(filled, APPROVALS)
    rows[1]["person"] = "Ann"
    write(filled, APPROVALS, rehashed(filled, APPROVALS, rows, 1, len(rows)))
    faults = audit_file.verify(filled)[APPROVALS.name].faults
    assert faults[0] == (
        "event 2 (approved by Ann) is forbidden: request 1 is by ann: another person must decide; its author can "
        "withdraw it"
    )
    assert log.find(filled, 1).approval is None
    with pytest.raises(FraudlakeError, match="nothing is carried out until"):
        gate.carry_out(filled, 1, "bob", gate.Effect(lambda *_: {}, lambda *_: None), filled)


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """A private and a public key."""
    key = Ed25519PrivateKey.generate()
    private, public = tmp_path / "audit.pem", tmp_path / "audit.pub.pem"
    pkcs8, info = serialization.PrivateFormat.PKCS8, serialization.PublicFormat.SubjectPublicKeyInfo
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, info))
    return private, public


def test_a_year_is_a_file_that_the_public_key_proves(
    filled: LocalStore, keys: tuple[Path, Path], command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "2027.zip"
    exported = command("ann", "audit", "export", "--year", "2027", "--key", str(keys[0]), "--out", str(out))
    counts = [(part["table"], part["events"], part["first"], part["last"]) for part in exported["parts"]]
    assert counts == [(REVIEW.name, 6, 5, 10), (APPROVALS.name, 6, 4, 9)]
    proved = command("eve", "audit", "verify-export", str(out), "--key", str(keys[1]))
    assert proved["year"] == 2027 and proved["parts"] == exported["parts"]
    with zipfile.ZipFile(out) as archive:
        (first, *_) = [json.loads(line) for line in archive.read(f"{APPROVALS.name}.jsonl").splitlines()]
    assert (first["kind"], first["person"], first["reason"], first["before"]) == ("requested", "ann", "why", '{"n": 1}')
    assert audit_file.export(filled, 2027, keys[0])[0] == out.read_bytes()
    assert "exists" in command("ann", "audit", "export", "--year", "2027", "--key", str(keys[0]), "--out", str(out))


def test_an_exported_file_that_was_changed_or_is_of_another_signer_is_refused(
    filled: LocalStore, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "out.zip"
    content, _ = audit_file.export(filled, 2026, keys[0])
    file.write_bytes(content)
    assert [part.events for part in audit_file.verify_export(file, keys[1])[1]] == [4, 3]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        whole = {name: archive.read(name) for name in archive.namelist()}
    for name in whole:
        for changed in (whole[name].replace(b"a", b"b", 1) + b" ", None):
            rest = {one: given for one, given in {**whole, name: changed}.items() if given is not None}
            with zipfile.ZipFile(file, "w") as archive:
                for one, given in rest.items():
                    archive.writestr(one, given)
            with pytest.raises(FraudlakeError, match="changed"):
                audit_file.verify_export(file, keys[1])
    file.write_bytes(content)
    other = tmp_path / "other.pem"
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    other.write_bytes(Ed25519PrivateKey.generate().public_key().public_bytes(serialization.Encoding.PEM, info))
    with pytest.raises(FraudlakeError, match="signed with another key"):
        audit_file.verify_export(file, other)


def test_lines_and_signs_within_a_reason_do_not_break_an_exported_file(
    store: LocalStore, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    reasons = ["a\u2028b", "a\u0085b", "a\r\nb\x0b\x0c\x1c", '"\\', "日本 \U0001f600"]
    for number, reason in enumerate(reasons):
        log.ask(store, Proposal("rules", reason, {"n": number}, {"n": 9}, {reason: number}), "ann", reason, NEW_YEAR)
    file = tmp_path / "out.zip"
    file.write_bytes(audit_file.export(store, 2027, keys[0])[0])
    assert [part.events for part in audit_file.verify_export(file, keys[1])[1]] == [0, len(reasons)]


def test_a_changed_byte_of_an_exported_file_is_found_or_changes_no_event(
    filled: LocalStore, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    content, parts = audit_file.export(filled, 2026, keys[0])
    file = tmp_path / "out.zip"
    draw = random.Random(6)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= draw.randrange(1, 256)
        file.write_bytes(changed)
        try:
            assert audit_file.verify_export(file, keys[1])[1] == parts
        except FraudlakeError as error:
            assert str(error).startswith(f"{file}: ")


def test_a_year_of_a_broken_chain_is_not_exported_and_wrong_files_are_named(
    filled: LocalStore, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    for file in (keys[1], tmp_path / "missing.pem"):
        with pytest.raises(UsageError, match="Ed25519 key"):
            audit_file.export(filled, 2026, file)
    with pytest.raises(UsageError, match="give a file of 'fraudlake audit export'"):
        audit_file.verify_export(keys[0], keys[1])
    write(filled, REVIEW, rows_of(filled, REVIEW)[1:])
    with pytest.raises(FraudlakeError, match="event 1 is missing: nothing was exported"):
        audit_file.export(filled, 2026, keys[0])


def test_a_year_without_events_is_an_empty_file(store: LocalStore, keys: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "empty.zip"
    file.write_bytes(audit_file.export(store, 2026, keys[0])[0])
    assert [part.events for part in audit_file.verify_export(file, keys[1])[1]] == [0, 0]


def test_the_command_names_the_table_of_a_fault(filled: LocalStore, command: Command) -> None:
    verified = command("eve", "audit", "verify")
    head = verified[APPROVALS.name]["head"]
    assert (verified[REVIEW.name]["events"], verified[APPROVALS.name]["events"]) == (10, 9)
    assert command("eve", "audit", "verify", "--known-approval", f"9:{head}") == verified
    write(filled, APPROVALS, rows_of(filled, APPROVALS)[:-1])
    refused = command("eve", "audit", "verify", "--known-approval", f"9:{head}")
    assert "event 9 has not the hash that was noted" in refused and "silver_approval_events says who wrote" in refused
