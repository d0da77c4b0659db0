"""The benchmark on the Fraud Detection Handbook's data: how it is read, and which rows test, by hand."""

from __future__ import annotations

import pickle
from datetime import date
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from benchmarks import handbook, handbook_data
from benchmarks.handbook_data import DataError, Protocol

FEBRUARY = Protocol(date(2026, 2, 1), train_days=7)
"""Training: 1 to 7 February; delay: 8 to 14; test: 15 to 21."""
ROWS = [
    # day of February, card, fraud, whether it tests
    (1, "early", True, False),
    (7, "late", True, False),
    (8, "delay 1", True, False),
    (13, "delay 6", True, False),
    (14, "delay 7", True, False),
    (14, "honest", False, False),
    (15, "early", False, False),
    (15, "late", True, False),
    (15, "delay 1", False, True),  # its fraud is known on the 16th
    (15, "honest", True, True),
    (16, "delay 1", True, False),
    (16, "honest", False, True),
    (20, "delay 6", True, True),  # known on the 21st
    (21, "delay 6", True, False),
    (21, "delay 7", True, True),  # known on the 22nd
    (21, "before", True, True),  # the book looks at frauds since the training begins
    (22, "honest", False, False),
]


def frame(fill: int = 20) -> pd.DataFrame:
    """The rows above and one before the training, and honest ones each hour of 25 days, in the book's columns."""
    listed = [(0, "before", True, False), *ROWS]
    rows = [
        (pd.Timestamp("2026-01-31") + pd.Timedelta(days=day, hours=9), card, fraud) for day, card, fraud, _ in listed
    ]
    rows += [
        (pd.Timestamp("2026-01-29") + pd.Timedelta(hours=hour), f"card {hour % fill}", False) for hour in range(25 * 24)
    ]
    times, cards, fraud = zip(*rows, strict=True)
    return pd.DataFrame(
        {
            "TRANSACTION_ID": range(len(rows)),
            "TX_DATETIME": times,
            "CUSTOMER_ID": cards,
            "TERMINAL_ID": pd.Series([n % 7 for n in range(len(rows))], dtype=object),
            "TX_AMOUNT": [float(n) for n in range(len(rows))],
            "TX_TIME_DAYS": pd.Series([0] * len(rows), dtype=object),
            "TX_FRAUD": [int(one) for one in fraud],
            "TX_FRAUD_SCENARIO": 0,
        }
    )


