"""The guide's table of costs, added up from the bundle's own schedules, triggers, clusters and warehouse."""

from __future__ import annotations

import re

import pytest

from .costs import VOLUMES, Cost, costs
from .problems import known
from .rendering import GIVEN, ROOT, render

GUIDE = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
BY_DEFAULT = ("ingest_and_detect", "gold", "review_queue", "train", "maintain")
A_FILE_A_MINUTE = {"file_arrival": {"url": "/Volumes/main/fraudlake/landing/", "min_time_between_triggers_seconds": 60}}


def shown(cost: Cost) -> list[str]:
    return [f"{dbu:,.0f} DBU, ${dollars:,.0f}" for dbu, dollars in zip(cost.dbu, cost.dollars, strict=True)]


def total(some: list[Cost]) -> Cost:
    return Cost(
        tuple(sum(cost.dbu[at] for cost in some) for at in range(len(VOLUMES))),
        tuple(sum(cost.dollars[at] for cost in some) for at in range(len(VOLUMES))),
    )


def added_up() -> dict[str, list[str]]:
    """The rows of the table: what they should say."""
    parts = costs(render("prod", "aws", has_desk=True, is_endless=True, **GIVEN))
    by_file = costs(render("prod", **GIVEN, ingest_trigger=A_FILE_A_MINUTE))["ingest_and_detect"]
    rows = {f"`{name}`": cost for name, cost in parts.items()}
    rows |= {"`ingest_and_detect`, a file a minute": by_file}
    rows |= {"together, as deployed": total([parts[name] for name in BY_DEFAULT])}
    rows |= {
        "with `alerts`, `deliver` and `desk`": total(
            [parts[name] for name in (*BY_DEFAULT, "alerts", "deliver", "desk")]
        )
    }
    return {name: shown(cost) for name, cost in rows.items()}


def printed() -> dict[str, list[str]]:
    """The rows of the table: what they say."""
    _, _, table = GUIDE.partition("| a month | starts |")
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.split("\n\n")[0].splitlines()[2:]
    ]
    return {row[0]: row[2:] for row in rows}


def test_the_guides_table_adds_up() -> None:
    assert printed() == added_up()


def test_the_guide_dates_its_prices() -> None:
    prices = known("list_prices")
    assert all(f"${price:.2f}" in GUIDE for price in prices.values())
    assert re.search(r"list prices of April 2026", GUIDE)


def test_the_page_on_sizing_says_what_the_guides_table_is_added_up_from() -> None:
    page = " ".join((ROOT / "docs" / "explanation" / "sizing.md").read_text().split())
    (rows, run) = re.findall(r"a million rows are ([\d.]+) DBU and a run ([\d.]+)\.", page)[0]

    assert float(rows) == pytest.approx(sum(known("dbu_of")["million_rows"].values()))
    assert float(run) == known("dbu_of")["run"]


@pytest.mark.parametrize(
    ("quartz", "runs"), [("0 10 * * * ?", 720), ("0 0/5 * * * ?", 8640), ("0 0 3 ? * SUN", 5), ("0 30 1 * * ?", 30)]
)
def test_another_schedule_costs_accordingly(quartz: str, runs: int) -> None:
    rendered = render("prod", **GIVEN)
    rendered.jobs()["maintain"]["schedule"]["quartz_cron_expression"] = quartz

    assert costs(rendered)["maintain"].dbu[0] == pytest.approx(runs * 0.1)


def test_a_job_that_never_pauses_runs_at_most_480_times_a_day() -> None:
    endless = costs(render("prod", is_endless=True, **GIVEN))["ingest_and_detect_serverless"]

    assert endless.dbu[0] / 30 == pytest.approx(48, abs=0.01)


def test_alerts_a_minute_apart_wake_the_warehouse_once() -> None:
    rendered = render("prod", **GIVEN)
    before = costs(rendered)["alerts"].dbu[0]
    rendered.resources["alerts"]["lag"]["schedule"]["quartz_cron_schedule"] = "0 51 * * * ?"

    assert before < costs(rendered)["alerts"].dbu[0] < 1.2 * before


def test_each_job_says_how_soon_it_must_start() -> None:
    """Databricks' default, performance-optimized, costs more; only what somebody or an alert waits for needs it."""
    jobs = render("prod", is_endless=True, **GIVEN).jobs()
    soon = {key for key, job in jobs.items() if job["performance_target"] == "PERFORMANCE_OPTIMIZED"}

    assert {job["performance_target"] for job in jobs.values()} == {"STANDARD", "PERFORMANCE_OPTIMIZED"}
    assert soon == {"ingest_and_detect", "ingest_and_detect_serverless", "deliver", "probe"}
