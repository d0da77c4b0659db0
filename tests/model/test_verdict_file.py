"""Verdict files as people and programs write them, with the rows that each stands for, by hand."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake.errors import UsageError
from fraudlake.model import verdict_file
from fraudlake.settings.disputes import Format

APRIL_6 = datetime(2026, 4, 6, tzinfo=UTC)
NOON = datetime(2026, 4, 6, 12, tzinfo=UTC)
FRAUD = Format(verdict="fraud")


def rows(file: Path, of: Format | None = None) -> list[tuple[str | None, bool, str | None, datetime]]:
    read = verdict_file.read(file, of or Format()).rows
    names = ("transaction_id", "verdict", "reason", "decided_at")
    return [tuple(row[name] for name in names) for row in read.to_pylist()]


@pytest.mark.parametrize(
    ("content", "of", "expected"),
    [
        (
            b'transaction_id,verdict,reason,decided_at\n"a",fraud,"said ""no"", twice\nand left",2026-04-06 12:00:00\n',
            Format(),
            [("a", True, 'said "no", twice\nand left', NOON)],
        ),
        (
            b"\xef\xbb\xbftransaction_id;verdict;reason;decided_at\r\na;0;;2026-04-06T14:00:00+02:00\r\n",
            Format(),
            [("a", False, None, NOON)],
        ),
        (
            "transaction_id\tverdict\treason\tdecided_at\na\tgenuine\tMüller\t2026-04-06\n".encode("utf-16"),
            Format(),
            [("a", False, "Müller", APRIL_6)],
        ),
        (
            "Fall,Grund,am\na,Müller,06.04.2026\n".encode("cp1252"),
            Format(
                map={"transaction_id": "Fall", "reason": "Grund", "decided_at": "am"},
                verdict="fraud",
                encoding="cp1252",
                date_pattern="%d.%m.%Y",
            ),
            [("a", True, "Müller", APRIL_6)],
        ),
    ],
)
def test_a_file_is_read_as_it_was_meant(
    tmp_path: Path, content: bytes, of: Format, expected: list[tuple[str, bool, str, datetime]]
) -> None:
    # A path is no pattern, and a name may begin with what Spark takes for a hidden file.
    file = tmp_path / "_e [1]*.csv"
    file.write_bytes(content)
    (tmp_path / "_e 1.csv").write_text("transaction_id,verdict\nother,true\n")
    assert rows(file, of) == expected


def test_the_delimiter_is_that_outside_of_quotes(tmp_path: Path) -> None:
    file = tmp_path / "decided.csv"
    file.write_text('"transaction_id";"verdict";"a, b, c, d"\na;true;x\n')
    assert [row[:2] for row in rows(file)] == [("a", True)]


def test_a_mark_of_utf_8_is_none_of_the_first_name(tmp_path: Path) -> None:
    file = tmp_path / "decided.csv"
    file.write_bytes(b"\xef\xbb\xbftransaction_id,verdict\na,true\n")
    assert [row[:2] for row in rows(file, Format(encoding="utf-8"))] == [("a", True)]


def test_whole_numbers_that_pandas_wrote_as_doubles_are_the_ids_that_they_were(tmp_path: Path) -> None:
    frame = pd.DataFrame({"transaction_id": [12345.0, 4.0], "case_id": [None, 7.0], "verdict": [True, False]})
    frame.to_csv(tmp_path / "decided.csv", index=False)
    frame.to_parquet(tmp_path / "decided.PARQUET")
    for name in ("decided.csv", "decided.PARQUET"):
        read = verdict_file.read(tmp_path / name, Format()).rows
        assert read["transaction_id"].to_pylist() == ["12345", "4"]
        assert read["case_id"].to_pylist() == [None, "7"]
    frame["transaction_id"] = [12345.0, 2.0**53]
    frame.to_parquet(tmp_path / "decided.PARQUET")
    with pytest.raises(UsageError, match=r"row 2: transaction_id 9007199254740992.0 is a number that may have lost"):
        verdict_file.read(tmp_path / "decided.PARQUET", Format())


def test_an_id_that_looks_like_a_number_only_here_and_there_is_a_text(tmp_path: Path) -> None:
    file = tmp_path / "decided.csv"
    file.write_text("transaction_id,verdict\n1.0,true\n12e5,true\n")
    assert [row[0] for row in rows(file)] == ["1.0", "12e5"]


def test_account_amount_and_time_are_read_of_rows_that_have_no_id(tmp_path: Path) -> None:
    file = tmp_path / "disputes.csv"
    file.write_text(
        "id;account_id;amount;timestamp;decided_at\n"
        ";7;12,5;06.04.2026 12:00;07.04.2026\n"
        ";8;1234.50;06.04.2026 12:00;07.04.2026\n"
        "a;nobody;a lot;some day;07.04.2026\n"
    )
    of = Format(
        map={"transaction_id": "id"},
        verdict="fraud",
        date_pattern="%d.%m.%Y",
        timestamp_pattern="%d.%m.%Y %H:%M",
    )
    read = verdict_file.read(file, of).rows.select(["transaction_id", "account_id", "amount", "timestamp"])
    assert [tuple(row.values()) for row in read.to_pylist()] == [
        (None, "7", 12.5, NOON),
        (None, "8", 1234.5, NOON),
        ("a", None, None, None),
    ]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [(["x", "y"], r"list<.*>"), (b"\xff", "binary")],
)
def test_a_field_that_is_no_text_is_refused(tmp_path: Path, reason: object, kind: str) -> None:
    file = tmp_path / "decided.parquet"
    pd.DataFrame({"transaction_id": ["a"], "verdict": [True], "reason": [reason]}).to_parquet(file)
    with pytest.raises(UsageError, match=rf"the field reason is {kind}: leave it out, or write it as a text"):
        rows(file)


def test_a_field_of_parquet_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "decided.parquet"
    pq.write_table(pa.table([["a"], ["b"], [True]], names=["transaction_id", "transaction_id", "verdict"]), file)
    with pytest.raises(UsageError, match="has the field transaction_id twice"):
        rows(file)


def test_bytes_are_texts(tmp_path: Path) -> None:
    file = tmp_path / "decided.parquet"
    pd.DataFrame({"transaction_id": [b"a"], "verdict": [True], "decided_at": [APRIL_6]}).to_parquet(file)
    assert rows(file) == [("a", True, None, APRIL_6)]


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["12", "13"], pa.large_string()),
        pa.array(["12", "13"], pa.string_view()),
        pa.array(["12", "13"], pa.binary(2)),
        pa.array(["12", "13"]).dictionary_encode(),
        pa.array([12, 13], pa.uint64()),
        pa.array([12, 13], pa.decimal128(20, 0)),
        pa.array([12.0, 13.0], pa.float32()),
        pa.array([12.0, 13.0], pa.float64()),
    ],
    ids=lambda ids: str(ids.type),
)
def test_ids_are_texts_in_whatever_type_a_program_writes_them(tmp_path: Path, ids: pa.Array) -> None:
    file = tmp_path / "decided.parquet"
    days = pa.array([NOON.replace(tzinfo=None)] * 2, pa.timestamp("ns"))
    table = pa.table({"transaction_id": ids, "verdict": [True, False], "decided_at": days})
    pq.write_table(table, file, use_deprecated_int96_timestamps=True)
    assert rows(file) == [("12", True, None, NOON), ("13", False, None, NOON)]


def test_a_file_of_pandas_has_times_of_nanoseconds_and_categories(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "transaction_id": pd.Categorical(["a", "b"]),
            "verdict": [True, False],
            "decided_at": pd.to_datetime(["2026-04-06 12:00:00.123456789", "2026-04-06"], format="ISO8601"),
        }
    )
    frame.to_parquet(tmp_path / "decided.parquet")
    assert rows(tmp_path / "decided.parquet") == [
        ("a", True, None, NOON.replace(microsecond=123456)),
        ("b", False, None, APRIL_6),
    ]


def test_a_parquet_file_that_grows_is_refused_in_a_line_before_it_takes_memory(tmp_path: Path) -> None:
    def refused(rows: int, **columns: object) -> str:
        file = tmp_path / "decided.parquet"
        table = pa.table({"transaction_id": ["a"] * rows, "verdict": [True] * rows, **columns})
        pq.write_table(table, file, compression="zstd")
        assert file.stat().st_size < 2_000_000
        before = pa.default_memory_pool().max_memory()
        with pytest.raises(UsageError) as raised:
            verdict_file.read(file, Format())
        assert pa.default_memory_pool().max_memory() - before < 512 << 20
        return str(raised.value).removeprefix(f"{file}: ")

    def repeated(text: str, rows: int) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), [text])

    assert refused(3, reason=["b", "c" * ((1 << 20) + 1), None]) == (
        "the value of reason in row 2 has 1,048,577 bytes, more than 1,048,576 (the setting max_value_size)"
    )
    assert refused(1, reason=["b" * (200 << 20)]).startswith("a value of reason has 1")
    assert refused(20_000, reason=repeated("b" * 100_000, 20_000)).endswith("land it in smaller files")
    assert refused(1, **{f"x{nth}": [1] for nth in range(1_999)}) == "it has 2,001 columns, more than 2,000"


def test_rows_of_parquet_that_are_too_many_together_are_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_file, "_MOST_BYTES", 1 << 20)
    texts = pa.array(["b" * 1000]).take(pa.array([0] * 2000))
    for kind, reason in (("plain", texts), ("dictionary", texts.dictionary_encode())):
        file = tmp_path / f"{kind}.parquet"
        pq.write_table(pa.table({"transaction_id": ["a"] * 2000, "verdict": [True] * 2000, "reason": reason}), file)
        with pytest.raises(UsageError, match="its rows have more than 1 MiB: load it in smaller files"):
            verdict_file.read(file, Format())


def test_a_folder_of_parquet_files_without_rows_is_read(tmp_path: Path) -> None:
    table = pa.table({"transaction_id": ["a"], "verdict": [True]})
    for name, rows_of_file in (("a", table.slice(0, 0)), ("b", table)):
        folder = tmp_path / name
        folder.mkdir()
        pq.write_table(rows_of_file, folder / "part-0.parquet")
        pq.write_table(table.slice(0, 0), folder / "part-1.parquet")
    assert rows(tmp_path / "a") == []
    assert [row[0] for row in rows(tmp_path / "b")] == ["a"]


@pytest.mark.parametrize(
    ("content", "of", "line"),
    [
        (
            b"transaction_id,verdict,decided_at\na,true,\nb,true,6.4.2026\n",
            Format(),
            "row 3: decided_at '6.4.2026' does not match the date pattern YYYY-MM-DD or YYYY-MM-DD HH:MM:SS; "
            "--date-pattern names another",
        ),
        (
            "transaction_id,verdict,reason\na,true,Müller\n".encode("cp1252"),
            Format(),
            "is not utf-8 at byte 38: name its encoding, such as --encoding cp1252",
        ),
        (b"transaction_id,verdict\na,true,x\n", Format(), "row 2 has 3 fields, and the header 2"),
        (b"verdict,verdict,transaction_id\n", Format(), "has the field verdict twice"),
        (
            b"transaction_id,verdict\na,genuine\n",
            Format(verdict="fraud"),
            "has a verdict in each row: leave out --verdict fraud",
        ),
        (
            b"id,verdict\na,true\n",
            Format(map={"transaction_id": "nr"}),
            "has no field nr, which --map names: it has id, verdict",
        ),
        (b'transaction_id,verdict\n"a"b,true\n', Format(), "line 2: ',' expected after '\"'"),
        # A blank row counts, as a spreadsheet counts; a line break within a value does not.
        (
            b'transaction_id,verdict\n\n"a\nb",true\n,\nc,maybe\n',
            Format(),
            "row 5: verdict 'maybe' must be true or false",
        ),
        (b"transaction_id,verdict\na,\n", Format(), "row 2: verdict '' must be true or false"),
        (
            b"transaction_id,verdict\n7,true\n1.2e+10,true\n",
            Format(),
            "row 3: transaction_id 1.2e+10 is a number that may have lost digits: write ids as text",
        ),
        (
            b"transaction_id,verdict\n9007199254740993.0,true\n",
            Format(),
            "row 2: transaction_id 9007199254740993.0 is a number that may have lost digits: write ids as text",
        ),
        (
            b"transaction_id,verdict,reason\na,true,ok\nb,true," + b"x" * 131_073 + b"\n",
            Format(),
            "row 3 has a field of more than 131,072 characters: end its quotes, or shorten it",
        ),
        (
            b"transaction_id,account_id,amount,timestamp,verdict\na,,,,true\n,,,,true\n",
            Format(),
            "row 3: names no payment: give transaction_id, alert_id, case_id or reference, or account_id, amount and "
            "timestamp",
        ),
        (b"account_id,amount,timestamp\n1,2.50,\n", FRAUD, "row 2: has no timestamp"),
        (
            b'account_id,amount,timestamp\n1,"1,250",2026-04-06\n',
            FRAUD,
            "row 2: amount '1,250' is not an amount such as 1234.50",
        ),
        (
            b"account_id,amount,timestamp\n1,2.50,06.04.2026\n",
            FRAUD,
            "row 2: timestamp '06.04.2026' does not match the date pattern YYYY-MM-DD or YYYY-MM-DD HH:MM:SS; "
            "--timestamp-pattern names another",
        ),
    ],
)
def test_what_cannot_be_understood_is_named_with_its_row(tmp_path: Path, content: bytes, of: Format, line: str) -> None:
    file = tmp_path / "decided.csv"
    file.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        verdict_file.read(file, of)
    assert str(raised.value) == f"{file}: {line}"


def test_a_folder_of_which_a_file_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "decided"
    folder.mkdir()
    frame = pd.DataFrame({"transaction_id": ["a"], "verdict": [True]})
    frame.to_parquet(folder / "part-0.parquet")
    read = verdict_file._parquet

    def rewritten(file: Path, largest_value: int) -> object:
        found = read(file, largest_value)
        pd.concat([frame, frame]).to_parquet(folder / "part-0.parquet")
        return found

    monkeypatch.setattr(verdict_file, "_parquet", rewritten)
    with pytest.raises(UsageError, match="changed while it was read"):
        verdict_file.read(folder, Format())


def test_of_a_folder_finished_files_are_read_and_no_link_to_a_folder_above(tmp_path: Path) -> None:
    folder = tmp_path / "decided"
    (folder / "more").mkdir(parents=True)
    with pytest.raises(UsageError, match="is a folder without files: name one file, or a folder of parquet files"):
        verdict_file.read(folder, Format())
    for name, id_ in (("part-0", "a"), ("more/part-1.parquet", "b"), ("_part-2.parquet", "c")):
        pd.DataFrame({"transaction_id": [id_], "verdict": [True]}).to_parquet(folder / name)
    (folder / "_SUCCESS").touch()
    os.mkfifo(folder / "part-3")
    for name, target in (("loop", "."), ("more/up", "../.."), ("root", "/")):
        (folder / name).symlink_to(target)

    found = verdict_file.read(folder, Format())

    assert found.rows["transaction_id"].to_pylist() == ["b", "a"]


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "decided.csv"
    file.write_text("transaction_id,verdict\na,true\n")
    read = verdict_file._csv

    def growing(file: Path, encoding: str | None) -> object:
        found = read(file, encoding)
        file.write_text(file.read_text() + "b,true\n")
        return found

    monkeypatch.setattr(verdict_file, "_csv", growing)
    with pytest.raises(UsageError, match="changed while it was read"):
        verdict_file.read(file, Format())
