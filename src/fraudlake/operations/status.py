"""Status: counts rows by layer, checks that the counts add up, and reports on detector and model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.delivery.destinations import DESTINATIONS
from fraudlake.gold import detector_agreement, lane_agreement
from fraudlake.lake import contents
from fraudlake.model import drift
from fraudlake.model.prediction_quality import CHARGEBACKS, judge_of
from fraudlake.operations import lag, retention
from fraudlake.operations.rebuild_note import RebuildNote
from fraudlake.quarantine import replay
from fraudlake.quarantine.show import count_by_name
from fraudlake.silver import quality_rules
from fraudlake.sources import file_source, kafka, kafka_source
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.streams import deliver, ingest, prediction_figures
from fraudlake.text.counts import counted
from fraudlake.text.sql_text import literal, one_of, value

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.lake.commit import Commit
    from fraudlake.tables import Table


_AFTER_TRAINING = ("precision_at_budget", "recall_at_budget", "area_under_pr", "card_precision", "card_recall")
"""The model's figures on days after its training: means over the days for which they are defined."""
_DELIVERING = {deliver.step_of(to) for to in DESTINATIONS}


@dataclass(frozen=True)
class Status:
    """Counts of the lake's rows, and the state of its steps, detector and model.

    ``landed`` counts the rows of all finished files, read or not, the rows that came from Kafka, and ``kafka_lag``: the
    messages that are still to be read (None if the source is files). ``kafka_missing_offsets`` counts the offsets
    between Kafka's rows that have no row.
    """

    lake: str
    landing: str
    landed_files: int
    rejected_files: int
    landed: int
    bronze: int
    silver: int
    quarantine: int
    alerts: int
    predictions: int
    agreement: dict[str, int]
    quality: dict[str, Any]
    definition: dict[str, Any] = field(default_factory=dict)
    """The lake's definition: its columns, entities, features, delay of labels, order, buckets and clustering."""
    suppressed: Mapping[str, int] = field(default_factory=dict)
    """Alerts that list entries suppress, by rule."""
    late: int = 0
    """Rows of ``quarantine`` that are in ``silver``, too: they came too late for the detector."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Rows that ``row_retention`` removed, by table."""
    removed_late: int = 0
    """Late rows among those removed from ``quarantine``."""
    reasons: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, int] = field(default_factory=dict)
    unread_files: int = 0
    cut_replays: int = 0
    cut_replay_of_days: str | None = None
    """The command that finishes an interrupted replay of days."""
    unfinished_removals: int = 0
    """Number of accounts whose removal was interrupted, or left a trace."""
    deliveries: dict[str, dict[str, int]] = field(default_factory=dict)
    """Number of alerts by outcome, by destination."""
    by_hand: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The latest ``version`` in which somebody removed rows of a table by SQL, its ``operation`` and its time, ``at``
    (UTC), by table."""
    last_batches: dict[str, datetime] = field(default_factory=dict)
    """When each stream began the last micro-batch that it has committed (UTC)."""
    lag: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each step that lags, the number of unread commits, by table."""
    expiring: dict[str, dict[str, datetime]] = field(default_factory=dict)
    """For each step that lags so far that VACUUM may remove unread files, the time of the oldest unread commit (UTC),
    by table."""
    kafka_lag: int | None = None
    kafka_missing_offsets: int = 0
    fast_alerts: dict[str, int] = field(default_factory=dict)
    """Counts of the topic of fast alerts, if it is set: messages, distinct alerts in them, messages that are not an
    alert, and messages that are still to be read."""
    lanes: dict[str, Any] = field(default_factory=dict)
    """Agreement of the lanes on the latest days with alerts, if there is a fast lane: the number of ``days``, alerts of
    ``both`` lanes and of only one, those with an ``unknown`` reason, and the highest ``latency_p99`` (milliseconds)."""
    drift: dict[str, Any] = field(default_factory=dict)
    """Stability index by feature on the latest complete day: see docs/how-to/model.md."""
    breaches: list[str] = field(default_factory=list)
    """Problems of the model on that day, a sentence each."""

    @property
    def gaps(self) -> list[str]:
        """Counts that do not add up, a sentence each."""
        gaps = []
        if self.kafka_lag:
            gaps.append(f"{self.kafka_lag:,} messages are not in bronze yet: run 'fraudlake ingest --source kafka'")
        if self.fast_alerts.get("lag"):
            unread = self.fast_alerts["lag"]
            gaps.append(f"{unread:,} fast alerts are not in bronze yet: run 'fraudlake ingest --source kafka'")
        landed, bronze = self.landed - (self.kafka_lag or 0), self._with_removed("bronze_transactions", self.bronze)
        if landed != bronze and (self.unread_files or landed < bronze or not self._by_hand(tables.BRONZE_TRANSACTIONS)):
            gaps.append(f"{landed:,} rows landed but bronze holds {bronze:,}: run 'fraudlake ingest'")
        elif landed != bronze:
            gaps.append(
                f"{landed:,} rows landed and were read, but bronze holds {bronze:,}: "
                + self._by_hand(tables.BRONZE_TRANSACTIONS)
            )
        if self.unread_files and landed == bronze:
            gaps.append(f"{self.unread_files:,} landed files have not been read: run 'fraudlake ingest'")
        if self.cut_replays:
            gaps.append(
                f"{self.cut_replays} replays were cut: run 'fraudlake quarantine --replay', which finishes them"
            )
        if self.cut_replay_of_days:
            gaps.append(f"a replay of days was interrupted: run '{self.cut_replay_of_days}', which finishes it")
        if self.unfinished_removals:
            gaps.append(
                f"the removal of {counted(self.unfinished_removals, 'account')} has not finished: repeat "
                "'fraudlake forget --yes' with the same accounts"
            )
        refined = self._with_removed("silver_transactions", self.silver) - self.late - self.removed_late
        refined += self._with_removed("silver_quarantine", self.quarantine)
        if bronze != refined:
            by_hand = self._by_hand(tables.SILVER_TRANSACTIONS) or self._by_hand(tables.SILVER_QUARANTINE)
            by_hand = by_hand or self._by_hand(tables.BRONZE_TRANSACTIONS)
            remedy = by_hand if by_hand and "refine" not in self.lag else "run 'fraudlake refine'"
            remedy = f"run '{self.cut_replay_of_days}'" if self.cut_replay_of_days else remedy
            gaps.append(f"bronze holds {bronze:,} rows but silver and quarantine together {refined:,}: {remedy}")
        for destination, counts in self.deliveries.items():
            if counts.get(deliver.DEAD):
                gaps.append(
                    f"{counts[deliver.DEAD]:,} alerts could not be delivered to {destination}: once it takes them, "
                    f"run 'fraudlake deliver --to {destination} --retry-dead'"
                )
        for step, behind in self.lag.items():
            # Bronze's count shows the rows that refine has not read; a destination of alerts may be out of use.
            for table, commits in behind.items() if step not in ("refine", *_DELIVERING) else ():
                if table == tables.SILVER_VERDICTS.name:  # analysts decide at any time, and no row depends on it
                    continue
                gaps.append(f"{step} is {counted(commits, 'commit')} behind {table}: run '{lag.command_of(step)}'")
        for step, oldest in self.expiring.items():
            for table, at in oldest.items():
                gaps.append(
                    f"{step} has not read what {table} got on {at:%Y-%m-%d}, longer ago than the table keeps files: "
                    f"run '{lag.command_of(step)}' before VACUUM removes them"
                )
        return gaps

    def _by_hand(self, table: Table) -> str:
        """Describe the commit that removed rows of a table by SQL, and the remedy; empty if there is no such commit."""
        commit = self.by_hand.get(table.name)
        if commit is None:
            return ""
        again = (
            ""
            if table == tables.BRONZE_TRANSACTIONS
            else (", or 'fraudlake replay --from DAY --to DAY --apply' computes days again from bronze")
        )
        version = commit["version"]
        return (
            f"version {version} of {table.name} ({commit['operation']}, {commit['at']:%Y-%m-%d %H:%M:%S} UTC) removed "
            f"rows by hand: 'fraudlake restore {table.name} --version {version - 1} --allow-streams' gives the table "
            f"its rows from before{again}"
        )

    def _with_removed(self, table: str, rows: int) -> int:
        return rows + self.removed.get(table, 0)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**asdict(self), "reconciles": not self.gaps, "gaps": self.gaps}


