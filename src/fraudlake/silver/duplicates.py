"""Duplicates: adds reasons to rows that repeat a stored row, or another row of their micro-batch.

A row repeats another one if both have the same source position, or the same transaction id of the producer. Bronze
takes each source position once, so a repeated one means that bronze was filled twice (after its checkpoint was deleted,
for instance). Such a refill must not double a transaction, and looking for it must be cheap: the positions of a source
are compared row by row only if their range overlaps the stored range.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake.silver import quality_rules
from fraudlake.silver.transactions import own_id, position, source
from fraudlake.times import literals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import Column, DataFrame, Row

Dates = tuple[date, date] | None
"""The first and the last date of some rows; None if no row has a time, and so none can be in silver."""
REPLAYABLE = f"NOT arrays_overlap(reasons, array{(quality_rules.LATE, *quality_rules.REPEATED_POSITION)})"
"""The condition on ``silver_quarantine`` that a row is not stored elsewhere.

A late row is in silver, too. Of the rows with a repeated source position, the first one is in silver or in quarantine.
"""


@dataclass(frozen=True)
class SourceRange:
    """The range of a micro-batch's positions in one source, and whether it has a position twice."""

    source: str
    low: int
    high: int
    repeats: bool


@dataclass(frozen=True)
class BatchSummary:
    """The content of a micro-batch on which duplicates depend."""

    ranges: tuple[SourceRange, ...]
    dates: Dates
    has_ids: bool
    """Whether any row has a producer's own id."""
    valid: int
    """Rows without ``reasons``."""
    rejected: int

    @property
    def rows(self) -> int:
        """All rows."""
        return self.valid + self.rejected

    def may_hold_duplicates(self, overlapping_sources: set[str]) -> bool:
        """Return whether :func:`with_duplicate_reasons` must compare any row."""
        return self.has_ids or bool(self.suspects(overlapping_sources))

    def suspects(self, overlapping_sources: set[str]) -> set[str]:
        """Return the sources whose positions must be compared row by row."""
        return overlapping_sources | {span.source for span in self.ranges if span.repeats}


def batch_summary(checked: DataFrame) -> BatchSummary:
    """Summarize rows of ``bronze_transactions`` with their ``reasons``, in one pass.

    A position is a bit in a word of 64 bits. A task sends one row per word to the exchange. No position of a source
    repeats if as many bits are set in its words as it has positions.
    """
    at = F.col("_position")
    words = (
        checked.select(
            source().alias("source"), position().alias("_position"), "date", own_id().alias("_id"), "reasons"
        )
        .groupBy("source", F.shiftright(at, 6).alias("word"))
        .agg(
            F.bit_or(F.expr("shiftleft(1L, CAST(_position & 63 AS INT))")).alias("bits"),
            F.count(at).alias("positions"),
            F.min(at).alias("low"),
            F.max(at).alias("high"),
            F.min("date").alias("first_date"),
            F.max("date").alias("last_date"),
            F.count("_id").alias("ids"),
            F.count_if(F.size("reasons") == 0).alias("valid"),
            F.count_if(F.size("reasons") > 0).alias("rejected"),
        )
    )
    sums = (F.sum(name).alias(name) for name in ("ids", "valid", "rejected"))
    rows = (
        words.groupBy("source")
        .agg(
            F.min("low").alias("low"),
            F.max("high").alias("high"),
            (F.sum(F.bit_count("bits")) < F.sum("positions")).alias("repeats"),
            F.min("first_date").alias("first_date"),
            F.max("last_date").alias("last_date"),
            *sums,
        )
        .collect()
    )
    return BatchSummary(
        tuple(
            SourceRange(row["source"], row["low"], row["high"], row["repeats"])
            for row in rows
            if row["source"] is not None and row["low"] is not None
        ),
        _dates(rows),
        any(row["ids"] for row in rows),
        sum(row["valid"] for row in rows),
        sum(row["rejected"] for row in rows),
    )


def _dates(rows: list[Row]) -> Dates:
    dated = [(row["first_date"], row["last_date"]) for row in rows if row["first_date"]]
    return (min(first for first, _ in dated), max(last for _, last in dated)) if dated else None


