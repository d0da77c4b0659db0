"""Feature buckets: packs rows by buckets of keys, computes the features of a bucket, and joins the rows again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.arrays import to_bytes
from fraudlake.entity import ACCOUNT
from fraudlake.features import account_features, decided, entity_features, feature_plan
from fraudlake.features.feature_expressions import FeatureExpressions
from fraudlake.features.feature_plan import HASH_OF, Plan
from fraudlake.keyed import buckets, ordering
from fraudlake.keyed.entity_key import Entity
from fraudlake.keyed.rows import ROWS
from fraudlake.times import durations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings

TILES = "tiles"
"""The name of the state of declared features, in a lake that declares any."""
TILES_ROWS = pa.schema([("entity", pa.int64()), ("part", pa.string()), ("tiles", pa.binary())])
"""The tables of :data:`entity_features.State` for a bucket's entity, as Arrow IPC streams."""
DECIDED = "decided"
"""The name of the state and of the supplement with decided transactions, for
:class:`fraudlake.features.decided.Decided`, in a lake with features that depend on fraud labels."""
FORGOTTEN = "forgotten"
_PAYLOAD = "payload BINARY"
_PARTS = "slice BIGINT, entity BIGINT, payload BINARY"
_SLICE_ROWS = 32_768
"""The number of rows whose parts are joined at once; it divides 2**33, the distance between partitions' row numbers."""
_PAYLOAD_ROWS = 100_000
_STEP_ROWS = 250_000
"""The approximate number of a bucket's rows whose features are computed at once."""


