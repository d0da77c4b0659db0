"""The SQL of dashboard and alerts, run on a lake whose contents are known."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.gold import account_daily, alert_windows, detector_agreement, lane_agreement
from fraudlake.lake.contents import TABLES, VIEWS
from fraudlake.settings import Settings

from .rendering import GIVEN, ROOT, render

pytestmark = [pytest.mark.stream, pytest.mark.long]

NOW = datetime.now(UTC).replace(tzinfo=None)
DAY = date(2026, 3, 7)
SMALL, LARGE = datetime(2026, 3, 7, 12), datetime(2026, 3, 7, 12, 0, 30)

VERDICTS = ((True, SMALL), (False, LARGE))
"""Of the transaction ``b``; the later one counts."""


def part(transaction: str, timestamp: datetime = LARGE) -> dict[str, Any]:
    """A transaction of an alert's evidence."""
    return {"variable": "LARGE", "transaction_id": transaction, "timestamp": timestamp, "amount": 600.0}


Rows = list[tuple[tables.Table, list[dict[str, Any]]]]

ROWS: Rows = [
    # Four rows landed two hours ago; one of them is valid, two are quarantined, one of these in silver, too, and late.
    (tables.BRONZE_TRANSACTIONS, [{"_ingested_at": NOW - timedelta(hours=2)}] * 4),
    (
        tables.SILVER_TRANSACTIONS,
        [{"transaction_id": "b", "account_id": "2", "timestamp": LARGE, "amount": 600.0, "label": True}],
    ),
    (
        tables.SILVER_QUARANTINE,
        [
            {
                "reasons": reasons,
                "_ingested_at": NOW - timedelta(hours=2),
                "quarantined_at": NOW - timedelta(minutes=90),
            }
            for reasons in (["amount_is_finite"], ["late"])
        ],
    ),
    (
        tables.SILVER_ALERTS,
        [
            {
                "alert_id": "a",
                "rule": "old",
                "account_id": "2",
                "transaction_id": "b",
                "timestamp": LARGE,
                "amount": 600.0,
                "detected_at": NOW - timedelta(minutes=30),
                "evidence": [part("a", SMALL), part("b")],
                "entity": "terminal",
                "entity_key": "t7",
            }
        ],
    ),
    (
        tables.SILVER_SHADOW_ALERTS,
        [
            {
                "alert_id": f"s{end}",
                "rule": "new",
                "account_id": account,
                "timestamp": timestamp,
                "transaction_id": end,
                "evidence": [part(end, timestamp)],
            }
            for end, account, timestamp in (("b", "2", LARGE), ("c", "2", SMALL), ("d", "3", LARGE))
        ],
    ),
    (
        tables.SILVER_VERDICTS,
        [{"transaction_id": "b", "verdict": verdict, "decided_at": at} for verdict, at in VERDICTS],
    ),
    (
        tables.SILVER_RULES,
        [
            {"change": change, "name": name, "version": 1, "kind": "threshold", "status": status, "author": "ann"}
            for change, name, status in (
                (1, "old", "live"),
                (2, "new", "draft"),
                (3, "new", "shadow"),
                (4, "old", "retired"),
            )
        ],
    ),
    (
        account_daily.TABLE,
        [
            {"account_id": "2", "date": DAY, "transactions": 2, "amount_sum": 600.5, "amount_max": 600.0, "alerts": 1},
            {"account_id": "3", "date": DAY, "transactions": 1, "amount_sum": 5.0, "amount_max": 5.0, "alerts": 0},
        ],
    ),
    (
        alert_windows.VIEW,
        [
            {
                "kind": kind,
                "account_id": account,
                "window_start": SMALL,
                "window_end": LARGE,
                "transactions": 2,
                "amount_sum": 600.5,
                "alerts": alerts,
                "state": "open",
                "date": DAY,
            }
            for kind, account, alerts in (
                ("tumbling", "2", 1),
                ("tumbling", "3", 0),
                ("sliding", "2", 1),
                ("session", "2", 1),
                ("session", "3", 0),
            )
        ],
    ),
    (detector_agreement.TABLE, [{"date": DAY, "both": 1, "only_flink": 0, "only_spark": 2}]),
    (
        lane_agreement.TABLE,
        [
            {"date": DAY, "rule": rule, "both": both, "only_fast": 2, "only_exact": 0, **counts, "latency_p95": latency}
            for rule, both, latency, counts in (
                ("old", 3, 40.0, {"only_fast_late": 2, "only_exact_late": 0}),
                ("new", 1, 60.0, {"only_fast_late": 1, "only_fast_unknown": 1}),
                ("off", 0, None, {"only_fast_not_running": 2}),
            )
        ],
    ),
    (
        tables.GOLD_FRAUD_PREDICTIONS,
        [
            {"amount": 600.0, "probability": 0.9, "prediction": True, "label": True, "model_version": "2", "date": DAY},
            {"amount": 0.5, "probability": 0.1, "prediction": False, "label": True, "model_version": "2", "date": DAY},
        ],
    ),
    (
        tables.GOLD_FEATURE_DRIFT,
        [
            {"date": DAY, "model_version": version, "feature": "amount", "psi": psi, "is_after_training": is_after}
            for version, psi, is_after in (("1", 0.1, True), ("2", 0.3, True), ("3", 0.9, False))
        ],
    ),
    (
        tables.GOLD_PREDICTION_QUALITY,
        [
            {"date": DAY, "model_version": "9", "fraud": 2, "precision": 1.0, "recall": 0.9, "f1": 0.9},
            {"date": DAY, "model_version": "10", "fraud": 2, "precision": 0.5, "recall": 0.4, "f1": 0.44},
            {"date": DAY + timedelta(days=1), "model_version": "10", "fraud": 0},
        ],
    ),
]


