"""Features: computes statistics of an account's history for each of its transactions.

Training and scoring share one function, :func:`compute`. It is called once for a history, and once per micro-batch for
a stream, which passes the state (:data:`MEMORY`) from call to call. The sums are of integers (cents, millionths), so
they are exact and do not depend on how a history is split into micro-batches.

The state of an account is bounded. Its last minute is stored by the second, its last hour by the minute, its last day
by the hour, and everything before that as one sum. An account without payments for :data:`FORGET_DAYS` is forgotten.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import tables, windows
from fraudlake.detection import buckets, detector, ordering
from fraudlake.detection.rule_entity import Entity
from fraudlake.entity import ACCOUNT, number
from fraudlake.feature import OWN, Feature
from fraudlake.model import decided, entity_features
from fraudlake.model.entity_features import HASH_OF, Plan
from fraudlake.settings.features import typed
from fraudlake.silver import transactions
from fraudlake.text import durations
from fraudlake.windows import Ranks, Spans

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings

_PREDICTIONS = {column.name: column for column in tables.GOLD_FRAUD_PREDICTIONS.fields}
NAMES = tuple(feature.name for feature in OWN)
"""The features that every lake has; docs/how-to/model.md defines each."""

FORGET_DAYS = 30
"""An account without a transaction for this many days counts as new."""

_DAY = 86_400
_WINDOWS = sorted({(feature.size, feature.tiles) for feature in OWN if feature.aggregate in ("count", "sum")})
"""The length of each window's tiles in seconds, and their number; windows begin at the start of a tile."""
_SUMS = ("count", "cents", "logs", "east", "north")
"""The sums: number of transactions, cents, logarithms of the amount, and the time of day as a point on a circle."""
MEMORY = pa.schema(
    [("account", pa.int64()), ("time", pa.int64()), ("amount", pa.float64()), *((name, pa.int64()) for name in _SUMS)]
)
"""The state: an account's transactions as tiles. A tile has the time (microseconds) and amount of its last transaction,
and the sums over all of its transactions."""
STATE = "account_tiles"
"""The name of the state; checkpoints contain it."""
_COLUMNS = [
    *(_PREDICTIONS[name] for name in ("transaction_id", "account_id", "timestamp", "label")),
    *(column for column in tables.SILVER_TRANSACTIONS.fields if column.name in ("source", "position")),
    *(_PREDICTIONS[name] for name in (*NAMES, "date")),
]
COMPUTED = tables.schema(_COLUMNS)
"""The rows of :func:`compute`: a transaction, its source, and :data:`NAMES`."""
TILES = "tiles"
"""The name of the state of declared features, in a lake that declares any."""
TILES_ROWS = pa.schema([("entity", pa.int64()), ("part", pa.string()), ("tiles", pa.binary())])
"""The tables of :data:`entity_features.State` for a bucket's entity, as Arrow IPC streams."""
DECIDED = "decided"
"""The name of the state and of the supplement with decided transactions, for
:class:`fraudlake.model.decided.Decided`, in a lake with features that depend on fraud labels."""
_FORGOTTEN = "forgotten"
_PAYLOAD = "payload BINARY"
_PARTS = "slice BIGINT, entity BIGINT, payload BINARY"
_SLICE_ROWS = 32_768
"""The number of rows whose parts are joined at once; it divides 2**33, the distance between partitions' row numbers."""
_PAYLOAD_ROWS = 100_000
_PART_ROWS = 250_000
"""The approximate number of rows whose features are computed at once in this process."""


