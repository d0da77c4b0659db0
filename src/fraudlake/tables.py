"""Tables: declares the name, columns and layout of each table and view of the lake, in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fraudlake.errors import UsageError
from fraudlake.feature import OWN, Feature
from fraudlake.values import BASE_AMOUNT

if TYPE_CHECKING:
    import pyarrow as pa


EVIDENCE = "ARRAY<STRUCT<variable:STRING,transaction_id:STRING,timestamp:TIMESTAMP,amount:DOUBLE>>"
"""The type of an alert's transactions."""


class Column(NamedTuple):
    """A column of a table: its name, its type in SQL, and what it means."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """A Delta table; ``zorder`` are the columns that ``optimize`` clusters by."""

    name: str
    row: str
    """Description of a row."""
    described: str
    """A line for each column: name, type, meaning; empty lines do not count."""
    partitioned_by: tuple[str, ...] = ()
    zorder: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @cached_property
    def fields(self) -> list[Column]:
        """The columns, in order."""
        return [Column(*line.split(None, 2)) for line in self.described.splitlines() if line.strip()]

    @property
    def column_names(self) -> list[str]:
        """The columns' names, in order."""
        return [column.name for column in self.fields]

    @property
    def columns(self) -> str:
        """The columns as DDL, a line each."""
        return ddl(self.fields)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns in Arrow; times in UTC."""
        return schema(self.fields)

    def with_columns(self, columns: Iterable[Column]) -> Table:
        """Return the table with further columns after its own."""
        lines = [" ".join(column) for column in columns]
        return replace(self, described="\n".join([self.described, *lines])) if lines else self

    @property
    def compacts(self) -> bool:
        """Whether small files are compacted automatically."""
        return ("delta.autoOptimize.autoCompact", "true") in self.properties


@dataclass(frozen=True)
class View(Table):
    """A view: rows of other tables, computed as they are read.

    ``query`` is its SQL, with the names of the tables that it ``reads`` in braces; ``{delay}`` is the number of
    microseconds by which the watermark trails the newest event time, and ``{amount}`` is
    :func:`~fraudlake.values.summed_amount`.
    """

    query: str = ""
    reads: tuple[Table, ...] = ()


def _feature_column(feature: Feature, type_: str = "DOUBLE") -> Column:
    """Return the column of a feature."""
    return Column(feature.name, type_, f"feature: {feature.meaning}")


def schema(columns: list[Column]) -> pa.Schema:
    """Return columns in Arrow; times in UTC."""
    # Every command imports this module for its settings; few need Arrow, which takes a tenth of a second to load.
    import pyarrow as pa

    types = {
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "BOOLEAN": pa.bool_(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "ARRAY<STRING>": pa.list_(pa.field("element", pa.string())),
        "MAP<STRING,STRING>": pa.map_(pa.string(), pa.string()),
        "ARRAY<MAP<STRING,STRING>>": pa.list_(pa.field("element", pa.map_(pa.string(), pa.string()))),
    }
    types[EVIDENCE] = pa.list_(
        pa.field(
            "element",
            pa.struct(
                [
                    ("variable", types["STRING"]),
                    ("transaction_id", types["STRING"]),
                    ("timestamp", types["TIMESTAMP"]),
                    ("amount", types["DOUBLE"]),
                ]
            ),
        )
    )
    return pa.schema([(column.name, types[column.type]) for column in columns])


def ddl(columns: list[Column]) -> str:
    """Return columns as DDL, a line each."""
    return ",\n".join(f"{column.name} {column.type}" for column in columns)


def require_types(table: Table, present: Mapping[str, str], setting: str = "columns") -> list[Column]:
    """Check the present columns of a table, types by name, against its declaration; return the missing ones.

    ``setting`` is the setting that declares them, for the message.

    Raises:
        UsageError: a column has another type, or differs in case.
    """
    by_name = {name.lower(): (name, type_) for name, type_ in present.items()}
    for column in table.fields:
        there = by_name.get(column.name.lower(), (column.name, column.type.upper()))
        if there != (column.name, column.type.upper()):
            raise UsageError(
                f"{setting}: '{column.name}' is {column.type}, but {table.name} has '{there[0]}', {there[1]}: "
                "declare it so, or under another name"
            )
    return [column for column in table.fields if column.name.lower() not in by_name]


def missing(lake: str, table: str) -> str:
    """Return the message that a lake lacks a table, which only a command that writes creates."""
    return f"{lake} has no table {table} yet: a command that writes makes it, such as 'fraudlake ingest'"


CHECKPOINT_EVERY = 10
"""Commits of a table between checkpoints of its log.

