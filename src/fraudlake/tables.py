"""Tables: the name, columns and layout of everything that the lake holds, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A Delta table: ``columns`` is its DDL; ``zorder`` are the columns that ``optimize`` clusters by."""

    name: str
    columns: str
    partitioned_by: tuple[str, ...] = ()
    zorder: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def column_names(self) -> list[str]:
        """The columns' names, in order."""
        return [line.split()[0] for line in self.columns.strip().splitlines()]

    @property
    def compacts(self) -> bool:
        """Whether small files are brought together on the way."""
        return ("delta.autoOptimize.autoCompact", "true") in self.properties


def missing(lake: str, table: str) -> str:
    """Say that a lake lacks a table, which only a command that writes makes."""
    return f"{lake} has no table {table} yet: a command that writes makes it, such as 'fraudlake ingest'"


# A commit a second: by default Delta would write a checkpoint with every tenth, which takes longer than the commit.
_STREAMED = (("delta.checkpointInterval", "50"),)
# A file a second makes a table of small files: Delta compacts a partition's when there are fifty. Optimized writes are
# left off: they would send every row through an exchange, and what a micro-batch writes is in few files already.
_COMPACTED = (*_STREAMED, ("delta.autoOptimize.autoCompact", "true"))

# As landed: Flink's four fields, the producer's own id where it sends one, what did not fit (`_rescued_data`), a
# message that cannot be parsed at all (`_raw`) with the reason (`_error`), and the place that the row came from.
BRONZE_TRANSACTIONS = Table(
    "bronze_transactions",
    """
    dt TIMESTAMP,
    accountId STRING,
    amount DOUBLE,
    alert BOOLEAN,
    transaction_id STRING,
    _rescued_data STRING,
    _raw BINARY,
    _error STRING,
    _source_file STRING,
    _source_row BIGINT,
    _topic STRING,
    _partition INT,
    _offset BIGINT,
    _ingested_at TIMESTAMP,
    date DATE
    """,
    partitioned_by=("date",),
    # What rows are looked for by; statistics of every column would take a sixth of the time of writing a row.
    properties=(
        *_COMPACTED,
        ("delta.dataSkippingStatsColumns", "dt,_source_file,_topic,_partition,_offset,_ingested_at"),
    ),
)
# Of every landed file what became of it: `accepted` with so many rows, `rejected` with the error, or `rewritten` after
# it was accepted. The latest row of a file holds.
BRONZE_FILES = Table(
    "bronze_files",
    """
    path STRING,
    _source_file STRING,
    size BIGINT,
    modified_at TIMESTAMP,
    rows BIGINT,
    status STRING,
    error STRING,
    noted_at TIMESTAMP
    """,
    properties=_STREAMED,
)
# Those files of `bronze_files` that are not accepted now.
BRONZE_REJECTED_FILES = Table(
    "bronze_rejected_files",
    """
    path STRING,
    size BIGINT,
    modified_at TIMESTAMP,
    error STRING,
    rejected_at TIMESTAMP
    """,
)
SILVER_TRANSACTIONS = Table(
    "silver_transactions",
    """
    transaction_id STRING,
    account_id STRING,
    timestamp TIMESTAMP,
    amount DOUBLE,
    label BOOLEAN,
    source STRING,
    position BIGINT,
    warnings ARRAY<STRING>,
    date DATE
    """,
    partitioned_by=("date",),
    zorder=("account_id",),
    properties=_COMPACTED,
)
SILVER_QUARANTINE = Table(
    "silver_quarantine",
    """
    dt TIMESTAMP,
    accountId STRING,
    amount DOUBLE,
    alert BOOLEAN,
    transaction_id STRING,
    _rescued_data STRING,
    _raw BINARY,
    _error STRING,
    _source_file STRING,
    _source_row BIGINT,
    _topic STRING,
    _partition INT,
    _offset BIGINT,
    _ingested_at TIMESTAMP,
    reasons ARRAY<STRING>,
    quarantined_at TIMESTAMP
    """,
    properties=_STREAMED,
)
SILVER_ALERTS = Table(
    "silver_alerts",
    """
    alert_id STRING,
    rule STRING,
    account_id STRING,
    transaction_id STRING,
    timestamp TIMESTAMP,
    amount DOUBLE,
    small_transaction_id STRING,
    small_timestamp TIMESTAMP,
    small_amount DOUBLE,
    seconds_between DOUBLE,
    explanation STRING,
    detected_at TIMESTAMP
    """,
    properties=_STREAMED,
)
# What analysts decided; of several verdicts on a transaction the latest by `decided_at` holds. `date` is the
# transaction's.
SILVER_VERDICTS = Table(
    "silver_verdicts",
    """
    transaction_id STRING,
    verdict BOOLEAN,
    analyst STRING,
    reason STRING,
    decided_at TIMESTAMP,
    date DATE
    """,
)
GOLD_ACCOUNT_DAILY = Table(
    "gold_account_daily",
    """
    account_id STRING,
    date DATE,
    transactions BIGINT,
    amount_sum DOUBLE,
    amount_max DOUBLE,
    small_transactions BIGINT,
    large_transactions BIGINT,
    alerts BIGINT
    """,
    partitioned_by=("date",),
    zorder=("account_id",),
)
# `number` counts an account's count windows from 1. `state` is text for the file statistics that Delta keeps of texts,
# and not of booleans: the few files with open windows are found without reading the others.
GOLD_ALERT_WINDOWS = Table(
    "gold_alert_windows",
    """
    kind STRING,
    account_id STRING,
    number BIGINT,
    window_start TIMESTAMP,
    window_end TIMESTAMP,
    transactions BIGINT,
    amount_sum DOUBLE,
    amount_max DOUBLE,
    alerts BIGINT,
    state STRING,
    date DATE
    """,
    partitioned_by=("kind", "date"),
    zorder=("account_id",),
)
GOLD_DETECTOR_AGREEMENT = Table(
    "gold_detector_agreement",
    """
    date DATE,
    transactions BIGINT,
    both BIGINT,
    only_flink BIGINT,
    only_spark BIGINT
    """,
)
GOLD_FRAUD_PREDICTIONS = Table(
    "gold_fraud_predictions",
    """
    transaction_id STRING,
    account_id STRING,
    timestamp TIMESTAMP,
    amount DOUBLE,
    hour_of_day DOUBLE,
    previous_amount DOUBLE,
    seconds_since_previous DOUBLE,
    count_minute DOUBLE,
    sum_minute DOUBLE,
    count_hour DOUBLE,
    sum_hour DOUBLE,
    count_day DOUBLE,
    sum_day DOUBLE,
    amount_to_usual DOUBLE,
    hours_from_usual DOUBLE,
    probability DOUBLE,
    prediction BOOLEAN,
    reasons ARRAY<STRING>,
    label BOOLEAN,
    model_version STRING,
    scored_from STRING,
    scored_at TIMESTAMP,
    date DATE
    """,
    partitioned_by=("date",),
    zorder=("account_id",),
)
# What micro-batches score with, published from MLflow's registry: the champion is the latest row. `model` is JSON, and
# so is `profile`: the shapes of the data that it was trained on.
GOLD_MODELS = Table(
    "gold_models",
    """
    model_version STRING,
    model BINARY,
    profile STRING,
    published_at TIMESTAMP
    """,
)
GOLD_PREDICTION_QUALITY = Table(
    "gold_prediction_quality",
    """
    date DATE,
    model_version STRING,
    judged_by STRING,
    transactions BIGINT,
    fraud BIGINT,
    true_prediction_rate DOUBLE,
    precision DOUBLE,
    recall DOUBLE,
    f1 DOUBLE,
    area_under_pr DOUBLE
    """,
)
GOLD_FEATURE_DRIFT = Table(
    "gold_feature_drift",
    """
    date DATE,
    model_version STRING,
    feature STRING,
    transactions BIGINT,
    psi DOUBLE,
    is_after_training BOOLEAN
    """,
)

ALL = (
    BRONZE_TRANSACTIONS,
    BRONZE_FILES,
    BRONZE_REJECTED_FILES,
    SILVER_TRANSACTIONS,
    SILVER_QUARANTINE,
    SILVER_ALERTS,
    SILVER_VERDICTS,
    GOLD_ACCOUNT_DAILY,
    GOLD_ALERT_WINDOWS,
    GOLD_DETECTOR_AGREEMENT,
    GOLD_FRAUD_PREDICTIONS,
    GOLD_MODELS,
    GOLD_PREDICTION_QUALITY,
    GOLD_FEATURE_DRIFT,
)
