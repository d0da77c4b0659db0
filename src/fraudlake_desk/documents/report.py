"""Report: compiles a document on the health, rules, review and model of some days; each figure names its table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.review import payments
from fraudlake.review.window import Window
from fraudlake.text.counts import counted
from fraudlake.text.sql_text import bounded_sum, value
from fraudlake.values import summed_amount
from fraudlake_desk.documents import charts
from fraudlake_desk.documents.document import Block, Document, Section, finite, text
from fraudlake_desk.queue import precision
from fraudlake_desk.queue.reviewed import Reviewed

if TYPE_CHECKING:
    import pyarrow as pa

    from fraudlake.lake.store import Store
    from fraudlake.model.intervals import Estimate
    from fraudlake.operations.status import Status
    from fraudlake.tables import Table

_BARS = 62
"""The largest number of days with a bar each; for more days, the bars are weeks."""
_CHARTED = 8
"""The largest number of rules with a chart."""
_NO_CASES = (
    "No case was opened on these days. A case is of the day of its first alert; 'fraudlake aggregate' computes it."
)
_PAIRS = 20
_LATEST = timedelta(days=30)
"""The length of a report whose days are not given."""
_HEAT = 31
"""The largest number of days of drift."""
_DRIFTED = 0.25
"""The stability index from which a feature has drifted, by convention."""
_DAY = "CAST(timestamp AS DATE)"
_QUALITY = ("precision_at_budget", "recall_at_budget", "area_under_pr")
_JUDGES = {"chargebacks": "verdicts and age", "verdict": "verdicts", "flink": "labels"}
"""The sources of the truth, the best first, with their names for people."""
_FURTHER = ("precision", "recall", "true_prediction_rate", "amount_saved")
_REVIEWED = f"{tables.GOLD_REVIEW_QUEUE.name}, {tables.SILVER_REVIEW_EVENTS.name}"


def days_of(store: Store, first: date | None = None, last: date | None = None) -> Window | None:
    """Return the days of a report: the given range cut to the lake's days, or the last 30; None without transactions.

    By default the last day is the latest one with transactions that is not in the future.

    Raises:
        UsageError: the first day is after the last one, or the lake has no transactions on these days.
    """
    lake_days = payments.days_between(store, first, last)
    if lake_days is None or first or last:
        return lake_days
    # Wrong clocks produce rows of 1970 and 9999, which silver has if quality rules only warn of them.
    until = payments.days(store, f"WHERE date <= {value(datetime.now(UTC).date())}") or lake_days
    recent = Window(until.last - _LATEST + timedelta(days=1), until.last)
    return payments.days(store, f"WHERE {recent.sql}")


def report(store: Store, days: Window | None, status: Status | None = None) -> Document:
    """Return the report of some days.

    Args:
        store: the lake.
        days: the days, as :func:`days_of` gives them; None: the lake has no transactions.
        status: the current state of the lake; None leaves out the figures of streams and landed files.
    """
    window = days or Window(date.min, date.min)
    figures = _Figures(store, window)
    note = "Layers and streams are as they are now; the other figures are of the days of this report."
    health = [figures.way(status), *_streams(status), figures.transactions(), figures.quarantine()]
    sections = [
        Section("Health", health, note),
        Section("Rules", [figures.rules(), *figures.alerts(), figures.overlap(), figures.deliveries()]),
        Section("Review", [figures.cases(), figures.missed(), figures.queue()]),
        Section("Model", [figures.quality(), figures.scores(), figures.drift()]),
    ]
    if days is None:
        lead = "The lake has no transactions yet: run 'fraudlake run'."
    else:
        lead = f"{days.first} to {days.last}: {counted(len(days.days), 'day')}.{_others(store, days)}"
    return Document(f"Fraud report of {store.short_name}", figures.headline(), sections, lead)


def _others(store: Store, days: Window) -> str:
    """Return a sentence on days with transactions outside of a report; empty if there are none."""
    columns = "count(DISTINCT date) AS days, min(date) AS first, max(date) AS last"
    others = f"WHERE NOT {days.sql}"
    (row,) = _select(store, columns, tables.SILVER_TRANSACTIONS, others).to_pylist()
    if not row["days"]:
        return ""
    span = f"{row['first']} to {row['last']}" if row["days"] > 1 else row["first"]
    return f" Transactions of {counted(row['days'], 'other day')}, {span}, are not in it."


def _select(store: Store, columns: str, table: Table, clauses: str = "") -> pa.Table:
    return store.query(" ".join(("SELECT", columns, "FROM", table.name, clauses)), table)


class _Figures:
    """The blocks of a report, each from a query or two."""

    def __init__(self, store: Store, days: Window) -> None:
        self._store = store
        self._days = days
        self._of_days = f"WHERE {days.has('date')}"
        self._of_times = f"WHERE {days.has(_DAY)}"
        amount = summed_amount(store.settings.silver_columns)
        self._by_day = self._rows(
            f"date AS day, count(*) AS transactions, {bounded_sum(amount)} AS amount",
            tables.SILVER_TRANSACTIONS,
            f"{self._of_days} GROUP BY date ORDER BY date",
        )
        self._alerts = self._rows(
            f"rule, {_DAY} AS day, count(*) AS alerts",
            tables.SILVER_ALERTS,
            f"{self._of_times} GROUP BY rule, {_DAY} ORDER BY rule, day",
        )
        self._cases = self._rows("date AS day, rules, alerts, amount_at_risk", tables.GOLD_CASES, self._of_days)
        self._reviewed = Reviewed.on_days(store, days.has("day"))
        self._queue, self._verdicts = self._reviewed.queue, self._reviewed.verdicts
        self._missed = self._reviewed.missed() if len(self._queue) else None

    def _rows(self, columns: str, table: Table, clauses: str = "") -> list[dict[str, Any]]:
        """Return the rows of a query of one table."""
        rows: list[dict[str, Any]] = _select(self._store, columns, table, clauses).to_pylist()
        return rows

    def headline(self) -> dict[str, object]:
        """Return the figures at the top."""
        models = self._rows("model_version", tables.GOLD_MODELS, "ORDER BY published_at DESC LIMIT 1")
        return {
            "transactions": sum(row["transactions"] for row in self._by_day),
            "alerts": sum(row["alerts"] for row in self._alerts),
            "cases": len(self._cases),
            "amount at risk": sum((row["amount_at_risk"] for row in self._cases), 0.0),
            "items decided": len(self._verdicts),
            "recall, estimated": self._missed.recall.value if self._missed else None,
            "model version": models[0]["model_version"] if models else None,
        }

    def way(self, status: Status | None) -> Block:
        """Return the numbers of rows of each layer, and whether they add up."""
        layers = (
            (tables.BRONZE_TRANSACTIONS, "as landed"),
            (tables.SILVER_TRANSACTIONS, "valid transactions"),
            (tables.SILVER_QUARANTINE, "rows that broke a quality rule, and late rows"),
            (tables.SILVER_ALERTS, "alerts of live rules"),
            (tables.GOLD_FRAUD_PREDICTIONS, "scored transactions"),
        )
        rows: list[Sequence[object]] = [
            (table.name, self._rows("count(*) AS total", table)[0]["total"], meaning) for table, meaning in layers
        ]
        note = "'fraudlake status' says whether they add up."
        if status is not None:
            rows.insert(0, ("landed", status.source.landed, "rows of landed files, and messages"))
            rows.insert(4, ("of these late", status.rows.late, "rows that are in silver, too"))
            note = " ".join(f"{gap}." for gap in status.gaps)
            note = note or "They add up: landed = bronze = silver + quarantine - late."
        return Block("The way of the data", note, "", ("layer", "rows", ""), rows, "each table, now")

    def transactions(self) -> Block:
        """Return the transactions by day."""
        title = "Transactions"
        table = tables.SILVER_TRANSACTIONS
        if not self._by_day:
            return Block(title, missing="No transactions yet: run 'fraudlake run'.")
        return self._over_time(
            title,
            ("transactions", "amount"),
            {row["day"]: (row["transactions"], row["amount"]) for row in self._by_day},
            table,
        )

    def quarantine(self) -> Block:
        """Return the rows in quarantine by reason."""
        title = "Quarantine by reason"
        table = tables.SILVER_QUARANTINE
        condition = f"dt IS NULL OR {self._days.has('CAST(dt AS DATE)')}"
        counts: Counter[str] = Counter()
        for row in self._rows("reasons, count(*) AS total", table, f"WHERE {condition} GROUP BY reasons"):
            counts.update(dict.fromkeys(row["reasons"] or (), row["total"]))
        if not counts:
            return Block(title, "No row of these days is in quarantine.", source=table.name)
        ordered = counts.most_common()
        chart = charts.ranked([name for name, _ in ordered], [rows for _, rows in ordered], "Rows in quarantine")
        note = "A row that broke several rules counts for each. Rows without a readable time count, too."
        return Block(title, note, chart, ("reason", "rows"), ordered, table.name)

    def rules(self) -> Block:
        """Return each rule with its alerts and its precision."""
        title = "Rules"
        changes = self._rows("name, version, kind, status", tables.SILVER_RULES, "ORDER BY change")
        versions = {(row["name"], row["version"]): row for row in changes}
        latest = sorted(
            (row for row in versions.values() if row["status"] in ("live", "shadow")),
            key=lambda row: (row["status"], row["name"], row["version"]),
        )
        if not latest and not self._alerts:
            return Block(title, missing="No rule has been evaluated yet: run 'fraudlake detect'.")
        precisions = precision.measure_rules(self._store, self._reviewed, self._days)
        former = {"kind": None, "status": "retired"}
        others = precisions.keys() - {(rule["name"], rule["version"]) for rule in latest}
        rows: list[Sequence[object]] = []
        for rule in (*latest, *({"name": name, "version": version, **former} for name, version in sorted(others))):
            of = precisions.get((rule["name"], rule["version"]), precision.NONE)
            shares = of.decided, of.value, of.weighted.value, _interval(of.weighted) if of.of_queues else None
            named = rule["name"], rule["version"], rule["kind"], rule["status"]
            rows.append((*named, of.alerts, of.alerts / len(self._days.days), *shares))
        columns = ("rule", "version", "kind", "status", "alerts", "a day", "decided", "precision", "weighted", "90 %")
        note = (
            "Decided are alerts of which a payment has a verdict; precision is the share of fraud among them. The "
            "weighted precision is estimated for all alerts of days with a queue, with those that nobody chose to look "
            "at."
        )
        read = (tables.SILVER_RULES, tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS, tables.SILVER_VERDICTS)
        source = ", ".join(table.name for table in (*read, tables.GOLD_REVIEW_QUEUE))
        return Block(title, note, "", columns, rows, source, is_wide=True)

    def alerts(self) -> list[Block]:
        """Return the alerts by day of the rules that have the most."""
        by_rule: dict[str, dict[date, int]] = defaultdict(dict)
        for row in self._alerts:
            by_rule[row["rule"]][row["day"]] = row["alerts"]
        if not by_rule:
            return [Block("Alerts", missing="No alerts on these days: run 'fraudlake detect', or look at other days.")]
        ordered = sorted(by_rule.items(), key=lambda item: (-sum(item[1].values()), item[0]))
        return [
            self._over_time(
                f"Alerts of {rule}", ("alerts",), {day: (count,) for day, count in counts.items()}, tables.SILVER_ALERTS
            )
            for rule, counts in ordered[:_CHARTED]
        ]

    def overlap(self) -> Block:
        """Return the pairs of rules that raise alerts in the same cases."""
        title = "Rules in the same cases"
        table = tables.GOLD_CASES
        if not self._cases:
            return Block(title, missing=_NO_CASES)
        pairs: Counter[tuple[str, str]] = Counter()
        for row in self._cases:
            rules = row["rules"]
            pairs.update((one, other) for number, one in enumerate(rules) for other in rules[number + 1 :])
            pairs.update([(rules[0], "no other rule")] if len(rules) == 1 else [])
        rows = [(*pair, cases) for pair, cases in pairs.most_common(_PAIRS)]
        return Block(title, "", "", ("rule", "with", "cases"), rows, table.name)

    def deliveries(self) -> Block:
        """Return the outcomes of alerts by destination."""
        title = "Deliveries"
        table = tables.SILVER_DELIVERIES
        clauses = f"{self._of_times} GROUP BY destination, status ORDER BY destination, status"
        rows = [tuple(row.values()) for row in self._rows("destination, status, count(*) AS alerts", table, clauses)]
        if not rows:
            return Block(title, missing="No alert of these days was sent: run 'fraudlake deliver --to log'.")
        return Block(title, "", "", ("destination", "outcome", "alerts"), rows, table.name)

    def cases(self) -> Block:
        """Return the cases by day."""
        title = "Cases"
        table = tables.GOLD_CASES
        if not self._cases:
            return Block(title, missing=_NO_CASES)
        by_day: dict[date, tuple[float, ...]] = {}
        for row in self._cases:
            by_day[row["day"]] = _added(by_day.get(row["day"], ()), (1, row["alerts"], row["amount_at_risk"]))
        return self._over_time(title, ("cases", "alerts", "amount at risk"), by_day, table)

    def queue(self) -> Block:
        """Return the numbers of items and verdicts of each day's queue."""
        title = "Queue and verdicts"
        if not len(self._queue):
            return Block(title, missing="No queue of these days: run 'fraudlake queue build'.")
        by_day: dict[date, Counter[str]] = defaultdict(Counter)
        for item in self._queue.to_pylist():
            by_day[item["day"]].update((item["kind"], self._verdicts.get(item["item_id"], "open")))
        names = ("case", "drawn", "fraud", "genuine", "unsure", "open")
        rows = [(day, *(counts[name] for name in names)) for day, counts in sorted(by_day.items())]
        note = "Cases and drawn accounts are the items of a day; the latest verdict on each counts."
        return Block(title, note, "", ("day", "cases", *names[1:]), rows, _REVIEWED, is_wide=True)

    def missed(self) -> Block:
        """Return the fraud that the queues missed, estimated from the items drawn at random."""
        title = "What is missed"
        missed_fraud = self._missed
        if missed_fraud is None:
            missing = (
                "No item that was drawn at random is decided: run 'fraudlake queue build', and decide on those, too."
            )
            return Block(title, missing=missing)
        rows = [
            ("share of the fraud that was flagged", None, *_estimate(missed_fraud.recall)),
            (
                "share of the fraud that was listed and found",
                missed_fraud.naive_recall,
                *_estimate(missed_fraud.reviewed),
            ),
            (
                "accounts with fraud that nothing flagged",
                missed_fraud.unflagged.drawn,
                *_estimate(missed_fraud.unflagged.accounts),
            ),
            ("amount of fraud that nothing flagged", None, *_estimate(missed_fraud.unflagged.amount)),
            (
                "accounts with fraud flagged and not reviewed",
                missed_fraud.unreviewed.drawn,
                *_estimate(missed_fraud.unreviewed.accounts),
            ),
            ("amount of fraud flagged and not reviewed", None, *_estimate(missed_fraud.unreviewed.amount)),
            ("share of the decided cases that are fraud", missed_fraud.precision, None, None),
        ]
        note = (
            f"{missed_fraud.drawn:,} decided accounts of {missed_fraud.population:,} were drawn at random on "
            f"{counted(missed_fraud.days, 'day')}, and each represents many. The figures as seen know only the fraud "
            "that somebody looked at."
        )
        chart = charts.interval(
            missed_fraud.recall.value, missed_fraud.recall.low, missed_fraud.recall.high, "Recall with its interval"
        )
        return Block(title, note, chart, ("", "as seen", "estimated", "90 %"), rows, _REVIEWED)

    def quality(self) -> Block:
        """Return the figures of the model by day."""
        title = "Quality by day"
        table = tables.GOLD_PREDICTION_QUALITY
        rows = self._rows("*", table, f"{self._of_days} ORDER BY judged_by, date, model_version")
        if not rows:
            return Block(title, missing="No scored transaction has a label: run 'fraudlake train', 'fraudlake score'.")
        judges = {row["judged_by"] for row in rows}
        by = next(judge for judge in _JUDGES if judge in judges)
        latest = {row["date"]: row for row in sorted(rows, key=_version) if row["judged_by"] == by}
        days = sorted(latest)
        series = {_words(name): [finite(latest[day][name]) for day in days] for name in _QUALITY}
        names = ("date", "model_version", "judged_by", "transactions", "fraud", *_QUALITY, *_FURTHER)
        shown = [tuple(row[name] for name in names) for row in rows]
        note = f"The chart has the latest version of each day, by {_JUDGES[by]}."
        chart = charts.lines(days, series, title)
        return Block(title, note, chart, [*map(_words, names)], shown, table.name, is_wide=True)

    def scores(self) -> Block:
        """Return the distribution of the scores."""
        title = "Scores"
        table = tables.GOLD_FRAUD_PREDICTIONS
        tenth = "CAST(least(floor(probability * 10), 9) AS INT)"
        rows = self._rows(
            f"{tenth} AS tenth, count(*) AS transactions, sum(CASE WHEN prediction THEN 1 ELSE 0 END) AS predicted, "
            "sum(CASE WHEN label THEN 1 ELSE 0 END) AS labelled",
            table,
            f"{self._of_days} AND probability IS NOT NULL GROUP BY {tenth} ORDER BY tenth",
        )
        if not rows:
            return Block(title, missing="No scored transactions on these days: run 'fraudlake score'.")
        shown = [(_tenth(row["tenth"]), row["transactions"], row["predicted"], row["labelled"]) for row in rows]
        chart = charts.ranked([row[0] for row in shown], [row[1] for row in shown], "Transactions by probability")
        return Block(
            title, "", chart, ("probability", "transactions", "predicted fraud", "labelled fraud"), shown, table.name
        )

    def drift(self) -> Block:
        """Return the stability index of each feature on the latest days."""
        title = "Drift"
        table = tables.GOLD_FEATURE_DRIFT
        clauses = f"{self._of_days} AND is_after_training ORDER BY date, feature"
        rows = self._rows("date, model_version, feature, psi", table, clauses)
        if not rows:
            return Block(title, missing="No scored day is after the model's training: run 'fraudlake score' later.")
        latest: dict[tuple[date, str], float] = {}
        for row in sorted(rows, key=_version):
            latest[row["date"], row["feature"]] = row["psi"]
        days = sorted({day for day, _ in latest})[-_HEAT:]
        worst = {name: max(latest.get((day, name)) or 0 for day in days) for _, name in latest}
        names = sorted(worst, key=lambda name: (-worst[name], name))
        values = [[finite(latest.get((day, name))) for day in days] for name in names]
        chart = charts.heat(names, days, values, 2 * _DRIFTED, "Stability index by feature and day")
        shown = [(name, worst[name], latest.get((days[-1], name))) for name in names]
        note = f"Population stability index against the training data; from {_DRIFTED} on a feature has drifted."
        columns = ("feature", f"highest of {counted(len(days), 'day')}", f"on {days[-1]}")
        return Block(title, note, chart, columns, shown, table.name, is_wide=True)

    def _over_time(
        self, title: str, names: Sequence[str], by_day: Mapping[date, tuple[float, ...]], table: Table
    ) -> Block:
        """Return figures by day, or by week if there are many days; the chart shows the first figure."""
        is_weekly = len(self._days.days) > _BARS
        figures: dict[date, tuple[float, ...]] = {}
        for day in self._days.days:
            time = day - timedelta(days=day.weekday()) if is_weekly else day
            figures[time] = _added(figures.get(time, ()), by_day.get(day, (0,) * len(names)))
        every = "week" if is_weekly else "day"
        chart = charts.bars([*figures], [row[0] for row in figures.values()], f"{title}: {names[0]} by {every}")
        note = "A week begins on Monday." if is_weekly else ""
        return Block(title, note, chart, (every, *names), [(time, *row) for time, row in figures.items()], table.name)