def status(lake: Lake) -> Status:
    """Count the current rows of the lake."""
    landed = file_source.landed(lake)
    reasons = count_by_name(lake, tables.SILVER_QUARANTINE, "reasons")
    kafka_lag = ingest.source_of(lake.settings).unread(lake)
    latest = _latest_day(lake)
    behind, expiring = _lag(lake)
    removed, note = retention.removed(lake), RebuildNote.of(lake)
    messages = lake.store.count(tables.BRONZE_TRANSACTIONS, "_topic IS NOT NULL")
    messages += removed.from_kafka_or_late.get(tables.BRONZE_TRANSACTIONS.name, 0)
    return Status(
        lake=lake.name,
        landing=landing_folder(lake).path,
        definition=lake.settings.definition,
        landed_files=landed.files,
        rejected_files=landed.rejected_files,
        landed=landed.rows + messages + (kafka_lag or 0),
        bronze=lake.store.count(tables.BRONZE_TRANSACTIONS),
        silver=lake.store.count(tables.SILVER_TRANSACTIONS),
        quarantine=lake.store.count(tables.SILVER_QUARANTINE),
        alerts=lake.store.count(tables.SILVER_ALERTS),
        predictions=lake.store.count(tables.GOLD_FRAUD_PREDICTIONS),
        agreement=_agreement(lake),
        quality=_quality(lake),
        suppressed=_suppressed(lake),
        late=reasons.get(quality_rules.LATE, 0),
        removed=removed.rows,
        removed_late=removed.from_kafka_or_late.get(tables.SILVER_QUARANTINE.name, 0),
        reasons=reasons,
        warnings=count_by_name(lake, tables.SILVER_TRANSACTIONS, "warnings"),
        unread_files=landed.waiting_files,
        cut_replays=len(replay.unfinished(lake)),
        cut_replay_of_days=note.command if note else None,
        unfinished_removals=_unfinished_removals(lake),
        deliveries=_deliveries(lake),
        by_hand=_by_hand(lake),
        last_batches=_last_batches(lake),
        lag=behind,
        expiring=expiring,
        kafka_lag=kafka_lag,
        kafka_missing_offsets=kafka.missing_offsets(lake),
        fast_alerts=_fast_alerts(lake),
        lanes=_lanes(lake),
        drift=latest.psi,
        breaches=_breaches(latest, lake),
    )


