"""Plan: counts the rows of accounts in a lake, and names the data that cannot be removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.bronze import parquet
from fraudlake.feature import EVER
from fraudlake.features import account_features, entity_features
from fraudlake.forget import attachments, audit, own_files, traces
from fraudlake.forget.account_rows import BY_ACCOUNT, LANDED, rows_of
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.streams import score
from fraudlake.text.counts import counted
from fraudlake.times import durations

if TYPE_CHECKING:
    from fraudlake.lake import Lake

LANDED_FILES = "landed files"
DELIVERED_FILES = "delivered files"
ATTACHED_FILES = "attached files"


@dataclass(frozen=True)
class Plan:
    """The rows of accounts in a lake.

    ``rows`` counts rows by account and table; ``landed files``, ``delivered files`` and ``attached files`` count like
    tables.
    ``stays`` are sentences on what cannot be removed.
    """

    rows: dict[str, dict[str, int]]
    stays: list[str]


def plan(lake: Lake, accounts: Sequence[str]) -> Plan:
    """Count the rows that would be removed, without changing anything.

    Raises:
        UsageError: the lake has no rows of an account.
    """
    counted = count(lake, accounts)
    audit.require_known(lake, counted.rows)
    return counted


def count(lake: Lake, accounts: Sequence[str]) -> Plan:
    """Count the rows that would be removed, without changing anything."""
    rows: dict[str, dict[str, int]] = {account: {} for account in accounts}
    read = (*LANDED, tables.BRONZE_FAST_ALERTS, *BY_ACCOUNT, tables.SILVER_VERDICTS)
    for table in filter(lake.store.count, read):  # a query of an empty table takes half a second
        for account, count in rows_of(lake, table, accounts).groupBy("account").count().collect():
            rows[account][table.name] = count
    for account, count in attachments.count(lake, accounts).items():
        rows[account][ATTACHED_FILES] = count
    stays = _elsewhere(lake, accounts)
    if lake.folder is None:
        return Plan(
            rows,
            [
                *stays,
                f"landed files: this cannot rewrite files of a volume; see {landing_folder(lake).path}",
                f"the state of detect and score under {lake.checkpoints}: it leaves with the accounts' next "
                f"transactions, or as detect's flags expire and {_state_ends(lake)}",
                "the tables' logs: they name the least and largest account of files, until Databricks removes them",
            ],
        )
    flinks = []
    for landed in own_files.landed(lake, accounts):
        if landed.is_own:
            for account, count in landed.rows.items():
                rows[account][LANDED_FILES] = rows[account].get(LANDED_FILES, 0) + count
    search = traces.Search(accounts)
    for file in landing_folder(lake).list_files():
        if file.size is not None and not parquet.is_own(file.path) and search.in_file(Path(file.path)):
            flinks.append(file.source)
    if flinks:
        stays.append(f"landed files that Flink wrote, in {landing_folder(lake).path}: {', '.join(sorted(flinks))}")
    for account, count in own_files.delivered(lake, set(accounts), erase=False).items():
        rows[account][DELIVERED_FILES] = count
    return Plan(rows, stays)


def _elsewhere(lake: Lake, accounts: Sequence[str]) -> list[str]:
    """Return sentences about data of the accounts that the lake cannot remove."""
    stays = []
    for table in (tables.BRONZE_TRANSACTIONS, tables.BRONZE_FAST_ALERTS):
        of_topics = rows_of(lake, table, accounts).where("_topic IS NOT NULL").groupBy("_topic")
        for topic, count in of_topics.count().collect():
            stays.append(
                f"{counted(count, 'message')} of the topic {topic}: Kafka removes them by the topic's own retention"
            )
    delivered = rows_of(lake, tables.SILVER_DELIVERIES, accounts).where("attempts > 0").groupBy("destination")
    for destination, count in delivered.count().collect():
        if destination != "file" or lake.folder is None:
            stays.append(f"{count:,} alerts that were delivered to {destination}: their receiver has them")
        elif not lake.settings.delivery_folder:
            stays.append(f"{count:,} alerts that were delivered to files: name their folder with --delivery-folder")
    if not lake.checkpoint(score.FROM_KAFKA).is_new:
        stays.append(
            "sums of the accounts' amounts, under a hash, in the state of score_kafka: they leave it "
            f"{_state_ends(lake)}"
        )
    if lake.store.count(tables.GOLD_MODELS):
        stays.append("the trained models: they have learned from these transactions, and name no account")
    return stays


def _state_ends(lake: Lake) -> str:
    """Return when the sums of an account's features leave the state of a stream."""
    if any(feature.window == EVER for feature in lake.settings.features):
        return "with a new checkpoint, since a feature looks back for ever"
    longest = max(timedelta(days=account_features.FORGET_DAYS), entity_features.look_back(lake.settings.features))
    return f"after {durations.text(longest)} without a transaction"
