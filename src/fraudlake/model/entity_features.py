"""Entity features: computes the declared features, statistics of an entity's transactions before each transaction.

Training and scoring share one function, :func:`compute`, as in :mod:`fraudlake.model.features`. The state of a key
(such as a terminal) consists of tiles: what a second, a minute, ten minutes, an hour or a day adds to the statistics.
Sums are sums of integers, so they do not depend on how a history is split into micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fraudlake import windows
from fraudlake.arrays import Vector, codes_of, keyed, vector_of
from fraudlake.detection import ordering
from fraudlake.model import decided as known
from fraudlake.model.decided import Decided
from fraudlake.rules.columns import TIME, query_columns
from fraudlake.settings.features import DeclaredFeature, condition
from fraudlake.text import durations
from fraudlake.tiles import KEY, NEUTRAL, NEVER, Line, Window
from fraudlake.windows import Spans
from fraudlake_patterns.values import Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.settings import Settings

MOST_DISTINCT = 1_000
"""The largest count of ``distinct``, and of the values that a tile stores."""
_UNITS = 10_000
"""Columns of type double are summed in ten-thousandths."""
_LARGEST_INTEGER = 10_000_000_000_000
_PLACE = ("timestamp", "source", "position", "label")
_TILES = b"tiles"
"""The metadata key for the number of tiles in the windows of a table of the state."""
HASH_OF = "hash_of_"
"""The prefix of a column with 64-bit hashes of another column's values."""

State = dict[str, pa.Table]
"""The state of a bucket: tiles by their length in seconds, and distinct values of tiles by length and measure. Each
table has ``account`` (the 64-bit hash of the key) and ``tile`` (its number since 1970), and is sorted by them."""


class _Measure(NamedTuple):
    """A statistic that tiles store, of the transactions that a condition selects."""

    statistic: Literal["count", "sum", "min", "max", "last", "values"]
    column: str | None
    where: str | None
    labels: Literal["", "known", "fraud", "aged", "charged"] = ""
    """``known``: rows with a label; ``fraud``: rows with the label fraud; both by Flink's label. ``aged`` and
    ``charged`` are the same for chargebacks, so that the two states are never confused."""

    @property
    def name(self) -> str:
        """Its name in the state."""
        return " ".join(part for part in (self.statistic, self.labels, self.column, self.where) if part)


