"""Duplicates: rows that silver or quarantine hold already, or that a micro-batch holds twice, are told so.

Two things make a row the same as another one: its place, and the producer's own id of the transaction. Bronze takes
each place once, so equal places mean that it was filled twice (its checkpoint was deleted, say). That must not double
a transaction, and to find out must cost next to nothing: a source is looked at row by row only where the range of its
positions meets what is there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake.silver import rules
from fraudlake.silver.transactions import own_id, position, source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import date

    from pyspark.sql import Column, DataFrame

REPLAYABLE = f"NOT arrays_overlap(reasons, array('{rules.LATE}', '{rules.PLACE_IS_NEW}'))"
"""Of ``silver_quarantine``: rows that are nowhere else. A late row is in silver, the first of a place somewhere."""


@dataclass(frozen=True)
class Source:
    """What a micro-batch holds of one source: the range of positions, and whether any may come more than once."""

    name: str
    low: int
    high: int
    repeats: bool


@dataclass(frozen=True)
class Digest:
    """What a micro-batch holds, as far as it tells where duplicates may be."""

    sources: tuple[Source, ...]
    first_date: date | None
    last_date: date | None
    has_ids: bool
    valid: int
    """Rows without ``reasons``."""
    rejected: int


def digest(checked: DataFrame) -> Digest:
    """Digest rows of ``bronze_transactions`` with their ``reasons``, in one pass that exchanges a row a source only.

    Positions that fill their range, by their number and their sum, do not repeat.
    """
    at, low, high = position(), F.min("_at"), F.max("_at")
    fills = (F.count("_at") == high - low + 1) & (2 * F.try_sum("_at") == (low + high) * F.count("_at"))
    rows = (
        checked.select(source().alias("source"), at.alias("_at"), "date", own_id().alias("_id"), "reasons")
        .groupBy("source")
        .agg(
            low.alias("low"),
            high.alias("high"),
            F.coalesce(~fills, F.lit(True)).alias("repeats"),
            F.min("date").alias("first_date"),
            F.max("date").alias("last_date"),
            F.count("_id").alias("ids"),
            F.count_if(F.size("reasons") == 0).alias("valid"),
            F.count_if(F.size("reasons") > 0).alias("rejected"),
        )
        .collect()
    )
    return Digest(
        tuple(
            Source(row["source"], row["low"], row["high"], row["repeats"])
            for row in rows
            if row["source"] is not None and row["low"] is not None
        ),
        min((row["first_date"] for row in rows if row["first_date"]), default=None),
        max((row["last_date"] for row in rows if row["last_date"]), default=None),
        any(row["ids"] for row in rows),
        sum(row["valid"] for row in rows),
        sum(row["rejected"] for row in rows),
    )


@dataclass(frozen=True)
class Before:
    """The tables as they were before a micro-batch; they are opened only where they are needed."""

    silver: Callable[[], DataFrame]
    quarantine: Callable[[], DataFrame]


class Held:
    """Ranges of positions that silver and quarantine hold, by source: looked up once a date and then remembered.

    They stay right for as long as no other process brings new places in. None does beside ``refine``: a replay only
    moves rows.
    """

    def __init__(self) -> None:
        """Begin with nothing remembered."""
        self._ranges: dict[str, tuple[int, int]] = {}
        self._dates: tuple[date, date] | None = None

    def met(self, found: Digest, before: Before) -> set[str]:
        """Name the sources of a micro-batch whose range of positions meets what is there already."""
        if not found.sources:
            return set()
        if not self._ranges:
            # There may be no second micro-batch, and to look for these sources alone costs less.
            there = _ranges(_places(found, before))
        else:
            if not self._knows(found):
                self._look(found, before)
            there = self._ranges
        return {one.name for one in found.sources if _meets(one, there)}

    def add(self, found: Digest) -> None:
        """Remember the places of a micro-batch, which is in the tables now."""
        if len(self._ranges) > _MOST_SOURCES:
            self._ranges, self._dates = {}, None
        self._widen((one.name, one.low, one.high) for one in found.sources)

    def _knows(self, found: Digest) -> bool:
        if self._dates is None or found.first_date is None or found.last_date is None:
            return False
        return self._dates[0] <= found.first_date and found.last_date <= self._dates[1]

    def _look(self, found: Digest, before: Before) -> None:
        dates = [day for day in (found.first_date, found.last_date, *(self._dates or ())) if day is not None]
        is_new = _on_dates(min(dates, default=None), max(dates, default=None))
        if self._dates is not None:
            is_new &= ~_on_dates(*self._dates)
        self._widen((name, low, high) for name, (low, high) in _ranges(_taken(before, is_new)).items())
        self._dates = (min(dates), max(dates)) if dates else None

    def _widen(self, more: Iterable[tuple[str, int, int]]) -> None:
        for name, low, high in more:
            known = self._ranges.get(name, (low, high))
            self._ranges[name] = min(low, known[0]), max(high, known[1])


_MOST_SOURCES = 500_000


def marked(checked: DataFrame, found: Digest, met: set[str], before: Before) -> DataFrame:
    """Add :data:`~rules.PLACE_IS_NEW` and :data:`~rules.TRANSACTION_IS_NEW` to the ``reasons`` that they apply to.

    Of the rows with one place, and of the valid rows with one id, the first is new, by source and position, unless
    the tables hold it already. A row that breaks another rule never stands in the way of one that does not.

    Args:
        checked: rows of one micro-batch with their ``reasons``.
        found: the digest of the same rows.
        met: what :meth:`Held.met` says of it.
        before: the tables as they were before these rows.
    """
    suspects = met | {one.name for one in found.sources if one.repeats}
    if suspects:
        taken = _places(found, before).where(F.col("source").isin(sorted(met)))
        checked = _without_repeated_places(checked, taken, suspects)
    return _without_repeated_ids(checked, before.silver()) if found.has_ids else checked


def _places(found: Digest, before: Before) -> DataFrame:
    """Return the places that may matter; date, source and position are compared with literals, which skips files."""
    names = [one.name for one in found.sources]
    near = F.col("source").isin(names) & F.col("position").between(
        min(one.low for one in found.sources), max(one.high for one in found.sources)
    )
    return _taken(before, _on_dates(found.first_date, found.last_date)).where(near)


def _on_dates(first: date | None, last: date | None) -> Column:
    # A row without a time has no date, and is not in silver.
    return F.col("date").between(F.lit(first), F.lit(last))


def _taken(before: Before, on_dates: Column) -> DataFrame:
    """Return the places that silver holds on some dates, and all that quarantine holds."""
    kept = before.quarantine().where(REPLAYABLE).select(source().alias("source"), position().alias("position"))
    return before.silver().where(on_dates).select("source", "position").unionAll(kept)


def _ranges(places: DataFrame) -> dict[str, tuple[int, int]]:
    rows = places.groupBy("source").agg(F.min("position").alias("low"), F.max("position").alias("high")).collect()
    return {row["source"]: (row["low"], row["high"]) for row in rows if row["source"] is not None}


def _meets(one: Source, there: dict[str, tuple[int, int]]) -> bool:
    return one.name in there and one.low <= there[one.name][1] and there[one.name][0] <= one.high


def _without_repeated_places(checked: DataFrame, taken: DataFrame, suspects: set[str]) -> DataFrame:
    place = ["_of", "_at"]
    is_suspect = source().isin(sorted(suspects))
    rows = checked.where(is_suspect).withColumns({"_of": source(), "_at": position()})
    known = taken.select(F.col("source").alias("_of"), F.col("position").alias("_at"), F.lit(True).alias("_is_there"))
    first = Window.partitionBy(*place).orderBy(F.size("reasons"), F.xxhash64("dt", "accountId", "amount", "alert"))
    judged = rows.join(known.distinct(), on=place, how="left").withColumn("_nth", F.row_number().over(first))
    told = _told(judged, F.coalesce("_is_there", F.col("_nth") > 1), rules.PLACE_IS_NEW)
    return checked.where(~is_suspect).unionByName(told.drop(*place, "_is_there", "_nth"))


def _without_repeated_ids(checked: DataFrame, silver: DataFrame) -> DataFrame:
    rows = checked.where(own_id().isNotNull()).withColumn("_id", own_id())
    known = silver.join(
        F.broadcast(rows.select("_id").distinct()), F.col("transaction_id") == F.col("_id"), "left_semi"
    )
    known = known.select(F.col("transaction_id").alias("_id"), F.lit(True).alias("_is_there")).distinct()
    is_valid = F.size("reasons") == 0
    first = Window.partitionBy("_id").orderBy(F.desc(is_valid), source(), position())
    judged = rows.join(known, on="_id", how="left").withColumns(
        {"_nth": F.row_number().over(first), "_has_valid": F.max(is_valid).over(Window.partitionBy("_id"))}
    )
    repeated = F.coalesce("_is_there", F.col("_has_valid") & (F.col("_nth") > 1))
    told = _told(judged, repeated, rules.TRANSACTION_IS_NEW).drop("_id", "_is_there", "_nth", "_has_valid")
    return checked.where(own_id().isNull()).unionByName(told)


def _told(rows: DataFrame, broken: Column, name: str) -> DataFrame:
    more = F.when(broken, F.array(F.lit(name))).otherwise(F.array().cast("array<string>"))
    return rows.withColumn("reasons", F.concat("reasons", more))
