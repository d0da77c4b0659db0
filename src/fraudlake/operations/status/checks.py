"""Checks: find what does not add up or has not finished, each with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.operations import lag
from fraudlake.operations.status.problem import Problem
from fraudlake.operations.status.streams import DELIVERING
from fraudlake.streams import deliver
from fraudlake.text.counts import age, counted

if TYPE_CHECKING:
    from fraudlake.operations.status import Status
    from fraudlake.tables import Table


def messages_are_read(status: Status) -> Iterator[Problem]:
    """Find transactions and fast alerts that Kafka still holds."""
    if unread := status.source.kafka_lag:
        yield Problem(f"{unread:,} messages are not in bronze yet", "run 'fraudlake ingest --source kafka'")
    if unread := status.source.fast_alerts.get("lag"):
        yield Problem(f"{unread:,} fast alerts are not in bronze yet", "run 'fraudlake ingest --source kafka'")


def files_are_read(status: Status) -> Iterator[Problem]:
    """Compare the rows that landed with those of bronze."""
    landed = status.source.landed - (status.source.kafka_lag or 0)
    bronze = status.rows.ingested
    unread = status.source.unread_files
    by_hand = _undoing(status, tables.BRONZE_TRANSACTIONS)
    if landed == bronze and unread:
        yield Problem(f"{unread:,} landed files have not been read", "run 'fraudlake ingest'")
    elif landed > bronze and by_hand and not unread:
        yield Problem(f"{landed:,} rows landed and were read, but bronze holds {bronze:,}", by_hand)
    elif landed != bronze:
        yield Problem(f"{landed:,} rows landed but bronze holds {bronze:,}", "run 'fraudlake ingest'")


def replays_are_finished(status: Status) -> Iterator[Problem]:
    """Find interrupted replays of quarantined rows, and of days."""
    if number := status.unfinished.cut_replays:
        yield Problem(
            f"{counted(number, 'replay')} of the quarantine not finished",
            "run 'fraudlake quarantine --replay', which does that",
        )
    if command := status.unfinished.cut_replay_of_days:
        yield Problem("a replay of days was interrupted", f"run '{command}', which finishes it")


def removals_are_finished(status: Status) -> Iterator[Problem]:
    """Find accounts that have not been removed from every place."""
    if accounts := status.unfinished.unfinished_removals:
        yield Problem(
            f"the removal of {counted(accounts, 'account')} has not finished",
            "repeat 'fraudlake forget --yes' with the same accounts",
        )


def rows_are_refined(status: Status) -> Iterator[Problem]:
    """Compare the rows of bronze with those of silver and quarantine."""
    bronze = status.rows.ingested
    refined = status.rows.refined
    if bronze != refined:
        yield Problem(
            f"bronze holds {bronze:,} rows but silver and quarantine together {refined:,}", _remedy_of_refined(status)
        )


def _remedy_of_refined(status: Status) -> str:
    if command := status.unfinished.cut_replay_of_days:
        return f"run '{command}'"
    if "refine" in status.streams.lag:
        return "run 'fraudlake refine'"
    touched = (tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE, tables.BRONZE_TRANSACTIONS)
    return next(filter(None, (_undoing(status, table) for table in touched)), "run 'fraudlake refine'")


def _undoing(status: Status, table: Table) -> str:
    """Describe the commit that removed rows of a table by SQL, and the remedy; empty if there is no such commit."""
    commit = status.rows.by_hand.get(table.name)
    if commit is None:
        return ""
    version = commit["version"]
    remedy = (
        f"version {version} of {table.name} ({commit['operation']}, {commit['at']:%Y-%m-%d %H:%M:%S} UTC) removed "
        f"rows by hand: 'fraudlake restore {table.name} --version {version - 1} --allow-streams' gives the table "
        "its rows from before"
    )
    if table == tables.BRONZE_TRANSACTIONS:
        return remedy
    return f"{remedy}, or 'fraudlake replay --from DAY --to DAY --apply' computes days again from bronze"


def payments_have_rates(status: Status) -> Iterator[Problem]:
    """Find payments whose currency has no rate, which rules on the base amount do not see."""
    if number := status.rows.without_rate:
        yield Problem(
            f"{counted(number, 'payment')} of silver without a rate of exchange",
            "'fraudlake rates missing' lists their days and currencies: load their rates with 'fraudlake rates load', "
            "then run 'fraudlake replay'",
        )


def alerts_are_delivered(status: Status) -> Iterator[Problem]:
    """Find the dead letters of each destination."""
    for destination, counts in status.alerts.deliveries.items():
        if dead := counts.get(deliver.DEAD):
            yield Problem(
                f"{dead:,} alerts could not be delivered to {destination}",
                f"once it takes them, run 'fraudlake deliver --to {destination} --retry-dead'",
            )


def streams_are_up_to_date(status: Status) -> Iterator[Problem]:
    """Find steps with unread commits of their tables."""
    for step, unread_commits in status.streams.lag.items():
        # Bronze's count shows the rows that refine has not read; a destination of alerts may be out of use.
        if step in ("refine", *DELIVERING):
            continue
        for table, commits in unread_commits.items():
            # Analysts decide at any time, and no row depends on it.
            if table != tables.SILVER_VERDICTS.name:
                yield Problem(f"{step} is {counted(commits, 'commit')} behind {table}", f"run '{lag.command_of(step)}'")


def unread_files_are_safe(status: Status) -> Iterator[Problem]:
    """Find steps with unread commits whose files VACUUM may remove."""
    for step, oldest in status.streams.expiring.items():
        for table, at in oldest.items():
            yield Problem(
                f"{step} has not read what {table} got on {at:%Y-%m-%d}, longer ago than the table keeps files",
                f"run '{lag.command_of(step)}' before VACUUM removes them",
            )


def items_are_decided(status: Status) -> Iterator[Problem]:
    """Find items of the review that are late."""
    review = status.review
    if review.oldest_late_item:
        items = counted(review.late_items, "item")
        time = age(review.oldest_late_item, datetime.now(UTC))
        yield Problem(
            f"open for longer than review_limit: {items} of the review, the oldest for {time}",
            f"decide on them in 'fraudlake desk'; 'fraudlake queue list --day {review.oldest_late_day}' has the oldest",
        )


CHECKS: tuple[Callable[[Status], Iterator[Problem]], ...] = (
    messages_are_read,
    files_are_read,
    replays_are_finished,
    removals_are_finished,
    rows_are_refined,
    payments_have_rates,
    alerts_are_delivered,
    streams_are_up_to_date,
    unread_files_are_safe,
    items_are_decided,
)
"""The checks in the order in which problems are shown; later ones may follow from earlier ones."""