def compute(memory: pa.Table, rows: pa.Table, is_ordered: bool = True) -> tuple[pa.Table, pa.Table]:
    """Compute the features of a bucket's rows; each row sees only the rows before it.

    A row is before another if its time is earlier, or its time is the same and its ``source``, ``position`` is earlier.

    Args:
        memory: the state, :data:`MEMORY`.
        rows: the bucket's new transactions, in any order.
        is_ordered: whether to return rows in the order of account and time; otherwise they stay in the order of
            ``rows``, which is faster.

    Returns:
        :data:`COMPUTED`, with the further columns of ``rows``; and the state for the next call.
    """
    order = ordering.row_order(memory, rows, by_time=True)
    known = {name: memory[name].to_numpy() for name in MEMORY.names}
    fresh = {name: rows[name].to_numpy() for name in ("account", "time", "amount")}
    fresh |= _summands(fresh["time"], fresh["amount"])
    table = {name: np.concatenate([known[name], fresh[name]])[order] for name in MEMORY.names}
    is_new = order >= len(memory)

    begins = _begins(table, is_new)
    columns: dict[str, Any] = {name: values[is_new] for name, values in _features(table, begins).items()}
    number = order[is_new] - len(memory)
    if is_ordered:
        given = rows.take(pa.array(number))
    else:
        given, place = rows, np.empty(len(number), np.int64)
        place[number] = np.arange(len(number))
        columns = {name: values[place] for name, values in columns.items()}
    columns |= {name: given[name] for name in ("transaction_id", "account_id", "label", "source", "position")}
    columns["timestamp"] = given["time"].cast(COMPUTED.field("timestamp").type)
    columns["date"] = columns["timestamp"].cast(pa.date32())
    computed = pa.table({name: columns[name] for name in COMPUTED.names}).cast(COMPUTED)
    for name in given.column_names:
        if name not in detector.ROWS.names:
            computed = computed.append_column(name, given[name])
    oldest = ordering.clock(rows) - detector.microseconds(FORGET_DAYS * _DAY) if len(rows) else None
    return computed, _remembered(table, begins, oldest)