def _streams(status: Status | None) -> Iterable[Block]:
    """Yield a block with each stream's last micro-batch and unread commits."""
    if status is None:
        return
    title = "Streams"
    if not status.streams.last_batches:
        yield Block(title, missing="No stream has begun: run 'fraudlake run'.")
        return
    lag = status.streams.lag
    rows = [
        (step, at, sum(lag.get(step, {}).values()), ", ".join(lag.get(step, {})))
        for step, at in status.streams.last_batches.items()
    ]
    columns = ("stream", "latest micro-batch", "commits to read", "of")
    yield Block(title, columns=columns, rows=rows, source="checkpoints and Delta's log, now")


def _estimate(estimate: Estimate) -> tuple[float | None, str | None]:
    return estimate.value, _interval(estimate)


def _interval(estimate: Estimate | None) -> str | None:
    if estimate is None:
        return None
    return f"{text(estimate.low)} to {text(estimate.high)}" if estimate.is_bounded else f"at least {text(estimate.low)}"


def _version(row: Mapping[str, Any]) -> int:
    return int(row["model_version"])


def _added(figures: tuple[float, ...], others: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(sum, zip(figures, others, strict=True))) if figures else others


def _tenth(number: int) -> str:
    return f"{number / 10:.1f} to {(number + 1) / 10:.1f}"


def _words(name: str) -> str:
    return name.replace("_", " ")