def _suppressed(lake: Lake) -> dict[str, int]:
    by_rule = lake.store.query(
        f"SELECT rule, count(*) AS alerts FROM {tables.SILVER_SUPPRESSED_ALERTS.name} GROUP BY rule ORDER BY rule",
        tables.SILVER_SUPPRESSED_ALERTS,
    )
    return {row["rule"]: row["alerts"] for row in by_rule.to_pylist()}


def _agreement(lake: Lake) -> dict[str, int]:
    """Add up the agreement of both detectors over all compared days."""
    names = ("transactions", "both", "only_flink", "only_spark")
    sums = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in names)
    (row,) = lake.store.query(
        f"SELECT {sums} FROM {detector_agreement.TABLE.name}", detector_agreement.TABLE
    ).to_pylist()
    return dict(row)


def _unfinished_removals(lake: Lake) -> int:
    """Count the accounts whose removal has begun and not finished."""
    count = "count(DISTINCT account_hash) AS accounts"
    return int(
        lake.store.query(
            f"SELECT {count} FROM {tables.GOLD_FORGOTTEN.name} WHERE finished_at IS NULL", tables.GOLD_FORGOTTEN
        )["accounts"][0].as_py()
    )


def _deliveries(lake: Lake) -> dict[str, dict[str, int]]:
    """Count the outcomes of alerts, by destination."""
    counts: dict[str, dict[str, int]] = {}
    columns, by = "destination, status, count(*) AS alerts", "GROUP BY destination, status ORDER BY destination, status"
    for row in lake.store.query(
        f"SELECT {columns} FROM {tables.SILVER_DELIVERIES.name} {by}", tables.SILVER_DELIVERIES
    ).to_pylist():
        counts.setdefault(row["destination"], {})[row["status"]] = row["alerts"]
    return counts


def _fast_alerts(lake: Lake) -> dict[str, int]:
    """Count bronze's rows of the topic of fast alerts, and the messages that are still to be read."""
    if lake.settings.source != "kafka" or lake.settings.fast_alerts_topic is None:
        return {}
    columns = "count(*) AS messages, count(DISTINCT alert_id) AS alerts, count(_error) AS rejected"
    (row,) = lake.store.query(
        f"SELECT {columns} FROM {tables.BRONZE_FAST_ALERTS.name}", tables.BRONZE_FAST_ALERTS
    ).to_pylist()
    return {**row, "lag": kafka_source.fast_alerts_lag(lake)}


