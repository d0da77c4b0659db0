"""Lake features: computes all features of a lake, of an account's history and declared, in a history or a stream."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.arrays import to_bytes
from fraudlake.entity import number
from fraudlake.feature import EVER
from fraudlake.features import account_features, decided, entity_features
from fraudlake.features.feature_buckets import DECIDED, FORGOTTEN, TILES, FeatureBuckets, merge_decided
from fraudlake.features.feature_expressions import FeatureExpressions
from fraudlake.keyed import buckets
from fraudlake.keyed.rows import ROWS
from fraudlake.silver import transactions
from fraudlake.times import durations

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings
    from fraudlake.settings.features import DeclaredFeature

_PART_ROWS = 250_000
"""The approximate number of rows whose features are computed at once in this process."""


def compute_history(
    silver: DataFrame,
    settings: Settings,
    extra: Sequence[pa.Field] = (),
    select: Callable[[pa.Table], pa.Table] = lambda computed: computed,
    decided_rows: DataFrame | None = None,
    is_compressed: bool = False,
) -> DataFrame:
    """Compute the features of a whole table, in event-time order.

    Args:
        silver: the transactions.
        settings: the settings of the lake.
        decided_rows: the decided transactions that features of fraud need, from :func:`verdicts_of`.
        extra: further columns of ``silver`` to carry along with the features.
        select: maps computed rows to the rows that are returned.
        is_compressed: whether payloads are compressed, because the caller brings all of them into its process.

    Returns:
        ``payload``: the packed rows that ``select`` returned, by default :func:`account_features.computed_columns`.
    """
    bucketed = FeatureBuckets.from_settings(settings, extra, is_compressed)

    def parts(key: tuple[int], frame: pd.DataFrame) -> pd.DataFrame:
        rows, supplements = buckets.divided([frame], bucketed.rows)
        steps = bucketed.steps(key[0], {DECIDED: merge_decided(None, supplements)}, rows)
        payloads = [bucketed.packed(computed, key[0], select) for computed, _ in steps]
        output: pd.DataFrame = pa.concat_tables(payloads).to_pandas()
        return output

    packed = bucketed.pack(silver)
    if decided_rows is not None:
        packed = packed.unionByName(decided_rows, allowMissingColumns=True)
    return bucketed.joined(packed.groupBy("bucket").applyInPandas(parts, bucketed.output), select)


def compute_table(
    silver: pa.Table,
    extra: Sequence[pa.Field],
    select: Callable[[pa.Table], pa.Table],
    schema: pa.Schema,
    settings: Settings,
    verdicts: pa.Table,
) -> pa.Table:
    """Compute the features of a whole table in this process, bit for bit as :func:`compute_history` does.

    Spark takes longer to start and to compile than to compute the features of a million rows.

    Args:
        silver: the transactions.
        extra: further columns of ``silver`` to carry along with the features.
        select: maps computed rows to the rows that are returned.
        schema: the columns that ``select`` returns.
        settings: the settings of the lake.
        verdicts: ``transaction_id, verdict, decided_at`` of the verdicts that features of fraud need.

    Returns:
        The rows that ``select`` returned, by account in the order of their ids, and by time.
    """
    declared = entity_features.compute_table(silver, settings, verdicts)
    for name in declared.column_names:
        silver = silver.append_column(name, declared[name])
    expressions = FeatureExpressions.from_settings(settings)
    extra = (*extra, *declared.schema, *expressions.columns)
    named = silver["account_id"].combine_chunks().dictionary_encode()
    account = pc.rank(named.dictionary, "ascending").to_numpy().astype(np.int64)[named.indices.to_numpy()]
    time = silver["timestamp"].cast(pa.int64())
    rows = silver.append_column("account", pa.array(account)).append_column("time", time)
    rows = rows.select([*ROWS.names, *(field.name for field in extra)])
    order = np.argsort(account, kind="stable")
    begins = np.flatnonzero(np.diff(account[order], prepend=0) != 0)
    # Parts are whole accounts. ``select`` runs on each part at once, since the text of all rows would fill the memory.
    cuts = begins[np.unique(np.searchsorted(begins, np.arange(0, len(order), _PART_ROWS), "right") - 1)]
    parts = []
    for begin, end in zip(cuts, np.append(cuts, len(order))[1:], strict=True):
        part = rows.take(pa.array(order[begin:end])).cast(pa.schema([*ROWS, *extra]))
        computed, _ = account_features.compute(account_features.MEMORY.empty_table(), part)
        parts.append(select(expressions.add_to(computed)))
    return pa.concat_tables(parts) if parts else schema.empty_table()


@dataclass(frozen=True)
class Changes:
    """How the state of a stream changes in its next micro-batch."""

    tiles: DataFrame | None = None
    """The tiles of new features, from :func:`tiles_of`."""
    verdicts: DataFrame | None = None
    """New decided transactions, from :func:`verdicts_of`."""
    forget: DataFrame | None = None
    """Accounts (``account_id``) to remove from the state. Declared features continue with ``tiles``, which do not
    contain these accounts."""
    is_whole: bool = False
    """Whether features were added or retired, or accounts are removed: then ``verdicts`` replace those of the state."""
    tiled: Collection[str] = ()
    """The entities that may have tiles in the state; ``is_whole`` removes the tiles of those without features."""
    retired: tuple[str, ...] = ()
    """The names of tables to remove from the state."""

    def __bool__(self) -> bool:
        """Tell whether anything changes."""
        return self.is_whole or self.verdicts is not None


def compute_stream(silver: DataFrame, settings: Settings, changes: Changes | None = None) -> DataFrame:
    """Compute the features of a stream, micro-batch by micro-batch; packed as :func:`compute_history` packs them.

    A row that arrives after a later transaction of its account sees the transactions before it, as far as the tiles
    distinguish them. The features of the later transaction are not recomputed.

    Args:
        silver: the transactions.
        settings: the settings of the lake.
        changes: how the state changes in the next micro-batch; with changes, the stream is for that micro-batch only.
    """
    bucketed = FeatureBuckets.from_settings(settings)
    pending = changes or Changes()
    is_forgetting = pending.forget is not None
    is_whole = pending.is_whole

    def steps(bucket: int, state: buckets.State, rows: pa.Table) -> Iterator[tuple[pa.Table, buckets.State]]:
        for computed, after in bucketed.steps(bucket, state, rows):
            yield bucketed.packed(computed, bucket), after

    def change(bucket: int, state: buckets.State, supplements: buckets.Supplements) -> buckets.State:
        return bucketed.changed(bucket, state, supplements, is_forgetting, is_whole)

    every = sorted({*bucketed.entities, *map(number, pending.tiled)}) if pending else ()
    retired = pending.retired if is_whole else ()
    processor = buckets.BucketProcessor(
        bucketed.state, bucketed.rows, steps, change if pending else buckets.unchanged, retired
    )
    packed = buckets.supplemented(bucketed.pack(silver, every), _supplements(pending, settings.buckets))
    by_bucket = packed.groupBy("bucket")
    return bucketed.joined(by_bucket.transformWithStateInPandas(processor, bucketed.output, "Append", "None"))


def _supplements(changes: Changes, bucket_count: int) -> DataFrame | None:
    """Return the input of a change, as :data:`~fraudlake.keyed.buckets.SUPPLEMENTS`."""
    frames = [frame for frame in (changes.tiles, changes.verdicts) if frame is not None]
    if changes.forget is not None:
        hashes = changes.forget.select(F.xxhash64("account_id").alias("account"))
        frames.append(buckets.for_every(hashes, FORGOTTEN, [buckets.ACCOUNT.entity], bucket_count))
    return functools.reduce(lambda some, others: some.unionByName(others), frames) if frames else None


def tiles_of(silver: DataFrame, settings: Settings) -> DataFrame:
    """Return the tiles that a stream would have after all these transactions, as supplements of each bucket.

    Raises:
        PySparkException: files of silver are deleted; they are read once here to detect that.
    """
    bucketed = FeatureBuckets.from_settings(settings)
    newest = transactions.newest(silver)
    if newest is not None:
        silver = _within_reach(silver, newest, settings.features)

    def supplements(key: tuple[int], frame: pd.DataFrame) -> pd.DataFrame:
        for _, state in bucketed.steps(key[0], {}, buckets.unpack(frame["payload"], bucketed.rows)):
            tiles = state[TILES]
        supplement = to_bytes(tiles)
        output: pd.DataFrame = pa.table({"bucket": [key[0]], "name": [TILES], "supplement": [supplement]}).to_pandas()
        return output

    return bucketed.pack(silver).groupBy("bucket").applyInPandas(supplements, buckets.SUPPLEMENTS)


def _within_reach(silver: DataFrame, newest: int, features: Collection[DeclaredFeature]) -> DataFrame:
    """Return the transactions that features of a transaction at ``newest`` (microseconds) or later may see."""
    if any(feature.window == EVER for feature in features):
        return silver
    return transactions.since(silver, newest - durations.microseconds(entity_features.look_back(features)))


def see_labels(settings: Settings) -> bool:
    """Return whether a declared feature depends on fraud labels."""
    return any(feature.is_of_labels for feature in settings.features)


def verdicts_of(
    silver: DataFrame,
    verdicts: DataFrame,
    settings: Settings,
    newest: int | None = None,
    days: Collection[date] | None = None,
) -> DataFrame | None:
    """Return the decided transactions that features of fraud need, as supplements; None if there are no such features.

    Args:
        silver: all transactions.
        verdicts: ``transaction_id, verdict, decided_at`` of all verdicts, or of new ones.
        settings: the settings of the lake.
        newest: the time (microseconds) of the newest transaction with computed features. Transactions too old for the
            windows of later ones are left out.
        days: the days of the transactions with these verdicts, so that other days of silver need not be read for them.
    """
    if not see_labels(settings):
        return None
    if newest is not None:
        silver = _within_reach(silver, newest, [feature for feature in settings.features if feature.is_of_labels])
    # A withdrawn verdict counts as not fraud.
    verdict = F.coalesce("verdict", F.lit(False)).alias("_verdict")
    columns = verdict, F.unix_micros("decided_at").alias("_decided_at")
    # A join on the date reads only the partitions of these dates.
    by_date = [name for name in ("date",) if name in verdicts.columns]
    times = verdicts.select("transaction_id", *by_date, *columns)
    of_days = silver if days is None else silver.where(F.col("date").isin([*days]))
    rows = of_days.join(times, on=["transaction_id", *by_date], how="inner")
    disputed = rows.where("label AND NOT _verdict")
    frauds = silver.where("label").join(times, on="transaction_id", how="left_anti")
    of_last = (feature.entity for feature in settings.features if feature.aggregate == "seconds_since_fraud")
    for entity in sorted({*of_last}):
        keys = disputed.select(*settings.entity_columns(entity)).distinct()
        others = frauds.join(keys, on=list(keys.columns), how="left_semi")
        rows = rows.unionByName(others, allowMissingColumns=True)
    packed = FeatureBuckets.from_settings(settings, decided.FIELDS).pack(rows)
    return packed.select("bucket", F.lit(DECIDED).alias("name"), F.col("payload").alias("supplement"))


def unpacked(payloads: DataFrame, settings: Settings) -> DataFrame:
    """Unpack the rows of payloads, with :func:`account_features.computed_columns`."""
    return payloads.mapInArrow(opened, tables.ddl(account_features.computed_columns(settings)))


def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unpack Arrow batches of payloads, as :func:`unpacked` does; unpacked batches pass through."""
    for batch in batches:
        if batch.schema.names != ["payload"]:
            yield batch
            continue
        for payload in batch.column("payload"):
            yield from pa.ipc.open_stream(payload.as_buffer())