@dataclass(frozen=True)
class Plan:
    """The features of one entity, and the settings that they depend on."""

    features: tuple[DeclaredFeature, ...]
    columns: Mapping[str, Any]
    label_delay: timedelta = timedelta(0)
    """How long after its transaction a label other than a verdict is known."""
    are_chargebacks: bool = False
    """Whether that label is always "genuine" instead of Flink's label."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(feature.name for feature in self.features)

    @property
    def sees_labels(self) -> bool:
        """Whether a feature depends on fraud labels."""
        return any(feature.is_of_labels for feature in self.features)

    @cached_property
    def needed(self) -> tuple[pa.Field, ...]:
        """The columns of silver that the features need, and the columns of hashes for distinct values."""
        known = {column.name: column.type.name for column in query_columns(self.columns).values()}
        types = {"STRING": pa.string(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_(), "DOUBLE": pa.float64()}
        types["TIMESTAMP"] = pa.timestamp("us", tz="UTC")
        plain: set[str] = set()
        hashed: set[str] = set()
        for feature in self.features:
            if feature.column is not None:
                (hashed if feature.aggregate == "distinct" else plain).add(self.column_of(feature))
            if feature.where is not None:
                plain |= self.conditions[feature.where].columns
        fields = [pa.field(name, types[known[name]]) for name in sorted(plain - {TIME})]
        return (*fields, *(pa.field(f"{HASH_OF}{name}", pa.int64()) for name in sorted(hashed)))

    @cached_property
    def conditions(self) -> dict[str, Any]:
        """The compiled conditions, by their text."""
        return {f.where: condition(f, self.columns) for f in self.features if f.where is not None}

    def column_of(self, feature: DeclaredFeature) -> str:
        """Return the name of a feature's column in silver."""
        return query_columns(self.columns)[str(feature.column)].name

    def schema(self) -> pa.Schema:
        """Return the features as columns: texts for the values of text columns, otherwise numbers."""
        return pa.schema(
            [(feature.name, pa.string() if self.is_text(feature) else pa.float64()) for feature in self.features]
        )

    def is_text(self, feature: DeclaredFeature) -> bool:
        """Return whether a feature is a text."""
        is_value = feature.aggregate == "value"
        return is_value and query_columns(self.columns)[str(feature.column)].type.name == "STRING"

    def measures(self, feature: DeclaredFeature) -> tuple[_Measure, ...]:
        """Return the measures from which a feature is computed."""
        column = None if feature.column is None else self.column_of(feature)
        where = feature.where
        aggregate = feature.aggregate
        known, fraud = self._labels
        match aggregate:
            case "count":
                return (_Measure("count", column, where),)
            case "sum" | "min" | "max":
                return (_Measure(aggregate, column, where),)
            case "mean" | "ratio_to_mean":
                return (_Measure("sum", column, where), _Measure("count", column, where))
            case "distinct":
                return (_Measure("values", column, where),)
            case "seconds_since_last":
                return (_Measure("last", None, where),)
            case "fraud_count":
                return (_Measure("count", None, where, fraud),)
            case "fraud_share":
                return (_Measure("count", None, where, fraud), _Measure("count", None, where, known))
            case "seconds_since_fraud":
                return (_Measure("last", None, where, fraud),)
            case "value":
                return ()

    @property
    def _labels(self) -> tuple[Literal["known", "aged"], Literal["fraud", "charged"]]:
        return ("aged", "charged") if self.are_chargebacks else ("known", "fraud")


def compute(state: State, rows: pa.Table, plan: Plan, decided: pa.Table | None = None) -> tuple[pa.Table, State]:
    """Compute the features of a bucket's rows; each row sees only the rows of its key before it.

    A row is before another if its time is earlier, or its time is the same and its ``source``, ``position`` is earlier.

    Args:
        state: the state.
        rows: the bucket's new transactions, in any order: ``account`` (the hash of the entity's key), ``time``
            (microseconds), ``source``, ``position``, ``label``, and :attr:`Plan.needed`.
        plan: the features.
        decided: transactions with verdicts, of any keys: ``transaction_id``, the columns of ``rows``, and
            :data:`fraudlake.model.decided.FIELDS`. They may be among the rows, too.

    Returns:
        A column for each feature, in the order of ``rows``, null if nothing is known; and the state for the next call.
    """
    if plan.are_chargebacks:
        rows = _genuine(rows)
        decided = None if decided is None else _genuine(decided)
    order = ordering.row_order(rows.slice(0, 0), rows, by_time=True)
    account, time = (rows[name].to_numpy()[order] for name in ("account", "time"))
    given = _Rows(rows, order, plan)
    verdicts = _Verdicts(decided, account, time, plan) if decided is not None and len(decided) else None
    clock = ordering.clock(rows) if len(rows) else None
    computed: dict[str, NDArray[Any]] = {}
    after: State = {}
    for size in sorted({feature.size for feature in plan.features if feature.aggregate != "value"}):
        of_size = [feature for feature in plan.features if feature.aggregate != "value" and feature.size == size]
        measures = dict.fromkeys(measure for feature in of_size for measure in plan.measures(feature))
        length = max(feature.tiles for feature in of_size)
        oldest = None if clock is None else clock // (size * 1_000_000) - length
        metadata = {_TILES: str(length)}
        tiled = [measure for measure in measures if measure.statistic != "values"]
        if tiled:
            seen = state.get(str(size))
            line = Line(account, time, size, seen)
            merged = {measure: line.merged(_seen(seen, measure), given.contribution(measure)) for measure in tiled}
            for feature in of_size:
                if feature.aggregate != "distinct":
                    parts = [(measure, merged[measure]) for measure in plan.measures(feature)]
                    computed[feature.name] = _figure(feature, line, _window(feature, plan), parts, given, verdicts)
            stored = {measure.name: (measure.statistic, values) for measure, values in merged.items()}
            after[str(size)] = line.tiles(stored, oldest).replace_schema_metadata(metadata)
        for measure in measures:
            if measure.statistic == "values":
                key = f"{size} {measure.name}"
                seen = state.get(key)
                line = Line(account, time, size, seen)
                values, is_counted = given.values(measure)
                values = line.merged(_seen_values(seen), values)
                is_counted = line.merged(np.ones(line.seen, bool), is_counted)
                for feature in of_size:
                    if plan.measures(feature) == (measure,):
                        counts = windows.distinct(values, is_counted, line.spans(_window(feature, plan)))
                        computed[feature.name] = np.minimum(counts, MOST_DISTINCT).astype(np.float64)
                after[key] = line.values(values, is_counted, oldest, MOST_DISTINCT).replace_schema_metadata(metadata)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    columns = [
        given.own(feature) if feature.aggregate == "value" else _nullable(computed[feature.name][back])
        for feature in plan.features
    ]
    return pa.table(columns, schema=plan.schema()), after