@dataclass(frozen=True)
class StoredTables:
    """Both tables as they were before a micro-batch. They are opened only if they are needed."""

    silver: Callable[[], DataFrame]
    quarantine: Callable[[], DataFrame]

    def ranges(self, dates: Dates, near: Sequence[SourceRange] = ()) -> Iterable[tuple[str, int, int]]:
        """Return the lowest and the highest stored position by source.

        Args:
            dates: the first and last date of the rows of silver to read; quarantine is read for all dates.
            near: the sources to read, from their lowest position to their highest; by default all sources.
        """
        ranges = _positions(self, dates, near).groupBy("source")
        rows = ranges.agg(F.min("position").alias("low"), F.max("position").alias("high")).collect()
        return [(row["source"], row["low"], row["high"]) for row in rows if row["source"] is not None]


class PositionIndex:
    """The ranges of positions in silver and quarantine, by source. Each date is read once.

    The index stays valid as long as no other process adds source positions. Only ``refine`` adds any: a replay moves
    rows from one table to the other.
    """

    def __init__(self) -> None:
        """Begin with an empty index."""
        self._ranges: dict[str, tuple[int, int]] = {}
        self._dates: tuple[date, date] | None = None

    def overlapping_sources(self, summary: BatchSummary, stored: StoredTables) -> set[str]:
        """Return the sources of a micro-batch whose range of positions overlaps the stored one."""
        if not summary.ranges:
            return set()
        if not self._ranges:
            # The process may run a single micro-batch, for which reading only its own sources is cheaper.
            ranges = _widened({}, stored.ranges(summary.dates, summary.ranges))
        else:
            if not self._covers(summary):
                self._load(summary, stored)
            ranges = self._ranges
        return {span.source for span in summary.ranges if _overlaps(span, ranges)}

    def add(self, summary: BatchSummary) -> None:
        """Add the positions of a micro-batch that has been committed."""
        if len(self._ranges) > _MOST_SOURCES:
            self._ranges = {}
            self._dates = None
        self._ranges = _widened(self._ranges, ((span.source, span.low, span.high) for span in summary.ranges))

    def _covers(self, summary: BatchSummary) -> bool:
        if self._dates is None or summary.dates is None:
            return False
        return self._dates[0] <= summary.dates[0] and summary.dates[1] <= self._dates[1]

    def _load(self, summary: BatchSummary, stored: StoredTables) -> None:
        parts = [summary.dates]
        if self._dates is not None:
            (first, last), (low, high) = summary.dates or self._dates, self._dates
            day = timedelta(days=1)
            parts = [*([(first, low - day)] if first < low else []), *([(high + day, last)] if last > high else [])]
        for dates in parts:
            self._ranges = _widened(self._ranges, stored.ranges(dates))
        ranges = [dates for dates in (summary.dates, self._dates) if dates is not None]
        self._dates = (min(first for first, _ in ranges), max(last for _, last in ranges)) if ranges else None


_MOST_SOURCES = 500_000


def with_duplicate_reasons(
    checked: DataFrame,
    summary: BatchSummary,
    overlapping_sources: set[str],
    stored: StoredTables,
    came_first: Column | None = None,
) -> DataFrame:
    """Add ``position_is_new`` and ``transaction_is_new`` to the ``reasons`` of duplicates.

    A row is a duplicate if the tables already have its source position or its id. Of several rows of the micro-batch
    with one source position, all but one are duplicates. Of several rows with one id, all but the first valid one by
    source and position are duplicates; if no row is valid, no row is a duplicate. A row that breaks another rule never
    makes a valid row a duplicate.

    Args:
        checked: rows of one micro-batch with their ``reasons``.
        summary: the summary of the same rows.
        overlapping_sources: the result of :meth:`PositionIndex.overlapping_sources` for the summary.
        stored: the tables as they were before these rows.
        came_first: whether a row precedes all others with its id; by default no row does.
    """
    suspects = summary.suspects(overlapping_sources)
    if suspects:
        stored_positions = _positions(stored, summary.dates, summary.ranges)
        stored_positions = stored_positions.where(F.col("source").isin(sorted(overlapping_sources)))
        checked = _with_repeated_positions(checked, stored_positions, suspects)
    return _with_repeated_ids(checked, stored.silver(), came_first) if summary.has_ids else checked