For each micro-batch Spark reads all commits since the last checkpoint; delta-rs would write one every 100 commits.
"""
_STREAMED = (("delta.checkpointInterval", str(CHECKPOINT_EVERY)),)
# Landing a file a second makes many small files: Delta compacts a partition once it has fifty. Optimized writes are
# off: they would shuffle every row, and a micro-batch writes few files anyway.
_COMPACTED = (*_STREAMED, ("delta.autoOptimize.autoCompact", "true"))

PAYLOAD = ("dt", "accountId", "amount", "alert", "transaction_id")
"""Bronze's columns for Flink's four fields and, if a producer sends one, its own id of the transaction."""
SOURCE_POSITION = ("_source_file", "_source_row", "_topic", "_partition", "_offset")
"""Bronze's columns for the source of a row: a file and a row, or a message."""
_LANDED = """
    dt TIMESTAMP event time (UTC) of the transaction
    accountId STRING account that pays
    amount DOUBLE amount, in account currency
    alert BOOLEAN verdict of Flink's own detector
    transaction_id STRING the producer's own id; null if it sends none
    _rescued_data STRING JSON object of the values and fields that do not fit; null if all fit
    _misfits ARRAY<STRING> columns of `[columns]` whose value does not fit; `dt in <unit>` if dt likely is
    _raw BINARY message that cannot be parsed; null for every other row
    _error STRING why it cannot be parsed
    _source_file STRING landed file, relative to the landing folder; null for a message
    _source_row BIGINT row number in the file, from 0
    _topic STRING Kafka topic; null for a landed file
    _partition INT partition of the topic
    _offset BIGINT offset in the partition
    _ingested_at TIMESTAMP when the row was read (UTC)"""