def _summands(time: NDArray[Any], amount: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    """Return the contribution of each transaction to each of the sums."""
    cents = np.clip(amount, -windows.LARGEST, windows.LARGEST) * 100
    angle = time % detector.microseconds(_DAY) / detector.microseconds(_DAY) * 2 * np.pi
    return {
        "count": np.ones(len(time), np.int64),
        "cents": windows.units(amount, 100),
        "logs": windows.units(np.log(np.maximum(cents, 1) / 100), 1_000_000),
        "east": windows.units(np.cos(angle), 1_000_000),
        "north": windows.units(np.sin(angle), 1_000_000),
    }


def _begins(table: dict[str, NDArray[Any]], is_new: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows at which an account begins, or returns after it was forgotten."""
    is_other_account = np.diff(table["account"], prepend=0) != 0
    is_other_account[:1] = True
    away = np.diff(table["time"], prepend=0) > detector.microseconds(FORGET_DAYS * _DAY)
    begins: NDArray[np.bool_] = is_other_account | (away & is_new)
    return begins


def _features(table: dict[str, NDArray[Any]], begins: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Compute :data:`NAMES` of transactions that are sorted by account and time."""
    time, amount = table["time"], table["amount"]
    gap = np.diff(time, prepend=0) / 1e6
    first = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    row = np.arange(len(begins))
    second, run = time // 1_000_000, np.cumsum(begins)
    ranks = Ranks(second)
    rank = ranks.of(run, second)
    spans = {}
    for size, tiles in _WINDOWS:
        opens = (second // size - tiles + 1) * size
        spans[size, tiles] = Spans(np.searchsorted(rank, ranks.of(run, opens)), row)
    # The usual value is the mean of all transactions so far with the current one, so an account's first one is usual.
    own, so_far = _summands(time, amount), Spans(first, row)
    usual = {name: windows.total(table[name], so_far) + own[name] for name in ("count", "logs", "east", "north")}

    def values(feature: Feature) -> Any:
        within = 0.0 if feature.window is None else feature.window.total_seconds()
        follows = ~begins & (gap <= within)
        span = spans.get((feature.size, feature.tiles), so_far)
        match feature.aggregate:
            case "value":
                return table[str(feature.column)]
            case "hour":
                return time // detector.microseconds(3600) % 24
            case "last":
                return np.where(follows, np.roll(table[str(feature.column)], 1), 0.0)
            case "seconds_since_last":
                return np.where(follows, gap, within)
            case "count":
                return windows.total(table["count"], span)
            case "sum":
                return windows.total(table["cents"], span) / 100
            case "ratio_to_usual":
                return np.exp((own["logs"] - usual["logs"] / usual["count"]) / 1e6)
            case "hours_to_usual":
                turn = np.arctan2(own["north"], own["east"]) - np.arctan2(usual["north"], usual["east"])
                return np.abs((turn + np.pi) % (2 * np.pi) - np.pi) * 12 / np.pi
        raise LookupError(f"nothing here computes {feature.aggregate}, the aggregate of {feature.name}")

    return {feature.name: values(feature) for feature in OWN}


def _remembered(table: dict[str, NDArray[Any]], begins: NDArray[np.bool_], oldest: int | None) -> pa.Table:
    """Merge tiles that the next transaction cannot tell apart; forget accounts last seen before ``oldest``."""
    account = table["account"]
    is_last = np.diff(account, append=0) != 0
    is_last[-1:] = True
    lasts = np.flatnonzero(is_last)
    last = lasts[np.cumsum(is_last) - is_last]
    begun = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    is_remembered = begun == begun[last]
    if oldest is not None:
        is_remembered &= table["time"][last] >= oldest

    second = table["time"] // 1_000_000
    # Length of the tile of a row; 0: the sum of everything before the last day.
    length = np.zeros(len(account), np.int64)
    for size, tiles in reversed(_WINDOWS):
        length[second >= (second[last] // size - tiles + 1) * size] = size
    tile = second // np.maximum(length, 1) * (length > 0)
    at = np.flatnonzero(is_remembered)
    if not len(at):
        return MEMORY.empty_table()
    opens = np.any([np.diff(key[at], prepend=key[at[0]] - 1) != 0 for key in (account, length, tile)], axis=0)
    start = np.flatnonzero(opens)
    end = at[np.append(start[1:], len(at)) - 1]
    merged = {name: table[name][end] for name in ("account", "time", "amount")}
    merged |= {name: np.add.reduceat(table[name][at], start) for name in _SUMS}
    return pa.table([merged[name] for name in MEMORY.names], schema=MEMORY)


def names(settings: Settings) -> tuple[str, ...]:
    """Return the names of a lake's features, both built in and declared."""
    return (*NAMES, *(feature.name for feature in settings.features))


def computed_columns(settings: Settings) -> list[tables.Column]:
    """Return the columns of :func:`unpacked`: those of :data:`COMPUTED`, and the declared features."""
    declared = typed(settings.features, settings.columns)
    return [*_COLUMNS, *(tables.Column(feature.name, type_, feature.meaning) for feature, type_ in declared)]


def of_history(
    silver: DataFrame,
    settings: Settings,
    extra: Sequence[pa.Field] = (),
    select: Callable[[pa.Table], pa.Table] = lambda computed: computed,
    decided_rows: DataFrame | None = None,
) -> DataFrame:
    """Compute the features of a whole table, in event-time order.

    Args:
        silver: the transactions.
        settings: the settings of the lake.
        decided_rows: the decided transactions that features of fraud need, from :func:`verdicts_of`.
        extra: further columns of ``silver`` to carry along with the features.
        select: maps computed rows to the rows that are returned.

    Returns:
        ``payload``: the packed rows that ``select`` returned, by default :func:`computed_columns`.
    """
    declared = _Declared.of(settings, extra)

    def parts(key: tuple[int], frame: pd.DataFrame) -> pd.DataFrame:
        rows, supplements = buckets.divided([frame], declared.rows)
        computed, _ = declared.step(key[0], {DECIDED: _merged(None, supplements)}, rows)
        output: pd.DataFrame = declared.packed(computed, key[0], select).to_pandas()
        return output

    packed = declared.pack(silver)
    if decided_rows is not None:
        packed = packed.unionByName(decided_rows, allowMissingColumns=True)
    return declared.joined(packed.groupBy("bucket").applyInPandas(parts, declared.output), select)


def of_table(
    silver: pa.Table,
    extra: Sequence[pa.Field],
    select: Callable[[pa.Table], pa.Table],
    schema: pa.Schema,
    settings: Settings,
    verdicts: pa.Table,
) -> pa.Table:
    """Compute the features of a whole table in this process; the result equals that of :func:`of_history` bit for bit.

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
    declared = entity_features.of_table(silver, settings, verdicts)
    for name in declared.column_names:
        silver = silver.append_column(name, declared[name])
    extra = (*extra, *declared.schema)
    named = silver["account_id"].combine_chunks().dictionary_encode()
    account = pc.rank(named.dictionary, "ascending").to_numpy().astype(np.int64)[named.indices.to_numpy()]
    time = silver["timestamp"].cast(pa.int64())
    rows = silver.append_column("account", pa.array(account)).append_column("time", time)
    rows = rows.select([*detector.ROWS.names, *(field.name for field in extra)])
    order = np.argsort(account, kind="stable")
    begins = np.flatnonzero(np.diff(account[order], prepend=0) != 0)
    # Parts are whole accounts. ``select`` runs on each part at once, since the text of all rows would fill the memory.
    cuts = begins[np.unique(np.searchsorted(begins, np.arange(0, len(order), _PART_ROWS), "right") - 1)]
    parts = []
    for begin, end in zip(cuts, np.append(cuts, len(order))[1:], strict=True):
        part = rows.take(pa.array(order[begin:end])).cast(pa.schema([*detector.ROWS, *extra]))
        computed, _ = compute(MEMORY.empty_table(), part)
        parts.append(select(computed))
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


def of_stream(silver: DataFrame, settings: Settings, changes: Changes | None = None) -> DataFrame:
    """Compute the features of a stream, micro-batch by micro-batch; packed as :func:`of_history` packs them.

    A row that arrives after a later transaction of its account sees the transactions before it, as far as the tiles
    distinguish them. The features of the later transaction are not recomputed.

    Args:
        silver: the transactions.
        settings: the settings of the lake.
        changes: how the state changes in the next micro-batch; with changes, the stream is for that micro-batch only.
    """
    declared, given = _Declared.of(settings), changes or Changes()
    is_forgetting, is_whole = given.forget is not None, given.is_whole

    def step(bucket: int, state: buckets.State, rows: pa.Table) -> tuple[pa.Table, buckets.State]:
        computed, after = declared.step(bucket, state, rows)
        return declared.packed(computed, bucket), after

    def change(bucket: int, state: buckets.State, supplements: buckets.Supplements) -> buckets.State:
        return declared.changed(bucket, state, supplements, is_forgetting, is_whole)

    every = sorted({*declared.entities, *map(number, given.tiled)}) if given else ()
    retired = given.retired if is_whole else ()
    processor = buckets.BucketProcessor(
        declared.state, declared.rows, step, change if given else buckets.unchanged, retired
    )
    packed = buckets.supplemented(declared.pack(silver, every), _supplements(given, settings.buckets))
    by_bucket = packed.groupBy("bucket")
    return declared.joined(by_bucket.transformWithStateInPandas(processor, declared.output, "Append", "None"))


def _supplements(given: Changes, bucket_count: int) -> DataFrame | None:
    """Return the input of a change, as :data:`~fraudlake.detection.buckets.SUPPLEMENTS`."""
    frames = [frame for frame in (given.tiles, given.verdicts) if frame is not None]
    if given.forget is not None:
        hashes = given.forget.select(F.xxhash64("account_id").alias("account"))
        frames.append(buckets.for_every(hashes, _FORGOTTEN, [buckets.ACCOUNT.entity], bucket_count))
    return functools.reduce(lambda some, others: some.unionByName(others), frames) if frames else None


def tiles_of(silver: DataFrame, settings: Settings) -> DataFrame:
    """Return the tiles that a stream would have after all these transactions, as supplements of each bucket.

    Raises:
        PySparkException: files of silver are deleted; they are read once here to detect that.
    """
    declared = _Declared.of(settings)
    newest = transactions.newest(silver)
    if newest is not None:
        silver = transactions.since(silver, newest - durations.microseconds(entity_features.look_back(settings)))

    def tiles(key: tuple[int], frame: pd.DataFrame) -> pd.DataFrame:
        _, state = declared.step(key[0], {}, buckets.unpack(frame["payload"], declared.rows))
        supplement = buckets.to_bytes(state[TILES])
        output: pd.DataFrame = pa.table({"bucket": [key[0]], "name": [TILES], "supplement": [supplement]}).to_pandas()
        return output

    return declared.pack(silver).groupBy("bucket").applyInPandas(tiles, buckets.SUPPLEMENTS)


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
        silver = transactions.since(silver, newest - durations.microseconds(entity_features.look_back(settings)))
    # A withdrawn verdict counts as not fraud.
    verdict = F.coalesce("verdict", F.lit(False)).alias("_verdict")
    given = verdict, F.unix_micros("decided_at").alias("_decided_at")
    # A join on the date reads only the partitions of these dates.
    by_date = [name for name in ("date",) if name in verdicts.columns]
    times = verdicts.select("transaction_id", *by_date, *given)
    of_days = silver if days is None else silver.where(F.col("date").isin([*days]))
    rows = of_days.join(times, on=["transaction_id", *by_date], how="inner")
    disputed = rows.where("label AND NOT _verdict")
    frauds = silver.where("label").join(times, on="transaction_id", how="left_anti")
    of_last = (feature.entity for feature in settings.features if feature.aggregate == "seconds_since_fraud")
    for entity in sorted({*of_last}):
        keys = disputed.select(*settings.entity_columns(entity)).distinct()
        others = frauds.join(keys, on=list(keys.columns), how="left_semi")
        rows = rows.unionByName(others, allowMissingColumns=True)
    packed = _Declared.of(settings, decided.FIELDS).pack(rows)
    return packed.select("bucket", F.lit(DECIDED).alias("name"), F.col("payload").alias("supplement"))


def unpacked(payloads: DataFrame, settings: Settings) -> DataFrame:
    """Unpack the rows of payloads, with :func:`computed_columns`."""
    return payloads.mapInArrow(opened, tables.ddl(computed_columns(settings)))


def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unpack Arrow batches of payloads into batches of :func:`computed_columns`; unpacked batches pass through."""
    for batch in batches:
        if batch.schema.names != ["payload"]:
            yield batch
            continue
        for payload in batch.column("payload"):
            yield from pa.ipc.open_stream(payload.as_buffer())


@dataclass(frozen=True)
class _Declared:
    """The features of a lake by entity, and how rows are packed for them.

    If another entity than the account has features, rows are numbered, and packed once for each entity. One exchange
    joins the parts of a row again, by slices of some thousand rows.
    """

    entities: Mapping[int, Entity]
    """The entities by their numbers; the account is always among them."""
    plans: Mapping[str, Plan]
    bucket_count: int
    fields: pa.Schema
    """The columns of the packed rows, without their numbers."""
    computed: pa.Schema
    """The columns of computed rows, without further columns."""
    look_back: int
    """The longest look-back of the features from a transaction, microseconds."""

    @classmethod
    def of(cls, settings: Settings, extra: Sequence[pa.Field] = ()) -> _Declared:
        plans = entity_features.plans(settings)
        fields = [*detector.ROWS, *extra]
        for plan in plans.values():
            known = {field.name for field in fields}
            fields += [field for field in plan.needed if field.name not in known]
        entities = [Entity(name, settings.entity_columns(name)) for name in dict.fromkeys((ACCOUNT, *plans))]
        by_number = {entity.number: entity for entity in entities}
        computed = tables.schema(computed_columns(settings))
        look_back = durations.microseconds(entity_features.look_back(settings))
        return cls(by_number, plans, settings.buckets, pa.schema(fields), computed, look_back)

    @property
    def rows(self) -> pa.Schema:
        """The packed rows."""
        return self.fields.append(pa.field(buckets.NUMBER, pa.int64())) if len(self.entities) > 1 else self.fields

    @property
    def state(self) -> dict[str, pa.Schema]:
        """The tables of a bucket's state."""
        declared = {TILES: TILES_ROWS} if self.plans else {}
        if any(plan.sees_labels for plan in self.plans.values()):
            declared[DECIDED] = pa.schema([*self.fields, *decided.FIELDS])
        return {STATE: MEMORY, **declared}

    @property
    def output(self) -> str:
        """The columns of :meth:`packed`."""
        return _PARTS if len(self.entities) > 1 else _PAYLOAD

    def pack(self, silver: DataFrame, every: Collection[int] = ()) -> DataFrame:
        """Pack transactions by bucket."""
        added = {"account": F.xxhash64("account_id"), "time": F.unix_micros("timestamp")}
        others = (entity for entity in self.entities.values() if not entity.is_account)
        added |= {entity.key.column: buckets.key_hash(entity.columns) for entity in others}
        keys = [entity.key for entity in self.entities.values()]
        for name in self.fields.names:
            if name.startswith(HASH_OF):
                added[name] = buckets.key_hash([name.removeprefix(HASH_OF)])
        return buckets.pack(silver.withColumns(added), self.fields, self.bucket_count, every, keys, len(keys) > 1)

    def step(self, bucket: int, state: buckets.State, rows: pa.Table) -> tuple[pa.Table, buckets.State]:
        """Compute a bucket's part of the features of its rows, and its new state."""
        entity = self.entities[buckets.entity_of(bucket, self.bucket_count)]
        memory, after = state.get(STATE, MEMORY.empty_table()), {}
        computed, plan = rows, self.plans.get(entity.name)
        verdicts = state.get(DECIDED)
        if verdicts is not None:
            verdicts = after[DECIDED] = self._decided(verdicts, rows, plan)
        if plan is not None:
            # Only transactions of the same key see a verdict.
            of_keys = verdicts and verdicts.filter(pc.is_in(verdicts["account"], rows["account"]))
            declared, tiles = entity_features.compute(_tiles(state), rows, plan, of_keys)
            after[TILES] = _stored(entity.number, tiles)
            for name in declared.column_names:
                computed = computed.append_column(name, declared[name])
        elif self.plans:
            after[TILES] = TILES_ROWS.empty_table()
        if not entity.is_account:
            part = computed.select([buckets.NUMBER, *self.plans[entity.name].names])
            return part, {STATE: memory, **after}
        needed = {field.name for plan in self.plans.values() for field in plan.needed} - {*detector.ROWS.names}
        computed = computed.drop_columns([name for name in computed.column_names if name in needed])
        computed, after[STATE] = compute(memory, computed, is_ordered=len(self.entities) == 1)
        return computed, after

    def _decided(self, verdicts: pa.Table, rows: pa.Table, plan: Plan | None) -> pa.Table:
        """Return the decided transactions of a bucket that may be in the windows of its rows, or of later rows."""
        if not len(verdicts) or plan is None or not plan.sees_labels:
            return verdicts
        if any(feature.aggregate == "seconds_since_fraud" for feature in plan.features):
            verdicts = decided.with_disputed(verdicts, rows)
        is_needed = pc.greater_equal(verdicts["time"], ordering.clock(rows) - 2 * self.look_back)
        return verdicts if pc.all(is_needed).as_py() else verdicts.filter(is_needed)

    def packed(
        self, part: pa.Table, bucket: int, select: Callable[[pa.Table], pa.Table] = lambda computed: computed
    ) -> pa.Table:
        """Return a bucket's part as payloads: rows that ``select`` chose, or slices if several entities have parts."""
        if len(self.entities) == 1:
            return _payloads(select(self._ordered(part)))
        cut = part[buckets.NUMBER].to_numpy() // _SLICE_ROWS
        begins = np.flatnonzero(np.diff(cut, prepend=-1))
        slices = [
            buckets.to_bytes(part.slice(begin, end - begin).combine_chunks(), is_compressed=True)
            for begin, end in zip(begins, np.append(begins[1:], len(part)), strict=True)
        ]
        entity = np.full(len(begins), buckets.entity_of(bucket, self.bucket_count))
        return pa.table({"slice": cut[begins], "entity": entity, "payload": pa.array(slices, pa.binary())})

    def joined(
        self, packed: DataFrame, select: Callable[[pa.Table], pa.Table] = lambda computed: computed
    ) -> DataFrame:
        """Join the payloads of parts to payloads of whole rows."""
        if len(self.entities) == 1:
            return packed

        def join(packed: pa.Table) -> pa.Table:
            parts: dict[int, list[pa.Table]] = {}
            for part_of, payload in zip(packed["entity"].to_pylist(), packed["payload"], strict=True):
                parts.setdefault(part_of, []).append(_read(payload.as_buffer()))
            # Parts arrive in any order, but the result must not depend on it.
            rows = pa.concat_tables(sorted(parts[0], key=lambda part: part[buckets.NUMBER][0].as_py()))
            at = rows[buckets.NUMBER].to_numpy() % _SLICE_ROWS
            rows = rows.drop_columns(buckets.NUMBER)
            for entity in self.entities.values():
                if entity.is_account:
                    continue
                schema = self.plans[entity.name].schema()
                nothing = pa.schema([(buckets.NUMBER, pa.int64()), *schema]).empty_table()
                part = pa.concat_tables(parts.get(entity.number, [nothing])).combine_chunks()
                places = np.full(_SLICE_ROWS, -1)
                places[part[buckets.NUMBER].to_numpy() % _SLICE_ROWS] = np.arange(len(part))
                found = pa.array(places[at], mask=places[at] < 0)
                for column in schema.names:
                    rows = rows.append_column(column, part[column].take(found))
            return _payloads(select(self._ordered(rows)))

        return packed.groupBy("slice").applyInArrow(join, _PAYLOAD)

    def changed(
        self,
        bucket: int,
        state: buckets.State,
        supplements: buckets.Supplements,
        is_forgetting: bool,
        is_whole: bool,
    ) -> buckets.State:
        """Apply changes to a bucket's state: forgotten accounts, tiles of new features, and new verdicts."""
        entity = self.entities.get(buckets.entity_of(bucket, self.bucket_count))
        if entity is None:
            return buckets.empty(state)
        if DECIDED in state and (is_whole or DECIDED in supplements):
            state = {**state, DECIDED: _merged(None if is_whole else state[DECIDED], supplements)}
        if entity.is_account and _FORGOTTEN in supplements:
            accounts = _read(supplements[_FORGOTTEN][0])["account"].to_pylist()
            state = {**state, STATE: buckets.without(state[STATE], "account", accounts)}
        plan = self.plans.get(entity.name)
        if plan is None:
            return {**state, TILES: TILES_ROWS.empty_table()} if self.plans and is_whole else state
        if not (is_forgetting or TILES in supplements):
            return state
        tiles = _tiles(state)
        history = _tiles({TILES: _read(supplements[TILES][0])}) if TILES in supplements else {}
        if is_forgetting:
            tiles = history
        elif entity_features.lacks(tiles, plan):
            tiles = entity_features.warmed(tiles, history)
        return {**state, TILES: _stored(entity.number, tiles)}

    def _ordered(self, rows: pa.Table) -> pa.Table:
        """Put the columns of computed rows in order, followed by the further columns."""
        further = [name for name in rows.column_names if name not in self.computed.names]
        return rows.select([*self.computed.names, *further])


def _merged(known: pa.Table | None, supplements: buckets.Supplements) -> pa.Table:
    """Merge the decided transactions of a bucket's state with new ones."""
    new = [_read(payload) for payload in supplements.get(DECIDED, ())]
    new = [rows.drop_columns([name for name in (buckets.NUMBER,) if name in rows.column_names]) for rows in new]
    parts = [*([known] if known else []), *new]
    return decided.distinct(pa.concat_tables(parts).unify_dictionaries()) if parts else pa.table({})


def _tiles(state: buckets.State) -> entity_features.State:
    return {row["part"]: _read(row["tiles"]) for row in state[TILES].to_pylist()} if TILES in state else {}


def _stored(entity: int, tiles: entity_features.State) -> pa.Table:
    rows = [
        {"entity": entity, "part": key, "tiles": buckets.to_bytes(one, is_compressed=True)}
        for key, one in tiles.items()
    ]
    return pa.Table.from_pylist(rows, TILES_ROWS)


def tiles_in(stored: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Return the tables of a state, :data:`TILES_ROWS`, with the numbers of their entities."""
    for row in stored.to_pylist():
        yield row["entity"], _read(row["tiles"])


def hashes_in(tiles: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Return the hashes of accounts (``account``) in a state, :data:`TILES_ROWS`, by the name of the table."""
    for row in tiles.to_pylist():
        table = _read(row["tiles"])
        if row["entity"] == 0:
            yield row["part"], table.select(["account"])
        if entity_features.has_accounts(row["part"]):
            yield row["part"], table.select(["value"]).rename_columns(["account"])


def _read(payload: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()


def _payloads(computed: pa.Table) -> pa.Table:
    """Pack computed rows, since Spark would convert arrays to its rows, and back to arrays for the scorer."""
    parts = [computed.slice(begin, _PAYLOAD_ROWS) for begin in range(0, len(computed), _PAYLOAD_ROWS)]
    payloads = [buckets.to_bytes(part.combine_chunks()) for part in parts]
    return pa.table({"payload": pa.array(payloads, pa.binary())})