def _genuine(rows: pa.Table) -> pa.Table:
    """Set the label of all rows to "genuine"."""
    label = pa.repeat(pa.scalar(False), len(rows))
    return rows.set_column(rows.column_names.index("label"), "label", label)


def warmed(state: State, history: State) -> State:
    """Complete a state from the state at the end of a history."""
    result = dict(state)
    for key, tiles in history.items():
        known = state.get(key)
        lacking = [] if known is None else [name for name in tiles.column_names if name not in known.column_names]
        if known is None or _length(known) < _length(tiles):
            result[key] = tiles
        elif lacking:
            joined = known.join(tiles.select([*KEY, *lacking]), list(KEY), join_type="full outer")
            neutral = {name: NEUTRAL[name.split(" ")[0]] for name in joined.column_names if name not in KEY}
            filled = [joined[name].fill_null(pa.scalar(neutral[name], joined[name].type)) for name in neutral]
            whole = pa.table([*(joined[name] for name in KEY), *filled], names=[*KEY, *neutral])
            ordered = whole.sort_by([(name, "ascending") for name in KEY])
            result[key] = ordered.replace_schema_metadata(known.schema.metadata)
    return result


def lacks(state: State, plan: Plan) -> bool:
    """Return whether a state lacks a feature, or has fewer tiles than its window needs."""
    for feature in plan.features:
        for measure in plan.measures(feature):
            is_value = measure.statistic == "values"
            tiles = state.get(f"{feature.size} {measure.name}" if is_value else str(feature.size))
            if tiles is None or _length(tiles) < feature.tiles:
                return True
            if not is_value and measure.name not in tiles.column_names:
                return True
    return False


def look_back(settings: Settings) -> timedelta:
    """Return the longest look-back of the declared features from a transaction."""
    tiles = ((feature.tiles + 1) * timedelta(seconds=feature.size) for feature in settings.features)
    return max(tiles, default=timedelta(0))


def _length(tiles: pa.Table) -> int:
    """Return the number of tiles in the windows of a table of the state."""
    return int((tiles.schema.metadata or {}).get(_TILES, 0))