BRONZE_TRANSACTIONS = Table(
    "bronze_transactions",
    "A row of a landed file, or a Kafka message, as it came.",
    _LANDED
    + """
    date DATE date (UTC) of dt
    """,
    partitioned_by=("date",),
    # The columns by which rows are searched; statistics of every column would take a sixth of the time of a write.
    properties=(
        *_COMPACTED,
        ("delta.dataSkippingStatsColumns", "dt,_source_file,_topic,_partition,_offset,_ingested_at"),
    ),
)
BRONZE_FILES = Table(
    "bronze_files",
    "An outcome of a landed file; the row with the largest number of a file counts.",
    """
    path STRING full path that the file had
    _source_file STRING file, relative to the landing folder
    size BIGINT bytes
    modified_at TIMESTAMP when the file was last modified (UTC)
    rows BIGINT rows of the file
    status STRING accepted, rejected, or rewritten (another file of that name since it was accepted)
    error STRING why it was rejected; otherwise null
    noted_at TIMESTAMP when this was noted (UTC)
    number BIGINT order of the rows, independent of any clock
    inode BIGINT number that the disk gives the file; null in a workspace
    digest STRING SHA-256 of its bytes; null if it has no rows in bronze
    """,
    properties=_STREAMED,
)
BRONZE_REJECTED_FILES = Table(
    "bronze_rejected_files",
    "A landed file that is not accepted now.",
    """
    path STRING full path of the file
    size BIGINT bytes
    modified_at TIMESTAMP when the file was last modified (UTC)
    error STRING why it was rejected
    rejected_at TIMESTAMP when that was noted (UTC)
    """,
)
BRONZE_FAST_ALERTS = Table(
    "bronze_fast_alerts",
    "A message of the topic of fast alerts, as it came; an alert may come several times.",
    """
    alert_id STRING id of the alert, the same in both lanes; null if the message is not a fast alert
    rule STRING name of the rule
    account_id STRING account that paid
    transaction_id STRING the transaction that completed the alert
    timestamp TIMESTAMP its event time (UTC)
    amount DOUBLE its amount, in account currency
    kind STRING kind of the rule: small_then_large or threshold
    first_transaction_id STRING the first transaction of its evidence
    first_timestamp TIMESTAMP its event time (UTC)
    rule_version BIGINT version of the rule; null if the lane does not know it
    detected_at TIMESTAMP when the lane evaluated the rule (UTC); null if its Spark does not say
    transaction_partition INT partition of the last transaction's message, in the topic of transactions
    transaction_offset BIGINT its offset there
    transaction_appended_at TIMESTAMP Kafka's time of that message (UTC)
    appended_at TIMESTAMP Kafka's time of the alert's message (UTC); the latency ends here
    value BINARY the message; null for a tombstone
    _error STRING why it is not a fast alert; otherwise null
    _topic STRING Kafka topic
    _partition INT partition of the topic
    _offset BIGINT offset in the partition
    _ingested_at TIMESTAMP when the message was read (UTC)
    date DATE date (UTC) of timestamp
    """,
    properties=_COMPACTED,
)
SILVER_TRANSACTIONS = Table(
    "silver_transactions",
    "A valid transaction.",
    """
    transaction_id STRING the producer's own id, or one made from source and position
    account_id STRING account that pays
    timestamp TIMESTAMP event time (UTC)
    amount DOUBLE amount, in account currency
    label BOOLEAN verdict of Flink's own detector
    source STRING landed file, or kafka:topic/partition
    position BIGINT row number in the file, or offset in the partition
    warnings ARRAY<STRING> quality rules that it broke and that only warn; null if there are none
    date DATE date (UTC) of timestamp
    """,
    partitioned_by=("date",),
    zorder=("account_id",),
    properties=_COMPACTED,
)
SILVER_QUARANTINE = Table(
    "silver_quarantine",
    "A row that broke a quality rule, as it came, or a late row.",
    _LANDED
    + """
    reasons ARRAY<STRING> names of the rules that it broke: amount_is_positive for an amount that is not
    quarantined_at TIMESTAMP when it was put here (UTC)
    """,
    properties=_STREAMED,
)
SILVER_ALERTS = Table(
    "silver_alerts",
    "An alert of a rule, such as a large transaction right after a small one.",
    f"""
    alert_id STRING id made from the rule, and the first and the last transaction
    rule STRING name of the rule
    account_id STRING account that paid
    transaction_id STRING the transaction that completed the alert
    timestamp TIMESTAMP its event time (UTC)
    amount DOUBLE its amount, in account currency
    explanation STRING the alert as a sentence
    detected_at TIMESTAMP when the detector raised it (UTC)
    kind STRING small_then_large, threshold, pattern or model
    evidence {EVIDENCE} its transactions in order, with the rule's name for each; at most 100, the first and last 50
    measures MAP<STRING,STRING> values that the rule computed; evidence_rows: number of all rows if some are left out
    rule_version BIGINT version of the rule in silver_rules
    evidence_columns ARRAY<MAP<STRING,STRING>> for each transaction of evidence, further columns that the rule reads
    entity STRING what the rule is by: account, or an entity of [entities]
    entity_key STRING its key: the account, or the value of the column; a JSON object if it has several columns
    """,
    properties=_STREAMED,
)
SILVER_SHADOW_ALERTS = replace(
    SILVER_ALERTS,
    name="silver_shadow_alerts",
    row="An alert of a shadow rule: it is only compared, not delivered or counted.",
)
SILVER_SUPPRESSED_ALERTS = replace(
    SILVER_ALERTS,
    name="silver_suppressed_alerts",
    row="An alert that was not raised, since an entry of silver_list_entries suppresses it.",
).with_columns(
    [
        Column("entry_id", "STRING", "the entry; of several, the one that begins first"),
        Column("is_shadow", "BOOLEAN", "whether the rule was in the shadow"),
    ]
)
ALERTS = (SILVER_ALERTS, SILVER_SHADOW_ALERTS, SILVER_SUPPRESSED_ALERTS)
"""The tables of alerts; each alert is in exactly one of them."""
SILVER_LIST_ENTRIES = Table(
    "silver_list_entries",
    "An entry of a list, or its early end: the list says what happens to payments of a key.",
    """
    entry_id STRING entry; it has a row as it is added, and another one if it is ended early
    event STRING added, ended, or proposed, which has no effect: a second person must agree
    list STRING suppressed, where its rule raises no alerts, or a list that rules name
    rule STRING name of the rule; null in lists that rules name
    entity STRING what the key is of: account, an entity of [entities], or a column
    entity_key STRING the key, as alerts have it
    account_id STRING the account that the key is of; null if it is of none
    starts_at TIMESTAMP event time (UTC) of the first payments that it concerns
    ends_at TIMESTAMP event time (UTC) from which on it concerns none; the earlier one of its rows counts
    reason STRING why it was added, or ended
    author STRING who did it
    at TIMESTAMP when (UTC)
    """,
)
SILVER_RULES = Table(
    "silver_rules",
    "A change of a rule: a new version, or a version's new status; the latest change of a version counts.",
    """
    change BIGINT number of the change, from 1; rows with one number were made together
    name STRING rule
    version BIGINT version of the rule, from 1
    kind STRING small_then_large, threshold, pattern or model
    definition STRING the version of the rule as JSON
    status STRING draft, shadow (evaluated, its alerts are in silver_shadow_alerts), live or retired
    author STRING who made the change
    reason STRING why
    changed_at TIMESTAMP when (UTC)
    """,
    # Changes are numbered after the last one that their writer has read, as review events are.
    properties=(("delta.isolationLevel", "Serializable"),),
)
SILVER_DEFINITION = Table(
    "silver_definition",
    "The definition of a lake, by setting; the row of the latest change counts.",
    """
    change BIGINT number of the change, from 1; rows with one number were made together
    setting STRING name of the setting, such as columns, currency, entities or features
    value STRING its value as JSON
    author STRING who made the change
    reason STRING why
    changed_at TIMESTAMP when (UTC)
    """,
)
SILVER_RATES = Table(
    "silver_rates",
    "A rate of exchange of a day; if a currency has several of one day, the latest by at counts.",
    """
    date DATE day (UTC) whose payments it is for
    currency STRING code of the currency, such as USD
    rate DOUBLE units of the base currency for one unit of it
    source STRING name of the file that it was loaded from
    author STRING who loaded it
    at TIMESTAMP when (UTC)
    """,
)
SILVER_DELIVERIES = Table(
    "silver_deliveries",
    "The outcome of an alert at a destination.",
    """
    destination STRING name of the destination, such as webhook
    alert_id STRING alert
    account_id STRING account that paid
    timestamp TIMESTAMP event time of the alert (UTC)
    detected_at TIMESTAMP when the detector raised it (UTC)
    status STRING delivered, suppressed (its entity had another shortly before), limited (too many at once) or dead
    attempts INT how often it was sent
    reason STRING why it was not delivered; null if it was
    noted_at TIMESTAMP when this was noted (UTC)
    entity STRING what the alert's rule is by; null, as the next one, in older rows
    entity_key STRING its key
    """,
    properties=_COMPACTED,
)
SILVER_VERDICTS = Table(
    "silver_verdicts",
    "An analyst's verdict on a transaction; if there are several, the latest by decided_at counts.",
    """
    transaction_id STRING transaction that was decided on
    verdict BOOLEAN whether it is fraud; null if an earlier verdict was withdrawn
    analyst STRING who decided
    reason STRING why
    decided_at TIMESTAMP when (UTC); of several of one instant, a later loaded one is a microsecond after the other
    date DATE date (UTC) of the transaction
    """,
)
SILVER_REVIEW_EVENTS = Table(
    "silver_review_events",
    "An event of the review of an item: who took it, gave it back or decided on it, and when.",
    """
    number BIGINT order of the events, from 1, independent of any clock; no two have the same one
    event_id STRING id that the writer gave it before it was written; a repeated write adds nothing
    item_id STRING item: id of the case, or of a drawn account, as the queue or the analyst named it
    kind STRING {kinds}
    verdict STRING fraud, genuine or unsure; null for taken and released
    reason STRING why, in a few words; null if none was given
    note STRING what the analyst wrote; null if nothing
    analyst STRING who did it
    at TIMESTAMP when (UTC); never before an earlier event of the item
    expires_at TIMESTAMP when the item is free again (UTC); null unless taken or waiting
    assignee STRING who is to decide; null unless assigned
    account_id STRING account of the item
    entity STRING what the item is about: account, or an entity of [entities]
    entity_key STRING its key
    transaction_ids ARRAY<STRING> the transactions that a verdict is about
    fraud_ids ARRAY<STRING> those of them that are fraud, as the analyst marked them; the others are genuine
    fraud_amount DOUBLE sum of their amounts, as in `gold_cases`; of a drawn account those of its day
    case_id STRING case as it was then; null for a drawn account
    merged_into STRING case that it has become a part of, or no longer is; null unless merged or separated
    day DATE day of the queue that the item is from; null if it is from none
    file_name STRING name of the file; null unless attached
    file_size BIGINT its bytes
    file_hash STRING its SHA-256, under which its bytes are in the lake's folder attachments
    hash STRING SHA-256 of the event and of the hash before it, which chains them
    is_erased BOOLEAN whether forget has removed parts of it, so that its hash is not that of what is left
    date DATE date (UTC) of at
    """.format(
        kinds="opened, taken, released, noted, attached, waiting, assigned, escalated, verdict, corrected, withdrawn, "
        "merged, separated or erased"
    ),
    # Writers number their events after the last one that they have read; of two with one number, Delta accepts one.
    properties=(*_COMPACTED, ("delta.isolationLevel", "Serializable")),
)
SILVER_APPROVAL_EVENTS = Table(
    "silver_approval_events",
    "An event on something that needs two people: who asked for what, who agreed, and when it was carried out.",
    """
    number BIGINT order of the events, from 1, independent of any clock; no two have the same one
    event_id STRING id that the writer gave it before it was written
    kind STRING requested, approved, rejected, withdrawn or carried out
    request BIGINT number of the event that asked
    person STRING who did it: the signed-in user, on a laptop that of the system
    at TIMESTAMP when (UTC)
    reason STRING why; null for carried out
    action STRING rules, promotion, forget, restore, correction or definition; null unless requested
    subject STRING what it is about; null unless requested, as the next ones
    before STRING state on which it was asked, as JSON
    after STRING state that it leads to, as JSON
    arguments STRING values with which it is carried out, as JSON
    account_ids ARRAY<STRING> accounts that it names
    hash STRING SHA-256 of the event and of the hash before it, which chains them
    is_erased BOOLEAN whether forget has removed parts of it, so that its hash is not that of what is left
    date DATE date (UTC) of at
    """,
    properties=(*_COMPACTED, ("delta.isolationLevel", "Serializable")),
)
GOLD_FRAUD_PREDICTIONS = Table(
    "gold_fraud_predictions",
    "A transaction as a version of the model scored it; docs/how-to/model.md explains the features.",
    """
    transaction_id STRING transaction
    account_id STRING account
    timestamp TIMESTAMP event time (UTC)
    {features}
    probability DOUBLE probability of fraud
    prediction BOOLEAN whether the probability reaches the threshold
    reasons ARRAY<STRING> what raised the probability most, in sentences; null without predicted fraud or an alert
    label BOOLEAN verdict of Flink's own detector
    model_version STRING version of the model
    scored_from STRING silver, kafka or backfill
    scored_at TIMESTAMP when it was scored (UTC)
    date DATE date (UTC) of timestamp
    """.format(features="\n".join(" ".join(_feature_column(feature)) for feature in OWN)),
    partitioned_by=("date",),
    zorder=("account_id",),
)
PREDICTION_ORDER = "CASE WHEN scored_from = 'backfill' THEN 1 ELSE 0 END, scored_at DESC"
"""The order of a transaction's predictions; the first one counts: the stream's, otherwise the latest backfill's."""
GOLD_MODELS = Table(
    "gold_models",
    "A champion that micro-batches score with, published from the model registry; the latest row is in use.",
    """
    model_version STRING version of the model
    model BINARY the model, as JSON
    profile STRING profile of the data that it learned from, as JSON
    published_at TIMESTAMP when it was published (UTC)
    """,
)
GOLD_PREDICTION_QUALITY = Table(
    "gold_prediction_quality",
    "A day (UTC) of predictions of a model version, against one source of the truth.",
    """
    date DATE day (UTC)
    model_version STRING version of the model
    judged_by STRING source of the truth: flink (its label), verdict (an analyst's) or chargebacks (a verdict, or age)
    transactions BIGINT predictions whose truth is known
    fraud BIGINT of those, fraud
    true_prediction_rate DOUBLE share of predictions that equal the truth (accuracy)
    precision DOUBLE share of the predicted fraud that is fraud
    recall DOUBLE share of the fraud that was predicted
    f1 DOUBLE harmonic mean of precision and recall
    area_under_pr DOUBLE area under the precision-recall curve (average precision)
    area_under_roc DOUBLE area under the ROC curve
    alert_budget BIGINT alerts, or accounts, that can be looked at in a day
    card_precision DOUBLE share of the accounts with the highest scores, as many as the budget, that have fraud
    card_recall DOUBLE share of the accounts with fraud that are among these
    precision_at_budget DOUBLE share of the transactions with the highest scores, as many as the budget, that are fraud
    recall_at_budget DOUBLE share of the fraud that is among these
    amount_saved DOUBLE amount of the predicted fraud less the cost of all that is predicted, in account currency
    """,
)
GOLD_FEATURE_DRIFT = Table(
    "gold_feature_drift",
    "A day (UTC) of a feature, or of the probability, against the data that a model version learned from.",
    """
    date DATE day (UTC)
    model_version STRING version of the model
    feature STRING feature, or probability
    transactions BIGINT number of predictions
    psi DOUBLE population stability index
    is_after_training BOOLEAN whether the day is after the data that the version learned from
    """,
)
GOLD_ACCOUNT_DAILY = Table(
    "gold_account_daily",
    "A day (UTC) of an account.",
    """
    account_id STRING account
    date DATE day (UTC)
    transactions BIGINT number of transactions
    amount_sum DOUBLE sum of their amounts, in account currency, or in the lake's base currency
    amount_max DOUBLE largest amount, in account currency, or in the lake's base currency
    small_transactions BIGINT transactions that are small for any live rule of small_then_large
    large_transactions BIGINT transactions that are large for any live rule of small_then_large
    alerts BIGINT alerts
    """,
    partitioned_by=("date",),
    zorder=("account_id",),
)
GOLD_CASES = Table(
    "gold_cases",
    "A case: alerts of one entity, each at most `case_gap` after the one before and `case_length` after the first. "
    "Each of its alert ids names it.",
    """
    case_id STRING alert_id of its earliest alert
    entity STRING what its rules are by: account, or an entity of [entities]
    entity_key STRING key of the entity
    account_id STRING account of the earliest alert
    opened_at TIMESTAMP event time of the earliest alert (UTC)
    last_alert_at TIMESTAMP event time of the latest alert (UTC)
    alerts BIGINT number of alerts
    rules ARRAY<STRING> rules that raised them, sorted
    alert_ids ARRAY<STRING> the alerts, in the order of event time
    transaction_ids ARRAY<STRING> the transactions that completed them, in the same order, each once
    accounts BIGINT number of accounts of these transactions
    amount_at_risk DOUBLE sum of the amounts of these transactions, in account currency, or in the lake's base currency
    detected_at TIMESTAMP when the first alert was raised (UTC)
    date DATE date (UTC) of opened_at
    """,
    properties=_STREAMED,
)
GOLD_REVIEW_QUEUE = Table(
    "gold_review_queue",
    "An item of a day's queue: a case, or an account that was drawn at random.",
    """
    day DATE day (UTC) whose transactions it is about
    rank INT place in the queue, from 1
    item_id STRING case_id of a case; of a drawn account a hash of it and the day
    kind STRING case or drawn
    case_id STRING case; null for a drawn account
    entity STRING what the item is about: account, or an entity of [entities]
    entity_key STRING its key
    account_id STRING account
    priority DOUBLE probability times amount at risk; null for a drawn account
    probability DOUBLE probability of fraud, by the model or the precision of the rules; null if neither says
    amount_at_risk DOUBLE sum of the amounts of the transactions that it is about, as in `gold_cases`
    inclusion_probability DOUBLE probability with which it came into the queue: 1 for a case
    population BIGINT accounts that could be drawn that day
    is_flagged BOOLEAN whether a drawn account has alerts of the day, by rules or scores; null for a case
    reasons STRING what brought it into the queue, as a sentence
    seed BIGINT seed of the draw
    built_at TIMESTAMP when the queue was built (UTC)
    """,
    properties=_STREAMED,
)
GOLD_ROW_REMOVALS = Table(
    "gold_row_removals",
    "A commit that removed rows older than the setting `row_retention`, or a restore that brought them back.",
    """
    table_name STRING table
    table_id STRING its identity; a table that replaces it has another one
    version BIGINT its version after the commit
    rows BIGINT rows that were removed; negative if they came back
    rows_from_kafka_or_late BIGINT of those, rows from Kafka (bronze), and late rows (quarantine)
    first_day DATE first day (UTC) whose rows stayed; null if all came back
    removed_at TIMESTAMP time of the commit (UTC)
    """,
)
GOLD_FORGOTTEN = Table(
    "gold_forgotten",
    "The rows of a forgotten account that a table had.",
    """
    account_hash STRING PBKDF2-HMAC-SHA256 of the account, hexadecimal; docs/how-to/forget.md says how to prove one
    salt STRING salt of the hash, hexadecimal; one for the lake
    iterations INT iterations of the hash
    table_name STRING table; or landed files, or delivered files
    rows BIGINT rows, or lines, of the account
    began_at TIMESTAMP when its removal began (UTC)
    finished_at TIMESTAMP when a scan proved that nothing was left (UTC); null until then
    """,
)

