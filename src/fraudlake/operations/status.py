"""Status: the lake's tables become counts by layer, whether they add up, and how detector and model do."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from fraudlake import steps, tables
from fraudlake.model import drift
from fraudlake.quarantine import replay
from fraudlake.silver import rules
from fraudlake.sources import file_source, kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake


@dataclass(frozen=True)
class Status:
    """Where the rows are.

    ``landed`` counts the rows of all finished files that were read or are there to be read, the rows that came from
    Kafka, and ``kafka_lag``: the messages that are still to be read (None where the source is files).
    ``kafka_missing_offsets`` counts the offsets between those rows that gave none.
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
    late: int = 0
    """Rows of ``quarantine`` that are in ``silver``, too: the detector came too late for them."""
    reasons: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, int] = field(default_factory=dict)
    unread_files: int = 0
    cut_replays: int = 0
    last_batches: dict[str, datetime] = field(default_factory=dict)
    """When each stream committed its last micro-batch (UTC)."""
    kafka_lag: int | None = None
    kafka_missing_offsets: int = 0
    drift: dict[str, Any] = field(default_factory=dict)
    """Stability index by feature, of the latest day that can be judged: see docs/model.md."""
    breaches: list[str] = field(default_factory=list)
    """What is wrong with the model on that day, a sentence each."""

    @property
    def gaps(self) -> list[str]:
        """What does not add up, a sentence each."""
        gaps = []
        if self.kafka_lag:
            gaps.append(f"{self.kafka_lag:,} messages are not in bronze yet: run 'fraudlake ingest --source kafka'")
        landed = self.landed - (self.kafka_lag or 0)
        if landed != self.bronze:
            gaps.append(f"{landed:,} rows landed but bronze holds {self.bronze:,}: run 'fraudlake ingest'")
        if self.unread_files and landed == self.bronze:
            gaps.append(f"{self.unread_files:,} landed files have not been read: run 'fraudlake ingest'")
        if self.cut_replays:
            gaps.append(
                f"{self.cut_replays} replays were cut: run 'fraudlake quarantine --replay', which finishes them"
            )
        refined = self.silver + self.quarantine - self.late
        if self.bronze != refined:
            gaps.append(
                f"bronze holds {self.bronze:,} rows but silver and quarantine together "
                f"{refined:,}: run 'fraudlake refine'"
            )
        return gaps

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**asdict(self), "reconciles": not self.gaps, "gaps": self.gaps}


def status(lake: Lake) -> Status:
    """Count what the lake holds now."""

    def count(table: tables.Table) -> int:
        return lake.read(table).count()

    landed = file_source.landed(lake)
    quarantine = lake.read(tables.SILVER_QUARANTINE)
    reasons = _by_name(quarantine, "reasons")
    bronze = lake.read(tables.BRONZE_TRANSACTIONS)
    lag = steps.kafka_lag(lake) if lake.settings.source == "kafka" else None
    agreement = lake.read(tables.GOLD_DETECTOR_AGREEMENT).agg(
        *(
            F.coalesce(F.sum(name), F.lit(0)).alias(name)
            for name in ("transactions", "both", "only_flink", "only_spark")
        )
    )
    quality, latest = _quality(lake), _latest_day(lake)
    return Status(
        lake=lake.name,
        landing=lake.landing,
        landed_files=landed.files,
        rejected_files=landed.rejected_files,
        landed=landed.rows + bronze.where("_topic IS NOT NULL").count() + (lag or 0),
        bronze=count(tables.BRONZE_TRANSACTIONS),
        silver=count(tables.SILVER_TRANSACTIONS),
        quarantine=quarantine.count(),
        alerts=count(tables.SILVER_ALERTS),
        predictions=count(tables.GOLD_FRAUD_PREDICTIONS),
        agreement=agreement.collect()[0].asDict(),
        quality=quality,
        late=reasons.get(rules.LATE, 0),
        reasons=reasons,
        warnings=_by_name(lake.read(tables.SILVER_TRANSACTIONS).where("warnings IS NOT NULL"), "warnings"),
        unread_files=landed.waiting_files,
        cut_replays=len(replay.unfinished(lake)),
        last_batches=_last_batches(lake),
        kafka_lag=lag,
        kafka_missing_offsets=kafka.missing_offsets(bronze),
        drift=latest.psi,
        breaches=_breaches(latest, lake),
    )