def lake(spark: Any, contents: Rows) -> Any:
    """A session in which every table has its name and columns, and these rows."""
    session = spark.newSession()
    for table in (*TABLES, *VIEWS):
        rows = [row for of, some in contents if of is table for row in some]
        whole = [tuple(row.get(name) for name in table.column_names) for row in rows]
        session.createDataFrame(whole, table.columns).createOrReplaceTempView(table.name)
    return session


@pytest.fixture(scope="module")
def filled(spark: Any) -> Any:
    return lake(spark, ROWS)


def shown(session: Any, dataset: str) -> list[tuple[Any, ...]]:
    dashboard = json.loads((ROOT / "resources" / "fraud.lvdash.json").read_text())
    query = next("".join(entry["queryLines"]) for entry in dashboard["datasets"] if entry["name"] == dataset)
    return [tuple(row) for row in session.sql(query).collect()]


def measured(session: Any, alert: str) -> Any:
    """What an alert compares with its threshold."""
    rendered = render("prod", catalog="some_catalog", schema="some_schema", **GIVEN)
    definition = rendered.resources["alerts"][alert]
    query = definition["query_text"].replace("some_catalog.some_schema.", "")
    [row] = session.sql(query).collect()
    return row[definition["evaluation"]["source"]["name"]]


def test_totals(filled: Any) -> None:
    assert shown(filled, "totals") == [(3, 2, 1, 1, 600.0)]


def test_the_amount_at_stake_is_finite(spark: Any) -> None:
    alerts = [{"alert_id": name, "account_id": "2", "amount": 1.7e308} for name in "ab"]
    assert shown(lake(spark, [(tables.SILVER_ALERTS, alerts)]), "totals") == [(0, 0, 2, 1, 2e12)]


def test_days(filled: Any) -> None:
    assert shown(filled, "days") == [(DAY, 3, 1, 1, 605.5)]


def test_top_accounts_are_those_with_alerts(filled: Any) -> None:
    assert shown(filled, "top_accounts") == [("2", 1, 2, 600.5, 600.0, DAY)]


def test_hours_count_each_alert_once(filled: Any) -> None:
    assert shown(filled, "hours") == [(DAY, SMALL, 1, 4)]


def test_sessions_are_those_with_alerts(filled: Any) -> None:
    assert shown(filled, "sessions") == [("2", SMALL, LARGE, 2, 600.5, 1, "open")]


def test_agreement(filled: Any) -> None:
    assert shown(filled, "agreement") == [(DAY, "both", 1), (DAY, "only Flink", 0), (DAY, "only Spark", 2)]


def test_lanes_are_added_up_over_the_rules(filled: Any) -> None:
    assert shown(filled, "lane_days") == [(DAY, "both", 4), (DAY, "only exact", 0), (DAY, "only fast", 6)]


def test_alerts_of_one_lane_are_shown_by_rule_and_reason(filled: Any) -> None:
    assert shown(filled, "lane_reasons") == [
        (DAY, "new", "fast", "late", 1),
        (DAY, "new", "fast", "unknown", 1),
        (DAY, "off", "fast", "not_running", 2),
        (DAY, "old", "fast", "late", 2),
    ]


def test_latency_is_that_of_the_slowest_rule(filled: Any) -> None:
    assert shown(filled, "lane_latency") == [(DAY, "p95", 60.0)]