TABLES = (
    BRONZE_TRANSACTIONS,
    BRONZE_FILES,
    BRONZE_REJECTED_FILES,
    BRONZE_FAST_ALERTS,
    SILVER_TRANSACTIONS,
    SILVER_QUARANTINE,
    SILVER_ALERTS,
    SILVER_SHADOW_ALERTS,
    SILVER_SUPPRESSED_ALERTS,
    SILVER_LIST_ENTRIES,
    SILVER_RULES,
    SILVER_DEFINITION,
    SILVER_RATES,
    SILVER_DELIVERIES,
    SILVER_VERDICTS,
    SILVER_REVIEW_EVENTS,
    SILVER_APPROVAL_EVENTS,
    GOLD_FRAUD_PREDICTIONS,
    GOLD_MODELS,
    GOLD_PREDICTION_QUALITY,
    GOLD_FEATURE_DRIFT,
    GOLD_REVIEW_QUEUE,
    GOLD_ROW_REMOVALS,
    GOLD_FORGOTTEN,
)
"""The tables of this module; each gold aggregate declares its own table elsewhere."""

STREAMED = {
    table.name
    for table in (
        BRONZE_TRANSACTIONS,
        BRONZE_FAST_ALERTS,
        SILVER_TRANSACTIONS,
        SILVER_ALERTS,
        SILVER_VERDICTS,
        GOLD_FRAUD_PREDICTIONS,
    )
}
"""The names of the tables that streams read."""