class _Rows:
    """New rows, in the order of their keys and times, and their contributions to tiles."""

    def __init__(self, rows: pa.Table, order: NDArray[np.int64], plan: Plan) -> None:
        self._rows = rows
        self._order = order
        self._plan = plan
        self._masks: dict[tuple[str | None, str], NDArray[np.bool_]] = {}
        self._numbers: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]] = {}

    def contribution(self, measure: _Measure) -> NDArray[Any]:
        """Return what each row adds to a measure."""
        chosen = self.chosen(measure.where, measure.labels)
        if measure.statistic == "last":
            return np.where(chosen, self._rows["time"].to_numpy()[self._order], NEVER)
        if measure.statistic == "count":
            if measure.column is not None:
                chosen = chosen & self._is_there(measure.column)
            return chosen.astype(np.int64)
        numbers, is_there = self.numbers(str(measure.column))
        chosen = chosen & is_there
        if measure.statistic == "sum":
            return np.where(chosen, self._units(str(measure.column)), 0)
        return np.where(chosen, numbers, NEUTRAL[measure.statistic])

    def values(self, measure: _Measure) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the hashes of a column's values, and which rows count."""
        vector = vector_of(self._rows[f"{HASH_OF}{measure.column}"])
        is_there = np.ones(len(self._order), bool) if vector.null is None else ~vector.null
        return vector.values[self._order], self.chosen(measure.where, measure.labels) & is_there[self._order]

    def numbers(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return a column's values, and which are not null."""
        if column not in self._numbers:
            vector = vector_of(self._rows[column])
            values = vector.values[self._order].astype(np.float64)
            is_there = ~np.isnan(values)
            if vector.null is not None:
                is_there &= ~vector.null[self._order]
            self._numbers[column] = values, is_there
        return self._numbers[column]

    def own(self, feature: DeclaredFeature) -> pa.ChunkedArray:
        """Return a feature that is the value of a column, in the order in which the rows were given."""
        column = self._rows[self._plan.column_of(feature)]
        if self._plan.is_text(feature):
            return column.cast(pa.string())
        return (
            column.cast(pa.int8()).cast(pa.float64()) if column.type == pa.bool_() else column.cast(pa.float64(), False)
        )

    def _units(self, column: str) -> NDArray[np.int64]:
        vector = vector_of(self._rows[column])
        if vector.values.dtype == np.int64:
            whole: NDArray[np.int64] = np.clip(vector.values[self._order], -_LARGEST_INTEGER, _LARGEST_INTEGER)
            return whole
        values, is_there = self.numbers(column)
        return windows.units(np.where(is_there, values, 0), _UNITS)

    def is_whole(self, column: str) -> bool:
        """Return whether a column has whole numbers."""
        return bool(pa.types.is_integer(self._rows.schema.field(column).type))

    def _is_there(self, column: str) -> NDArray[np.bool_]:
        valid: NDArray[np.bool_] = self._rows[column].is_valid().to_numpy()[self._order]
        return valid & self.numbers(column)[1] if self._rows.schema.field(column).type == pa.float64() else valid

    def chosen(self, where: str | None, labels: str = "") -> NDArray[np.bool_]:
        """Return which rows a condition selects; with ``labels``, only those with a known label, or with fraud."""
        key = (where, labels)
        if key not in self._masks:
            self._masks[key] = self._mask(*key)
        return self._masks[key]

    def _mask(self, where: str | None, labels: str) -> NDArray[np.bool_]:
        rows = self._rows
        chosen = np.ones(len(rows), bool)
        if where is not None and len(rows):
            compiled = self._plan.conditions[where]
            columns = {name: vector_of(rows[name]) for name in compiled.columns - {TIME}}
            columns[TIME] = Vector(rows["time"].to_numpy())
            holds = compiled.vector(Scope(columns, len(rows), (0, 0), 0))
            chosen = holds.values if holds.null is None else holds.values & ~holds.null
        if labels:
            label = vector_of(rows["label"])
            known = np.ones(len(rows), bool) if label.null is None else ~label.null
            chosen = chosen & known & (label.values if labels in ("fraud", "charged") else True)
        return chosen[self._order]


class _Verdicts:
    """Decided transactions, of which a condition (``where``) selects some."""

    def __init__(self, decided: pa.Table, account: NDArray[np.int64], time: NDArray[np.int64], plan: Plan) -> None:
        self._decided = Decided(decided, account, time)
        self._rows = _Rows(decided, self._decided.order, plan)

    def frauds(self, window: Window, where: str | None) -> NDArray[np.int64]:
        """Return what verdicts change in the number of frauds in each row's window."""
        return self._decided.frauds(window, self._rows.chosen(where))

    def known(self, window: Window, where: str | None) -> NDArray[np.int64]:
        """Return what verdicts change in the number of labels in each row's window."""
        return self._decided.known(window, self._rows.chosen(where))

    def last_fraud(self, window: Window, where: str | None) -> NDArray[np.int64]:
        """Return the time of the last fraud by verdict in each row's window."""
        return self._decided.last_fraud(window, self._rows.chosen(where))

    def disputed(self, where: str | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the keys and times of the frauds by label that verdicts dispute."""
        return self._decided.disputed(self._rows.chosen(where))


def _seconds_since(line: Line, spans: Spans, last: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the seconds since the last time in the window of each row; NaN if there is none.

    A tile of the state may have a later time than a late row that follows it in the order of the line.
    """
    latest = windows.extreme("max", last.astype(np.float64), spans)
    return np.where(latest > NEVER, np.maximum(line.time - latest, 0) / 1e6, np.nan)


def _without(
    line: Line, last: NDArray[np.int64], account: NDArray[np.int64], time: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Clear the last times of tiles that contain any of the given keys and times."""
    tiles_of_line = pd.MultiIndex.from_arrays([line.account, line.tile])
    is_gone = tiles_of_line.isin(pd.MultiIndex.from_arrays([account, time // line.size]))
    return np.where(is_gone, NEVER, last)


def _window(feature: DeclaredFeature, plan: Plan) -> Window:
    delay = durations.microseconds(feature.delay)
    lag = max(delay, durations.microseconds(plan.label_delay)) if feature.is_of_labels else delay
    size = timedelta(seconds=feature.size)
    return Window(durations.microseconds(size), -(-(feature.window or size) // size), delay, lag)


def _figure(
    feature: DeclaredFeature,
    line: Line,
    window: Window,
    parts: Sequence[tuple[_Measure, NDArray[Any]]],
    given: _Rows,
    verdicts: _Verdicts | None,
) -> NDArray[np.float64]:
    """Compute a feature of each row from its measures."""
    (measure, values), *others = parts
    seen = verdicts if feature.is_of_labels else None
    if measure.statistic in ("min", "max"):
        extremes = windows.extreme(measure.statistic, values, line.spans(window))
        return np.where(np.isfinite(extremes), extremes, np.nan)
    if measure.statistic == "last":
        return _seconds(line, window, measure, values, seen)
    total = _total(line, window, measure, values, seen)
    if measure.statistic == "sum" and not given.is_whole(str(measure.column)):
        total /= _UNITS
    if not others:
        return total
    count = windows.total(others[0][1], line.spans(window))
    if seen is not None:
        count = count + seen.known(window, measure.where)
    mean = windows.mean(total, count)
    return _ratio(given, measure, mean) if feature.aggregate == "ratio_to_mean" else mean


def _seconds(
    line: Line, window: Window, measure: _Measure, last: NDArray[np.int64], verdicts: _Verdicts | None
) -> NDArray[np.float64]:
    """Return the seconds since the last transaction, or the last fraud by label or by verdict."""
    spans = line.spans(window)
    seconds = _seconds_since(line, spans, last)
    if verdicts is None:
        return seconds
    of_flink = _seconds_since(line, spans, _without(line, last, *verdicts.disputed(measure.where)))
    latest = verdicts.last_fraud(window, measure.where)
    known = np.fmin(of_flink, np.where(latest > NEVER, (line.time - latest) / 1e6, np.nan))
    # A decided transaction is visible from the next microsecond on; no verdict on it is known earlier.
    return np.where(seconds == 0, 0.0, known)


def _total(
    line: Line, window: Window, measure: _Measure, values: NDArray[Any], verdicts: _Verdicts | None
) -> NDArray[np.float64]:
    """Return the sum in the window of each row; of frauds, those that verdicts add or take away, too."""
    total = windows.total(values, line.spans(window)).astype(np.float64)
    if verdicts is None:
        return total
    # A late row may be missing in the state although the verdict on it is known.
    return np.maximum(total + verdicts.frauds(window, measure.where), 0)


def _ratio(given: _Rows, measure: _Measure, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ratio of each row's own value to the mean; NaN if it is not defined."""
    own, is_there = given.numbers(str(measure.column))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(is_there & (mean != 0), own / mean, np.nan)


def _seen(seen: pa.Table | None, measure: _Measure) -> NDArray[Any]:
    """Return a measure of the state's tiles; a measure that they lack starts empty."""
    if seen is not None and measure.name in seen.column_names:
        values: NDArray[Any] = seen[measure.name].to_numpy()
        return values
    neutral = NEUTRAL[measure.statistic]
    return np.full(
        0 if seen is None else len(seen), neutral, np.float64 if measure.statistic in ("min", "max") else np.int64
    )


def _seen_values(seen: pa.Table | None) -> NDArray[np.int64]:
    return np.zeros(0, np.int64) if seen is None else seen["value"].to_numpy()


def _nullable(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def compute_table(silver: pa.Table, settings: Settings, verdicts: pa.Table) -> pa.Table:
    """Compute the declared features of a whole table in this process.

    Args:
        silver: all transactions, in any order, with the columns of ``silver_transactions`` that features need.
        settings: declares features, columns and entities.
        verdicts: ``transaction_id, verdict, decided_at`` of all verdicts.

    Returns:
        A column for each feature, in the order of ``silver``.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for entity, plan in plans(settings).items():
        key = settings.entity_columns(entity)
        has_key = np.all([silver[name].is_valid().to_numpy() for name in key], axis=0)
        at = np.flatnonzero(has_key)
        raw = {*key, *_PLACE, "transaction_id", *(field.name.removeprefix(HASH_OF) for field in plan.needed)}
        rows = silver.select(sorted(raw))
        if not has_key.all():
            rows = rows.take(pa.array(at))
        added = {"account": codes_of(rows, key)}
        added["time"] = rows["timestamp"].cast(pa.int64())
        for field in plan.needed:
            if field.name.startswith(HASH_OF):
                hashed = keyed(rows[field.name.removeprefix(HASH_OF)])
                added[field.name] = hashed.combine_chunks().dictionary_encode().indices.cast(pa.int64())
        source = rows["source"].combine_chunks().dictionary_encode()
        whole = pa.table({name: rows[name] for name in rows.column_names} | added | {"source": source})
        computed, _ = compute({}, whole, plan, known.among(whole, verdicts) if plan.sees_labels else None)
        back = np.full(len(silver), -1)
        back[at] = np.arange(len(at))
        places = pa.array(back, mask=~has_key)
        columns |= {name: computed[name].take(places) for name in computed.column_names}
    return pa.table({feature.name: columns[feature.name] for feature in settings.features})


def columns_read(settings: Settings) -> set[str]:
    """Return the columns of ``silver_transactions`` that the declared features are computed from."""
    names: set[str] = set()
    for entity, plan in plans(settings).items():
        names |= {*settings.entity_columns(entity), *(field.name.removeprefix(HASH_OF) for field in plan.needed)}
    return names


def has_accounts(key: str) -> bool:
    """Return whether the table of the state with this key has hashes of accounts as values."""
    return key.split(" ")[1:3] == ["values", "account_id"]


def plans(settings: Settings) -> dict[str, Plan]:
    """Return the plan of each entity that has features."""
    by_entity: dict[str, list[DeclaredFeature]] = {}
    for feature in settings.features:
        by_entity.setdefault(feature.entity, []).append(feature)
    known_after = settings.known_after
    are_chargebacks = settings.are_chargebacks
    return {entity: Plan(tuple(of), settings.columns, known_after, are_chargebacks) for entity, of in by_entity.items()}