def _by_name(rows: DataFrame, names: str) -> dict[str, int]:
    """Count rows by the names that an array column holds."""
    counts = rows.select(F.explode(names).alias("name")).groupBy("name").count().orderBy("name")
    return {row["name"]: row["count"] for row in counts.collect()}


def _last_batches(lake: Lake) -> dict[str, datetime]:
    """Read off the checkpoints when each stream wrote its last commit file."""
    commits: dict[str, float] = {}
    for file in lake.checkpoints.glob("*/commits/*"):
        if file.name.isdigit():
            step = file.parent.parent.name
            commits[step] = max(commits.get(step, 0), file.stat().st_mtime)
    return {step: datetime.fromtimestamp(seconds, UTC) for step, seconds in sorted(commits.items())}


def _quality(lake: Lake) -> dict[str, Any]:
    """Weigh the daily true prediction rates of the model version that scored last."""
    quality = lake.read(tables.GOLD_PREDICTION_QUALITY).where("judged_by = 'flink'")
    latest = quality.groupBy("model_version").agg(
        F.max(F.col("model_version").cast("int")).alias("number"),
        F.sum("transactions").alias("transactions"),
        F.sum("fraud").alias("fraud"),
        (F.sum(F.col("true_prediction_rate") * F.col("transactions")) / F.sum("transactions")).alias(
            "true_prediction_rate"
        ),
    )
    row = latest.orderBy(F.desc("number")).drop("number").first()
    return row.asDict() if row else {}


@dataclass(frozen=True)
class _Day:
    """The latest day that is over, large enough to judge and later than what its model version was trained on."""

    date: str = ""
    version: str = ""
    psi: dict[str, float] = field(default_factory=dict)


def _latest_day(lake: Lake) -> _Day:
    moved = lake.read(tables.GOLD_FEATURE_DRIFT)
    newest = moved.agg(F.max("date")).collect()[0][0]
    # The hours of a day that is not over are not those of a whole one.
    whole = moved.where(F.col("is_after_training") & (F.col("transactions") >= drift.LEAST) & (F.col("date") < newest))
    latest = whole.agg(F.max(F.struct("date", F.col("model_version").cast("int")))).collect()[0][0]
    if latest is None:
        return _Day()
    day, version = latest[0], str(latest[1])
    rows = whole.where((F.col("model_version") == version) & (F.col("date") == F.lit(day))).collect()
    return _Day(str(day), version, {row["feature"]: row["psi"] for row in sorted(rows, key=lambda row: -row["psi"])})


def _breaches(day: _Day, lake: Lake) -> list[str]:
    settings = lake.settings
    told = [
        f"{name} of {day.date} has drifted from the training data of model version {day.version} "
        f"(stability index {psi:.2f}, above {settings.max_drift:g}): train again"
        for name, psi in day.psi.items()
        if psi > settings.max_drift
    ]
    if day.date:
        quality = lake.read(tables.GOLD_PREDICTION_QUALITY).where(f"date = DATE'{day.date}'")
        rates = quality.where(F.col("model_version") == day.version).orderBy("judged_by").collect()
        told += [
            f"model version {day.version} is right on {row['true_prediction_rate']:.2%} of the transactions of "
            f"{day.date} (judged by {row['judged_by']}), below {settings.min_true_prediction_rate:.2%}: "
            "train again, or roll back"
            for row in rates
            if row["true_prediction_rate"] < settings.min_true_prediction_rate
        ]
    return told