def _lanes(lake: Lake) -> dict[str, Any]:
    """Add up the agreement of the lanes over the latest seven days with alerts."""
    if lake.settings.fast_alerts_topic is None:
        return {}
    counts = {name: f"sum({name})" for name in ("both", "only_fast", "only_exact")}
    counts["unknown"] = "sum(only_fast_unknown + only_exact_unknown)"
    columns = ", ".join(f"{sum_} AS {name}" for name, sum_ in counts.items())
    days = lake.store.query(
        f"SELECT {columns}, max(latency_p99) AS latency_p99 FROM {lane_agreement.TABLE.name} GROUP BY date "
        "ORDER BY date DESC LIMIT 7",
        lane_agreement.TABLE,
    ).to_pylist()
    if not days:
        return {}
    latencies = [day["latency_p99"] for day in days if day["latency_p99"] is not None]
    added = {name: sum(day[name] for day in days) for name in counts}
    return {"days": len(days), **added, "latency_p99": max(latencies, default=None)}


def _last_batches(lake: Lake) -> dict[str, datetime]:
    """Return when each stream began its last committed micro-batch, from its checkpoint."""
    begun = {folder.name: lake.checkpoint(folder.name).last_batch_at() for folder in sorted(lake.checkpoints.glob("*"))}
    return {step: at for step, at in begun.items() if at is not None}


def _by_hand(lake: Lake) -> dict[str, dict[str, Any]]:
    """Return the latest commit of bronze, silver and quarantine that removed rows without a step's record, if any."""
    landed = (tables.BRONZE_TRANSACTIONS, tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE)
    commits = {table.name: _latest_by_hand(lake.store.history(table)) for table in landed}
    return {
        name: {"version": commit.version, "operation": commit.operation, "at": commit.at}
        for name, commit in commits.items()
        if commit is not None
    }


def _latest_by_hand(history: list[Commit]) -> Commit | None:
    """Return the latest commit that removed rows by SQL and that no restore has undone."""
    last = history[0].version if history else 0
    for commit in history:
        if commit.version <= last and retention.RESTORED in commit.record:
            last = commit.record[retention.RESTORED]
        elif commit.version <= last and commit.is_manual_removal:
            return commit
    return None


def _lag(lake: Lake) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, datetime]]]:
    """Return :attr:`Status.lag` and :attr:`Status.expiring`."""
    behind: dict[str, dict[str, int]] = {}
    expiring: dict[str, dict[str, datetime]] = {}
    for table in contents.TABLES:
        unread = lag.unread(lake, table)
        if lake.settings.fast_alerts_topic is None:  # lanes may have been compared earlier, but no longer
            unread.pop("lane_agreement", None)
        for step, commits in unread.items():
            behind.setdefault(step, {})[table.name] = len(commits)
        for step, at in lag.expiring(lake, table, unread).items():
            if step not in _DELIVERING:  # a destination of alerts may be out of use
                expiring.setdefault(step, {})[table.name] = at
    return behind, expiring


def _quality(lake: Lake) -> dict[str, Any]:
    """Aggregate the daily figures of the latest model version that has scored.

    ``true_prediction_rate`` is over all of its predictions. The figures of ``after_training`` are means over the
    ``days`` after its training data; they are empty if there is no such day.
    """
    versions = lake.store.query(
        "SELECT model_version, sum(transactions) AS transactions, sum(fraud) AS fraud, "
        "sum(true_prediction_rate * transactions) / sum(transactions) AS true_prediction_rate "
        f"FROM {tables.GOLD_PREDICTION_QUALITY.name} WHERE {_is_judged(lake)} GROUP BY model_version",
        tables.GOLD_PREDICTION_QUALITY,
    )
    latest: dict[str, Any] = max(versions.to_pylist(), key=lambda version: int(version["model_version"]), default={})
    return latest and {**latest, "after_training": _after_training(lake, latest["model_version"])}


def _is_judged(lake: Lake) -> str:
    """Return the SQL condition that rows of prediction quality are by the judge of all predictions.

    With chargebacks, the latest days are left out: only frauds are labelled there, and would bias the figures.
    """
    judge = judge_of(lake.settings)
    is_judged = f"judged_by = {literal(judge)}"
    until = prediction_figures.genuine_until(lake) if judge == CHARGEBACKS else None
    return is_judged if until is None else f"{is_judged} AND date < {value(until.date())}"