_BASE_AMOUNT = Column(BASE_AMOUNT, "DOUBLE", "amount in the base currency of `[currency]`; null if no rate is known")
_WITH_DECLARED = {table.name for table in (BRONZE_TRANSACTIONS, SILVER_TRANSACTIONS, SILVER_QUARANTINE)}
RESERVED_NAMES = {name for table in TABLES if table.name in _WITH_DECLARED for name in table.column_names}
RESERVED_NAMES |= {BASE_AMOUNT}
"""The names that a column of the setting ``columns`` cannot have."""


class DeclaredField(Protocol):
    """A further field of the payload, as the settings declare it."""

    @property
    def field(self) -> str:
        """Its name in the payload."""

    @property
    def type(self) -> str:
        """The type of its column."""


def with_declared(
    table: Table, columns: Mapping[str, DeclaredField], features: Iterable[tuple[Feature, str]] = ()
) -> Table:
    """Return a table with the columns that the settings declare, if it is a table that has them.

    Declared columns have the same name in bronze, silver and quarantine; only silver has ``base_amount``, if it is
    among the columns. Predictions have the declared features, which are given with their types.
    """
    if table.name == GOLD_FRAUD_PREDICTIONS.name:
        return table.with_columns(_feature_column(*feature) for feature in features)
    if table.name not in _WITH_DECLARED:
        return table
    declared = [
        Column(name, column.type.upper(), f"the payload's {column.field}")
        for name, column in columns.items()
        if name != BASE_AMOUNT
    ]
    has_base_amount = table.name == SILVER_TRANSACTIONS.name and BASE_AMOUNT in columns
    return table.with_columns([*declared, _BASE_AMOUNT] if has_base_amount else declared)