def test_model_quality_by_version_and_figure(filled: Any) -> None:
    assert (DAY, "10", "F1", 0.44) in shown(filled, "model_quality")
    assert len(shown(filled, "model_quality")) == 21


def test_drift_compares_what_is_predicted_with_what_is_labelled(filled: Any) -> None:
    assert shown(filled, "drift") == [(DAY, "2", 0.5, 0.5, 1.0, 300.25)]


def test_drift_of_features_is_that_of_days_which_no_model_learned_from(filled: Any) -> None:
    assert shown(filled, "feature_drift") == [(DAY, "amount", 0.3)]


def test_rules_are_shown_as_they_stand_now(filled: Any) -> None:
    assert [row[:5] for row in shown(filled, "rules")] == [("new", 1, "threshold", "shadow", "ann")]


def test_alerts_of_rules_are_counted_by_day_apart_from_those_in_the_shadow(filled: Any) -> None:
    assert shown(filled, "rule_days") == [("new", "shadow", "new (shadow)", DAY, 3), ("old", "live", "old", DAY, 1)]


def test_precision_of_rules_counts_alerts_whose_truth_is_known(filled: Any) -> None:
    assert shown(filled, "rule_precision") == [("new", "shadow", 3, 1, 1.0, 1, 0.0), ("old", "live", 1, 1, 1.0, 1, 0.0)]


def test_alerts_of_two_rules_overlap_on_an_account_at_a_time(filled: Any) -> None:
    assert shown(filled, "rule_overlap") == [("new", "shadow", "old", 2, 1, 0)]


def test_keys_with_most_alerts_are_of_the_rules_entities(filled: Any) -> None:
    assert shown(filled, "keys") == [("terminal", "t7", "old", 1, 1, LARGE)]


def test_freshness_tells_how_old_the_newest_rows_are(filled: Any) -> None:
    minutes = {what: ago for what, _, ago in shown(filled, "freshness")}

    assert minutes["transactions scored"] is None  # no row says when
    assert 30 <= minutes["alerts raised"] < minutes["rows quarantined"] < minutes["transactions landed"]


def test_lag_counts_rows_that_nobody_judged(filled: Any) -> None:
    assert measured(filled, "lag") == 2


def test_quality_is_a_share_of_what_landed(filled: Any) -> None:
    assert measured(filled, "quality") == 0.5


def test_model_quality_is_of_the_newest_model_on_the_latest_day_with_fraud(filled: Any) -> None:
    assert measured(filled, "model_quality") == 0.44


HAND = {"item_id": "hand", "kind": "opened", "transaction_ids": ["p"], "day": DAY}
"""A case that was opened by hand."""


def verdict(item: str, *transactions: str, kind: str = "verdict") -> dict[str, Any]:
    return {"item_id": item, "kind": kind, "transaction_ids": [*transactions]}


def merged(item: str, into: str, kind: str = "merged") -> dict[str, Any]:
    return {"item_id": item, "kind": kind, "merged_into": into}


@pytest.mark.parametrize(
    ("late_items", "events"),
    [
        (4, []),
        (3, [verdict("a", "t")]),
        (4, [verdict("b", "u")]),  # its case got the payment v later
        (3, [verdict("b2", "u", "v")]),  # when its earliest alert was another one
        (3, [verdict("b", "u"), verdict("b", "u", "v", kind="corrected")]),
        (3, [verdict("drawn")]),
        (4, [verdict("a", "t"), verdict("a", "t", kind="withdrawn")]),
        (3, [verdict("a", "t"), verdict("a", "t", kind="withdrawn"), verdict("a", "t")]),
        (4, [verdict("c", "t")]),  # of another entity, about the same payment
        (4, [{"item_id": "a", "kind": "assigned", "assignee": "who has left"}, {"item_id": "a", "kind": "noted"}]),
        (3, [merged("a", "b")]),
        (2, [merged("a", "b"), verdict("b", "u", "v", "t")]),
        (2, [merged("a", "c"), merged("c", "b"), verdict("b", "u", "v", "t", "w")]),
        (4, [merged("a", "b"), merged("a", "b", kind="separated")]),
        (3, [merged("a", "b"), merged("a", "b", kind="separated"), verdict("b", "u", "v")]),
        (5, [HAND]),
        (4, [HAND, verdict("hand", "p")]),
        (4, [HAND, merged("hand", "a")]),
        (3, [HAND, merged("hand", "a"), merged("b", "a")]),
    ],
)
def test_review_counts_the_items_that_nobody_has_decided_on_in_time(
    spark: Any, late_items: int, events: list[dict[str, Any]]
) -> None:
    """Two cases, a drawn account and a case that is gone are in an old queue; the others are in a young one."""
    ages = {"a": 3, "b": 3, "b2": 3, "drawn": 3, "gone": 3, "c": 1, "young": 1}
    cases = [("a", ["a"], ["t"]), ("b", ["b", "b2"], ["u", "v"]), ("c", ["c"], ["w"])]
    review: Rows = [
        (
            tables.GOLD_CASES,
            [{"case_id": name, "alert_ids": alerts, "transaction_ids": paid} for name, alerts, paid in cases],
        ),
        (
            tables.GOLD_REVIEW_QUEUE,
            [{"item_id": name, "built_at": NOW - timedelta(days=days)} for name, days in ages.items()],
        ),
        (
            tables.SILVER_REVIEW_EVENTS,
            [{"number": number, "at": NOW - timedelta(days=3), **event} for number, event in enumerate(events, 1)],
        ),
    ]
    assert measured(lake(spark, review), "review") == late_items