@dataclass(frozen=True)
class FeatureBuckets:
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
    """The longest look-back of features of fraud from a transaction, microseconds."""
    expressions: FeatureExpressions
    is_compressed: bool
    """Whether the payloads of whole rows are compressed, since a process collects all of them."""

    @classmethod
    def from_settings(
        cls, settings: Settings, extra: Sequence[pa.Field] = (), is_compressed: bool = False
    ) -> FeatureBuckets:
        """Return the features of a lake; ``extra`` are further columns of silver to carry along with them."""
        plans = feature_plan.plans(settings)
        fields = [*ROWS, *extra]
        for plan in plans.values():
            names = {field.name for field in fields}
            fields += [field for field in plan.needed if field.name not in names]
        expressions = FeatureExpressions.from_settings(settings)
        names = {field.name for field in fields}
        fields += [field for field in expressions.columns if field.name not in names]
        entities = [Entity(name, settings.entity_columns(name)) for name in dict.fromkeys((ACCOUNT, *plans))]
        by_number = {entity.number: entity for entity in entities}
        computed = tables.schema(account_features.computed_columns(settings))
        of_labels = [feature for feature in settings.features if feature.is_of_labels]
        look_back = durations.microseconds(entity_features.look_back(of_labels))
        schema = pa.schema(fields)
        return cls(by_number, plans, settings.buckets, schema, computed, look_back, expressions, is_compressed)

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
        return {account_features.STATE: account_features.MEMORY, **declared}

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

    def steps(self, bucket: int, state: buckets.State, rows: pa.Table) -> Iterator[tuple[pa.Table, buckets.State]]:
        """Compute a bucket's part of the features of its rows, some rows after the other, as :meth:`step` does.

        What is computed of a row is some times as large as the row, so it is passed on before the next rows' is.
        """
        for part in _in_time_order(rows):
            computed, state = self.step(bucket, state, part)
            yield computed, state

    def step(self, bucket: int, state: buckets.State, rows: pa.Table) -> tuple[pa.Table, buckets.State]:
        """Compute a bucket's part of the features of its rows, and its new state."""
        entity = self.entities[buckets.entity_of(bucket, self.bucket_count)]
        memory = state.get(account_features.STATE, account_features.MEMORY.empty_table())
        after = {}
        computed = rows
        plan = self.plans.get(entity.name)
        verdicts = state.get(DECIDED)
        if verdicts and plan is not None and plan.sees_labels:
            if any(feature.aggregate == "seconds_since_fraud" for feature in plan.features):
                verdicts = decided.with_disputed(verdicts, rows)
            # The rows see all of them: a first load may be much longer than the windows.
            after[DECIDED] = self._within_later_windows(verdicts, rows)
        elif verdicts is not None:
            after[DECIDED] = verdicts
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
            return part, {account_features.STATE: memory, **after}
        needed = {field.name for plan in self.plans.values() for field in plan.needed}
        needed -= {*ROWS.names, *(field.name for field in self.expressions.columns)}
        computed = computed.drop_columns([name for name in computed.column_names if name in needed])
        is_ordered = len(self.entities) == 1
        computed, after[account_features.STATE] = account_features.compute(memory, computed, is_ordered)
        return computed, after

    def _within_later_windows(self, verdicts: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the decided transactions of a bucket that may be in the windows of rows after these."""
        if not len(rows):
            return verdicts
        is_needed = pc.greater_equal(verdicts["time"], ordering.clock(rows) - 2 * self.look_back)
        return verdicts if pc.all(is_needed).as_py() else verdicts.filter(is_needed)

    def packed(
        self, part: pa.Table, bucket: int, select: Callable[[pa.Table], pa.Table] = lambda computed: computed
    ) -> pa.Table:
        """Return a bucket's part as payloads: rows that ``select`` chose, or slices if several entities have parts."""
        if len(self.entities) == 1:
            return self._payloads(select(self._ordered(part)))
        cut = part[buckets.NUMBER].to_numpy() // _SLICE_ROWS
        begins = np.flatnonzero(np.diff(cut, prepend=-1))
        slices = [
            to_bytes(part.slice(begin, end - begin).combine_chunks(), is_compressed=True)
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
                places_of_rows = pa.array(places[at], mask=places[at] < 0)
                for column in schema.names:
                    rows = rows.append_column(column, part[column].take(places_of_rows))
            return self._payloads(select(self._ordered(rows)))

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
            state = {**state, DECIDED: merge_decided(None if is_whole else state[DECIDED], supplements)}
        if entity.is_account and FORGOTTEN in supplements:
            accounts = _read(supplements[FORGOTTEN][0])["account"].to_pylist()
            state = {
                **state,
                account_features.STATE: buckets.without(state[account_features.STATE], "account", accounts),
            }
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
        """Add expressions to computed rows, and put the columns in order, followed by the further columns."""
        rows = self.expressions.add_to(rows)
        further = [name for name in rows.column_names if name not in self.computed.names]
        return rows.select([*self.computed.names, *further])

    def _payloads(self, computed: pa.Table) -> pa.Table:
        """Pack computed rows, since Spark would convert arrays to its rows, and back to arrays for the scorer."""
        parts = [computed.slice(begin, _PAYLOAD_ROWS) for begin in range(0, len(computed), _PAYLOAD_ROWS)]
        payloads = [to_bytes(part.combine_chunks(), self.is_compressed) for part in parts]
        return pa.table({"payload": pa.array(payloads, pa.binary())})


def _in_time_order(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in parts of a period each, within which they keep their order."""
    if len(rows) <= _STEP_ROWS:
        yield rows
        return
    time = rows["time"].to_numpy()
    begins = np.sort(time)[_STEP_ROWS::_STEP_ROWS]
    part_of = np.searchsorted(begins, time, "right")
    for part in np.unique(part_of):
        yield rows.filter(pa.array(part_of == part))


def merge_decided(old: pa.Table | None, supplements: buckets.Supplements) -> pa.Table:
    """Merge the decided transactions of a bucket's state with new ones."""
    new = [_read(payload) for payload in supplements.get(DECIDED, ())]
    new = [rows.drop_columns([name for name in (buckets.NUMBER,) if name in rows.column_names]) for rows in new]
    parts = [*([old] if old else []), *new]
    return decided.distinct(pa.concat_tables(parts).unify_dictionaries()) if parts else pa.table({})


def _tiles(state: buckets.State) -> entity_features.State:
    return {row["part"]: _read(row["tiles"]) for row in state[TILES].to_pylist()} if TILES in state else {}


def _stored(entity: int, tiles: entity_features.State) -> pa.Table:
    rows = [{"entity": entity, "part": key, "tiles": to_bytes(one, is_compressed=True)} for key, one in tiles.items()]
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
        for name in entity_features.accounts_in(row["part"], table):
            yield row["part"], table.select([name]).rename_columns(["account"])


def _read(payload: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()
