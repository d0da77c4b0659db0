"""The report: each figure is that of its table, counted by hand from the rows of the lake; it is one safe file."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import pytest

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake.local_store import LocalStore
from fraudlake.review.window import Window
from fraudlake.settings import load
from fraudlake_desk.documents import document, report
from tests.conftest import FraudlakeHere
from tests.desk import conftest as made
from tests.desk.page import Page

NOW = made.NOON + 10 * made.DAY
FIRST, SECOND, THIRD = (date(2026, 3, day) for day in (7, 8, 9))


def page(root: Path, first: date | None = None, last: date | None = None) -> Page:
    store = LocalStore(load(lake=root))
    return Page(document.render(report.report(store, report.days_of(store, first, last)), NOW))


@pytest.fixture(scope="module")
def whole(made_lake: Path) -> Page:
    return page(made_lake)


def test_the_figures_at_the_top_are_those_of_the_tables(whole: Page) -> None:
    assert whole.facts == {
        "transactions": "10",
        "alerts": "5",
        "cases": "4",
        "amount at risk": str(600.0 + 900.0 + 700.0 + 800.0),
        "items decided": "5",
        "recall, estimated": whole.blocks["What is missed"].rows[1][2],
        "model version": "3",
    }


def test_each_layer_has_its_number_of_rows(whole: Page) -> None:
    assert [row[:2] for row in whole.blocks["The way of the data"].rows[1:]] == [
        ["bronze_transactions", "12"],
        ["silver_transactions", "10"],
        ["silver_quarantine", "2"],
        ["silver_alerts", "5"],
        ["gold_fraud_predictions", "10"],
    ]


def test_the_bars_of_days_have_the_numbers_of_the_table(whole: Page) -> None:
    by_day = Counter(str(row["date"]) for row in made.payments())
    block = whole.blocks["Transactions"]
    assert dict(zip(block.column(0), map(int, block.column(1)), strict=True)) == by_day
    assert block.marks == [by_day[day] for day in sorted(by_day)] == [4, 3, 3]
    amounts = [sum(row["amount"] for row in made.payments() if str(row["date"]) == day) for day in sorted(by_day)]
    assert [float(amount) for amount in block.column(2)] == pytest.approx(amounts)
    large = whole.blocks["Alerts of large"]
    assert large.marks == [2, 1, 1] and large.column(1) == ["2", "1", "1"]


def test_amounts_at_the_edge_of_what_a_double_holds_leave_a_finite_sum_of_the_day(tmp_path: Path) -> None:
    root = made.empty_lake(tmp_path / "lake")
    paid = made.payments()
    huge = [dict(row, amount=1.7e308, timestamp=made.NOON, date=FIRST) for row in paid[:2]]
    made.write(root, tables.SILVER_TRANSACTIONS, [*huge, paid[2]])

    assert [float(amount) for amount in page(root).blocks["Transactions"].column(2)] == [2e12 + 20]


def test_a_row_in_quarantine_counts_for_each_of_its_reasons(whole: Page) -> None:
    block = whole.blocks["Quarantine by reason"]
    assert sorted(map(tuple, block.rows[1:])) == [
        ("amount_is_known", "1"),
        ("amount_is_positive", "1"),
        ("timestamp_is_known", "1"),
    ]
    assert block.marks == [1, 1, 1]


def test_a_rule_has_the_precision_of_the_latest_verdicts(whole: Page) -> None:
    rows = {row[0]: row[1:] for row in whole.blocks["Rules"].rows[1:]}
    assert set(rows) == {"large", made.HOSTILE, "draft"}
    # Of large: t1 and t3 are fraud, t5 is genuine after a correction, t7 is not decided.
    assert rows["large"][:4] == ["2", "pattern", "live", "4"]
    assert (float(rows["large"][4]), rows["large"][5], float(rows["large"][6])) == (4 / 3, "3", 2 / 3)
    assert rows[made.HOSTILE][3] == "1" and float(rows[made.HOSTILE][6]) == 1.0
    assert rows["draft"][:7] == ["1", "pattern", "shadow", "1", str(1 / 3), "1", "0.0"]


def test_rules_in_the_same_case_are_counted_by_case(whole: Page) -> None:
    assert sorted(map(tuple, whole.blocks["Rules in the same cases"].rows[1:])) == [
        (made.HOSTILE, "large", "1"),
        ("large", "no other rule", "3"),
    ]


def test_the_queue_has_what_became_of_it(whole: Page) -> None:
    assert whole.blocks["Queue and verdicts"].rows[1:] == [
        ["2026-03-07", "2", "1", "2", "1", "0", "0"],
        ["2026-03-08", "1", "1", "1", "1", "0", "0"],
    ]


def test_what_is_missed_is_weighed_by_the_draw(whole: Page) -> None:
    rows = {row[0]: row[1:] for row in whole.blocks["What is missed"].rows[1:]}
    # Two cases are fraud. The one drawn account of the second day stands for three, and is fraud.
    assert float(rows["share of the fraud that was listed and found"][0]) == pytest.approx(2 / 3)
    assert float(rows["share of the fraud that was listed and found"][1]) == pytest.approx(2 / (2 + 3))
    assert float(rows["accounts with fraud that nothing flagged"][1]) == 3.0
    assert float(rows["amount of fraud that nothing flagged"][1]) == pytest.approx(3 * 30.0)
    assert rows["amount of fraud that nothing flagged"][2].startswith("at least ")
    assert float(rows["accounts with fraud flagged and not reviewed"][1]) == 0.0
    assert float(rows["share of the decided cases that are fraud"][0]) == pytest.approx(2 / 3)


def test_the_models_line_is_that_of_the_verdicts(whole: Page) -> None:
    block = whole.blocks["Quality by day"]
    assert [(row[0], row[2], float(row[5])) for row in block.rows[1:]] == [
        ("2026-03-07", "flink", 0.1),
        ("2026-03-07", "verdict", 0.25),
        ("2026-03-08", "verdict", 0.375),
    ]
    assert block.marks == [0.25, 0.375, 0.625, 0.625, 0.7, 0.7]


def test_scores_and_drift_have_a_mark_for_each_figure(whole: Page) -> None:
    assert whole.blocks["Scores"].rows[1:] == [
        ["0.0 to 0.1", "6", "0", "0"],
        ["0.5 to 0.6", "1", "1", "0"],
        ["0.8 to 0.9", "1", "1", "1"],
        ["0.9 to 1.0", "2", "2", "2"],
    ]
    assert whole.blocks["Scores"].marks == [6, 1, 1, 2]
    assert sorted(whole.blocks["Drift"].marks) == [0.0625, 0.125, 0.5]
    assert whole.blocks["Drift"].rows[1] == ["amount", "0.5", "0.5"]


def test_a_part_of_the_days_has_their_figures_alone(made_lake: Path) -> None:
    second = page(made_lake, SECOND, SECOND)
    assert (second.facts["transactions"], second.facts["alerts"], second.facts["cases"]) == ("3", "1", "1")
    assert second.blocks["Queue and verdicts"].column(0) == ["2026-03-08"]
    # Rows without a time count on all days.
    assert second.blocks["Quarantine by reason"].column(0) == ["amount_is_known", "timestamp_is_known"]


def test_texts_of_others_are_texts_and_the_file_needs_nothing_else(made_lake: Path, whole: Page) -> None:
    assert {"script", "b", "link", "img", "iframe", "object"}.isdisjoint(whole.tags)
    assert not [name for name in whole.attributes if name.startswith("on") or name in ("src", "style", "action")]
    assert made.HOSTILE in whole.blocks["Rules"].column(0)
    store = LocalStore(load(lake=made_lake))
    html = document.render(report.report(store, report.days_of(store)), NOW)
    assert "default-src 'none'" in html
    assert "http://" not in html and "https://" not in html and "@import" not in html and "url(" not in html


def test_an_empty_lake_says_what_to_run(tmp_path: Path) -> None:
    blocks = page(made.empty_lake(tmp_path / "lake")).blocks
    said = {title: block.text for title, block in blocks.items()}
    for title, command in (
        ("Transactions", "fraudlake run"),
        ("Rules", "fraudlake detect"),
        ("Alerts", "fraudlake detect"),
        ("Rules in the same cases", "fraudlake aggregate"),
        ("Deliveries", "fraudlake deliver"),
        ("Cases", "fraudlake aggregate"),
        ("What is missed", "fraudlake queue build"),
        ("Queue and verdicts", "fraudlake queue build"),
        ("Quality by day", "fraudlake train"),
        ("Scores", "fraudlake score"),
        ("Drift", "fraudlake score"),
    ):
        assert command in said[title]
    # The days may have alerts of cases that were opened before.
    assert "A case is of the day of its first alert" in said["Cases"]


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        (THIRD, FIRST, "--from 2026-03-09 is after --to 2026-03-07: swap them"),
        (date(2026, 4, 1), None, "--from 2026-04-01: the transactions of .* are of 2026-03-07 to 2026-03-09"),
        (None, date(2026, 1, 1), "--to 2026-01-01: the transactions of .* are of 2026-03-07 to 2026-03-09"),
    ],
)
def test_days_that_cannot_be_are_refused(made_lake: Path, first: date | None, last: date | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        report.days_of(LocalStore(load(lake=made_lake)), first, last)


def test_days_outside_the_lake_are_left_out(made_lake: Path) -> None:
    store = LocalStore(load(lake=made_lake))
    assert report.days_of(store, date(2026, 1, 1), date(2027, 1, 1)) == Window(FIRST, THIRD)


def paid_on(tmp_path: Path, *days: date) -> LocalStore:
    """Return a lake with a transaction on each day."""
    root = made.empty_lake(tmp_path / "lake")
    at = {day: datetime.combine(day, time(12), UTC) for day in days}
    rows = [dict(made.payments()[0], transaction_id=f"of {day}", date=day, timestamp=at[day]) for day in days]
    made.write(root, tables.SILVER_TRANSACTIONS, rows)
    return LocalStore(load(lake=root))


def test_by_default_a_report_has_the_last_days_and_names_the_others(tmp_path: Path) -> None:
    known = [THIRD - timedelta(days=number) for number in range(40)]
    store = paid_on(tmp_path, *known, date(1970, 1, 5), date(9999, 12, 1))

    days = report.days_of(store)

    assert days == Window(date(2026, 2, 8), THIRD) and len(days.days) == 30
    assert report.report(store, days).lead == (
        "2026-02-08 to 2026-03-09: 30 days. Transactions of 12 other days, 1970-01-05 to 9999-12-01, are not in it."
    )


def test_the_last_days_begin_with_one_that_has_transactions(tmp_path: Path) -> None:
    store = paid_on(tmp_path, date(1970, 1, 5), FIRST, THIRD)
    assert report.days_of(store) == Window(FIRST, THIRD)


def test_days_that_are_wanted_may_be_more_than_thirty(tmp_path: Path) -> None:
    store = paid_on(tmp_path, FIRST - timedelta(days=400), FIRST, THIRD)
    assert report.days_of(store, last=THIRD) == Window(FIRST - timedelta(days=400), THIRD)


def test_a_lake_whose_days_are_all_in_the_future_has_a_report(tmp_path: Path) -> None:
    far = date(9999, 11, 1)
    assert report.days_of(paid_on(tmp_path, far)) == Window(far, far)


@pytest.mark.slow
def test_three_years_and_sixty_rules_are_less_than_two_megabytes(tmp_path: Path) -> None:
    root = made.empty_lake(tmp_path / "lake")
    days = [FIRST + timedelta(days=number) for number in range(1096)]
    paid = [
        dict(made.payments()[0], date=day, timestamp=made.NOON + number * made.DAY) for number, day in enumerate(days)
    ]
    made.write(root, tables.SILVER_TRANSACTIONS, paid)
    alert = made.alerts()[0]
    made.write(
        root,
        tables.SILVER_ALERTS,
        [
            dict(alert, alert_id=f"{rule} {number}", rule=f"rule_{rule}", timestamp=made.NOON + number * made.DAY)
            for rule in range(60)
            for number in range(0, 1096, 1 + rule % 7)
        ],
    )
    made.write(root, tables.SILVER_RULES, [made.rule(number, f"rule_{number}", 1, "live") for number in range(60)])
    quality = [dict(made.quality(0, "flink", 0.5), date=day) for day in days]
    made.write(root, tables.GOLD_PREDICTION_QUALITY, quality)
    drift = {"model_version": "3", "transactions": 9, "psi": 0.2, "is_after_training": True}
    made.write(
        root, tables.GOLD_FEATURE_DRIFT, [dict(drift, date=day, feature=f"f{one}") for day in days for one in range(40)]
    )
    store = LocalStore(load(lake=root))
    html = document.render(report.report(store, report.days_of(store, days[0], days[-1])), NOW)
    assert len(html.encode()) < 2_000_000
    shown = Page(html)
    assert shown.facts["transactions"] == "1096"
    weeks = Counter(day - timedelta(days=day.weekday()) for day in days)
    assert shown.blocks["Transactions"].marks == [weeks[monday] for monday in sorted(weeks)]


@pytest.mark.slow
def test_the_command_writes_the_file_and_starts_no_spark(made_lake: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['fraudlake', '--lake', sys.argv[1], 'report', '--out', sys.argv[2]]\n"
        "from fraudlake_cli.main import main; main()\n"
        "from pyspark.sql import SparkSession; assert SparkSession.getActiveSession() is None\n"
        "import pyspark; assert pyspark.SparkContext._gateway is None"
    )
    out = tmp_path / "march.html"
    subprocess.run([sys.executable, "-c", code, str(made_lake), str(out)], check=True, capture_output=True)
    shown = Page(out.read_text())
    assert shown.facts["transactions"] == "10"
    assert "landed" in shown.blocks["The way of the data"].column(0)


def test_a_file_that_cannot_be_written_is_one_line(
    made_lake: Path, tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    done = fraudlake_here("--lake", str(made_lake), "report", "--out", str(tmp_path / "missing" / "r.html"))
    assert done.returncode == 2
    assert "No such file or directory" in done.stderr.splitlines()[-1]