def test_review_goes_by_the_default_of_the_setting() -> None:
    query = render("prod", **GIVEN).resources["alerts"]["review"]["query_text"]
    assert f"INTERVAL {Settings().review_limit.days} DAYS" in query


def test_alerts_stay_quiet_on_an_empty_lake(spark: Any) -> None:
    empty = lake(spark, [])

    assert measured(empty, "lag") == 0
    assert measured(empty, "quality") == 0
    assert measured(empty, "review") == 0


BILLED = [
    ("jobs", 100.0, {"job_name": "fraudlake gold"}, {}),
    ("jobs", 20.0, {"job_name": "[staging] fraudlake train"}, {}),
    ("jobs", 48.0, {"job_name": "fraudlake realtime"}, {"project": "fraudlake"}),
    ("apps", 12.0, {"app_name": "fraudlake-desk-prod"}, {}),
    ("sql", 10.0, {"warehouse_id": "w1"}, {"project": "fraudlake"}),
    ("pipelines", 1.0, {"dlt_pipeline_id": "p1"}, {"project": "fraudlake"}),
    ("jobs", 1000.0, {"job_name": "payroll"}, {}),
    ("sql", 1000.0, {"warehouse_id": "w2"}, {"project": "other"}),
]
"""Usage: product, DBU, what it is of, and its tags."""


def test_the_guides_query_of_actual_costs_has_all_of_the_bundle_and_nothing_else(spark: Any) -> None:
    [query] = re.findall(r"```sql\n(SELECT coalesce\(.*?)```", (ROOT / "docs/how-to/deploy.md").read_text(), re.DOTALL)
    session = spark.newSession()
    what = "STRUCT<job_name STRING, app_name STRING, warehouse_id STRING, dlt_pipeline_id STRING>"
    usage = f"sku_name STRING, usage_quantity DOUBLE, usage_metadata {what}, custom_tags MAP<STRING, STRING>"
    session.createDataFrame(BILLED, usage).selectExpr(
        "*", "'AWS' AS cloud", "current_date() AS usage_date", "current_timestamp() AS usage_start_time"
    ).createOrReplaceTempView("usage")
    # Each price was another before this year.
    prices = "price_start_time TIMESTAMP, price_end_time TIMESTAMP, sku_name STRING, pricing STRUCT<default DOUBLE>"
    year, far = datetime(2026, 1, 1), datetime(2020, 1, 1)
    listed = [
        row
        for sku in ("jobs", "apps", "sql", "pipelines")
        for row in ((far, year, sku, (9.0,)), (year, None, sku, (0.5,)))
    ]
    for cloud in ("AWS", "AZURE"):
        session.createDataFrame(listed, prices).selectExpr("*", f"'{cloud}' AS cloud").createOrReplaceTempView(cloud)
    session.sql("SELECT * FROM AWS UNION ALL SELECT * FROM AZURE").createOrReplaceTempView("list_prices")

    rows = session.sql(query.replace("system.billing.", "")).collect()

    assert [(row["what"], row["dbu"], row["dollars"]) for row in rows] == [
        ("fraudlake gold", 100.0, 50.0),
        ("fraudlake realtime", 48.0, 24.0),
        ("[staging] fraudlake train", 20.0, 10.0),
        ("fraudlake-desk-prod", 12.0, 6.0),
        ("w1", 10.0, 5.0),
        ("p1", 1.0, 0.5),
    ]