@pytest.fixture(params=["pickles", "parquet"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = frame()
    if request.param == "parquet":
        made.to_parquet(tmp_path / "all.parquet")
        return tmp_path / "all.parquet"
    for day, rows in made.groupby(made["TX_DATETIME"].dt.date):
        rows.to_pickle(tmp_path / f"{day}.pkl")
    return tmp_path


def test_days_are_read_as_flink_would_write_them(data: Path) -> None:
    rows = handbook_data.read(data, date(2026, 2, 1), FEBRUARY.test_until)
    expected = frame()
    in_days = expected["TX_DATETIME"].between("2026-02-01", "2026-02-21 23:59:59")
    assert sorted(map(int, rows["transaction_id"])) == expected["TRANSACTION_ID"][in_days].tolist()
    assert rows["dt"].is_monotonic_increasing
    schema = pa.Table.from_pandas(rows, preserve_index=False).schema
    assert {field.name: str(field.type) for field in schema} == {
        "transaction_id": "string",
        "dt": "timestamp[us]",
        "accountId": "string",
        "terminalId": "string",
        "amount": "double",
        "alert": "bool",
    }


def test_rows_test_on_the_days_of_the_test_without_cards_that_were_known(data: Path) -> None:
    rows = handbook_data.read(data, date(2026, 1, 29), date(2026, 2, 23))
    tests = rows[FEBRUARY.is_test(rows)]
    named = {(at.day, card) for at, card in zip(tests["dt"], tests["accountId"], strict=True) if "card" not in card}
    assert named == {(day, card) for day, card, _, does_test in ROWS if does_test}
    filled = tests["accountId"].str.startswith("card")
    assert filled.sum() == 7 * 24


def test_a_longer_training_is_tested_on_the_same_rows(tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "all.parquet")
    rows = handbook_data.read(tmp_path / "all.parquet", date(2026, 1, 29), date(2026, 2, 23))
    longer = Protocol(date(2026, 1, 29), train_days=10)
    assert (longer.is_test(rows) == FEBRUARY.is_test(rows)).all()


def test_the_days_of_the_protocol_follow_from_the_training() -> None:
    book = Protocol(date(2018, 7, 25), 7)
    assert (book.train_until, book.test_from, book.test_until) == (
        date(2018, 8, 1),
        date(2018, 8, 8),
        date(2018, 8, 15),
    )


def test_figures_by_hand() -> None:
    rows = pd.DataFrame(
        {
            "transaction_id": ["a", "b", "c", "d"],
            "dt": pd.to_datetime(["2026-02-15", "2026-02-15", "2026-02-16", "2026-02-16"]),
            "accountId": ["x", "y", "x", "z"],
            "amount": 1.0,
            "alert": [True, False, True, False],
        }
    )
    scored = pa.table({"transaction_id": ["d", "c", "b", "a", "other"], "probability": [0.4, 0.3, 0.2, 0.9, 1.0]})
    # By falling probability: fraud, not, fraud, not. The card x is found on the first day.
    assert handbook.figures(rows, scored) == {
        "auc": 3 / 4,
        "average_precision": pytest.approx((1 + 2 / 3) / 2),
        "card_precision_100": 1 / 3,
    }


def test_a_transaction_without_a_prediction_counts_as_the_least_likely() -> None:
    rows = pd.DataFrame(
        {
            "transaction_id": ["a", "b"],
            "dt": pd.to_datetime(["2026-02-15", "2026-02-15"]),
            "accountId": ["x", "y"],
            "amount": 1.0,
            "alert": [True, False],
        }
    )
    found = handbook.figures(rows, pa.table({"transaction_id": ["b"], "probability": [0.1]}))
    assert found == {"auc": 0.0, "average_precision": 0.5, "card_precision_100": 0.5}


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("called"),)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickle.dumps(Hostile()), "it asks for pathlib.*, which no frame needs"),
        (pickle.dumps(pd.DataFrame({"TX_FRAUD": [Hostile()]})), "it asks for pathlib.*, which no frame needs"),
        (b"cos\nsystem\n(S'touch called'\ntR.", "it asks for os.system, which no frame needs"),
        (pickle.dumps([1]), "it holds no frame"),
        (b"no pickle", "not read: .+"),
        (pickle.dumps(frame())[:-200], "not read: .+"),
    ],
    ids=["an object", "an object in a frame", "a function", "a list", "text", "half of a frame"],
)
def test_a_pickle_of_anything_but_a_frame_is_one_line_and_calls_nothing(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "2026-02-01.pkl").write_bytes(content)
    with pytest.raises(DataError, match=rf"^{tmp_path}/2026-02-01.pkl: .*{reason}$") as refused:
        handbook_data.read(tmp_path, date(2026, 2, 1), date(2026, 2, 2))
    assert "\n" not in str(refused.value)
    assert not Path("called").exists()


@pytest.mark.parametrize(
    ("until", "reason"),
    [
        (date(2026, 3, 5), "there are no transactions of 2026-03-04, the last day of the test"),
        (date(2026, 1, 29), "there is no file such as 2026-01-01.pkl of 2026-01-01 to 2026-01-28"),
    ],
)
def test_days_that_the_data_lack_are_one_line(until: date, reason: str, tmp_path: Path) -> None:
    for day, rows in frame().groupby(frame()["TX_DATETIME"].dt.date):
        rows.to_pickle(tmp_path / f"{day}.pkl")
    with pytest.raises(DataError, match=reason):
        handbook_data.read(tmp_path, date(2026, 1, 1), until)


def test_a_column_that_the_data_lack_is_one_line(tmp_path: Path) -> None:
    frame().drop(columns="TERMINAL_ID").to_parquet(tmp_path / "all.parquet")
    with pytest.raises(DataError, match="there is no column TERMINAL_ID"):
        handbook_data.read(tmp_path / "all.parquet", date(2026, 2, 1), date(2026, 2, 22))