def _positions(stored: StoredTables, dates: Dates, near: Sequence[SourceRange] = ()) -> DataFrame:
    """Return ``source, position`` of silver's rows on some dates, and of quarantine's rows on all dates.

    With ``near``, rows of other sources and positions are omitted. Comparing with literals lets Delta skip files.
    """
    first, last = dates or (None, None)
    on_dates = F.col("date").between(literals.day(first), literals.day(last))
    quarantined = stored.quarantine().where(REPLAYABLE)
    quarantined = quarantined.select(source().alias("source"), position().alias("position"))
    positions = stored.silver().where(on_dates).select("source", "position").unionAll(quarantined)
    if near:
        low = min(span.low for span in near)
        high = max(span.high for span in near)
        is_near = F.col("source").isin([span.source for span in near]) & F.col("position").between(low, high)
        positions = positions.where(is_near)
    return positions


def _widened(ranges: dict[str, tuple[int, int]], others: Iterable[tuple[str, int, int]]) -> dict[str, tuple[int, int]]:
    """Return ranges extended by the other ones."""
    for name, low, high in others:
        other = ranges.get(name, (low, high))
        ranges[name] = min(low, other[0]), max(high, other[1])
    return ranges


def _overlaps(span: SourceRange, ranges: dict[str, tuple[int, int]]) -> bool:
    return span.source in ranges and span.low <= ranges[span.source][1] and ranges[span.source][0] <= span.high


def _with_repeated_positions(checked: DataFrame, stored: DataFrame, suspects: set[str]) -> DataFrame:
    source_position = ["_source", "_position"]
    is_suspect = source().isin(sorted(suspects))
    rows = checked.where(is_suspect).withColumns({"_source": source(), "_position": position()})
    stored = stored.select(
        F.col("source").alias("_source"), F.col("position").alias("_position"), F.lit(True).alias("_is_stored")
    )
    # A valid row comes first; the hash makes a repeated micro-batch choose the same row.
    order = Window.partitionBy(*source_position).orderBy(
        F.size("reasons"), F.xxhash64("dt", "accountId", "amount", "alert")
    )
    ranked = rows.join(stored.distinct(), on=source_position, how="left").withColumn("_nth", F.row_number().over(order))
    is_repeated = F.coalesce("_is_stored", F.col("_nth") > 1)
    with_reasons = _with_reason(ranked, is_repeated, quality_rules.POSITION_IS_NEW)
    return checked.where(~is_suspect).unionByName(with_reasons.drop(*source_position, "_is_stored", "_nth"))


def _with_repeated_ids(checked: DataFrame, silver: DataFrame, came_first: Column | None) -> DataFrame:
    rows = checked.where(own_id().isNotNull()).withColumn("_id", own_id())
    stored = silver.join(
        F.broadcast(rows.select("_id").distinct()), F.col("transaction_id") == F.col("_id"), "left_semi"
    )
    stored = stored.select(F.col("transaction_id").alias("_id"), F.lit(True).alias("_is_stored")).distinct()
    is_valid = F.size("reasons") == 0
    is_first = F.lit(False) if came_first is None else came_first
    order = Window.partitionBy("_id").orderBy(F.desc(is_valid), F.desc(is_first), source(), position())
    ranked = rows.join(stored, on="_id", how="left").withColumns(
        {"_nth": F.row_number().over(order), "_has_valid": F.max(is_valid).over(Window.partitionBy("_id"))}
    )
    is_repeated = F.coalesce("_is_stored", F.col("_has_valid") & (F.col("_nth") > 1))
    with_reasons = _with_reason(ranked, is_repeated, quality_rules.TRANSACTION_IS_NEW)
    return checked.where(own_id().isNull()).unionByName(with_reasons.drop("_id", "_is_stored", "_nth", "_has_valid"))


def _with_reason(rows: DataFrame, is_broken: Column, name: str) -> DataFrame:
    reason = F.when(is_broken, F.array(F.lit(name))).otherwise(F.array().cast("array<string>"))
    return rows.withColumn("reasons", F.concat("reasons", reason))