def _after_training(lake: Lake, version: str) -> dict[str, float]:
    of_version = f"model_version = {literal(version)}"
    later = lake.store.query(
        f"SELECT DISTINCT date FROM {tables.GOLD_FEATURE_DRIFT.name} WHERE {of_version} AND is_after_training",
        tables.GOLD_FEATURE_DRIFT,
    )
    days = later["date"].to_pylist()
    if not days:
        return {}
    (row,) = lake.store.query(
        f"SELECT {', '.join(['count(*) AS days', *(f'avg({name}) AS {name}' for name in _AFTER_TRAINING)])} "
        f"FROM {tables.GOLD_PREDICTION_QUALITY.name} "
        f"WHERE {_is_judged(lake)} AND {of_version} AND {one_of('date', days)}",
        tables.GOLD_PREDICTION_QUALITY,
    ).to_pylist()
    return {name: value for name, value in row.items() if value is not None} if row["days"] else {}


@dataclass(frozen=True)
class _Day:
    """The latest complete day with enough transactions, after the training data of its model version."""

    date: str = ""
    version: str = ""
    psi: dict[str, float] = field(default_factory=dict)


def _latest_day(lake: Lake) -> _Day:
    (all_days,) = lake.store.query(
        f"SELECT max(date) AS newest FROM {tables.GOLD_FEATURE_DRIFT.name}", tables.GOLD_FEATURE_DRIFT
    ).to_pylist()
    if all_days["newest"] is None:
        return _Day()
    # The newest day is not complete.
    rows = lake.store.query(
        "SELECT date, CAST(model_version AS INT) AS version, feature, psi "
        f"FROM {tables.GOLD_FEATURE_DRIFT.name} "
        f"WHERE is_after_training AND transactions >= {drift.LEAST} AND date < DATE '{all_days['newest']}' "
        "ORDER BY psi DESC",
        tables.GOLD_FEATURE_DRIFT,
    ).to_pylist()
    if not rows:
        return _Day()
    day, version = max((row["date"], row["version"]) for row in rows)
    psi = {row["feature"]: row["psi"] for row in rows if (row["date"], row["version"]) == (day, version)}
    return _Day(str(day), str(version), psi)


def _rates(lake: Lake, day: _Day) -> list[dict[str, Any]]:
    """Return a version's true prediction rate on a day, by judge; for chargebacks, on its latest labelled day."""
    of_version, on = f"model_version = {literal(day.version)}", f"date = DATE '{day.date}'"
    if lake.settings.are_chargebacks:
        is_known = f"{_is_judged(lake)} AND date <= DATE '{day.date}'"
        (known,) = lake.store.query(
            f"SELECT max(date) AS day FROM {tables.GOLD_PREDICTION_QUALITY.name} WHERE {of_version} AND {is_known}",
            tables.GOLD_PREDICTION_QUALITY,
        ).to_pylist()
        if known["day"] is None:
            return []
        on = f"judged_by = {literal(CHARGEBACKS)} AND date = {value(known['day'])}"
    columns, clauses = "date, judged_by, true_prediction_rate", f"WHERE {of_version} AND {on} ORDER BY judged_by"
    return [
        *lake.store.query(
            f"SELECT {columns} FROM {tables.GOLD_PREDICTION_QUALITY.name} {clauses}", tables.GOLD_PREDICTION_QUALITY
        ).to_pylist()
    ]


def _breaches(day: _Day, lake: Lake) -> list[str]:
    settings = lake.settings
    sentences = [
        f"{name} of {day.date} has drifted from the training data of model version {day.version} "
        f"(stability index {psi:.2f}, above {settings.max_drift:g}): train again"
        for name, psi in day.psi.items()
        if psi > settings.max_drift
    ]
    if day.date:
        rates = _rates(lake, day)
        sentences += [
            f"model version {day.version} is right on {row['true_prediction_rate']:.2%} of the transactions of "
            f"{row['date']} (judged by {row['judged_by']}), below {settings.min_true_prediction_rate:.2%}: "
            "train again, or roll back"
            for row in rates
            if row["true_prediction_rate"] < settings.min_true_prediction_rate
        ]
    return sentences
