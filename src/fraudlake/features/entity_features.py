"""Entity features: computes the declared features, statistics of an entity's transactions before each transaction.

Training and scoring share one function, :func:`compute`, as in :mod:`fraudlake.features.account_features`. The state
of a key (such as a terminal) consists of tiles: what a second, a minute, ten minutes, an hour or a day adds to the
statistics, or everything, in a window of ``ever``. Sums are sums of integers, so they do not depend on how a history is
split into micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fraudlake.arrays import codes_of, hashes_of
from fraudlake.features import decided as known
from fraudlake.features.feature_expressions import FeatureExpressions
from fraudlake.features.feature_figures import MOST_DISTINCT, Figure
from fraudlake.features.feature_plan import HASH_OF, Measure, Plan, plans
from fraudlake.features.feature_rows import Rows, Verdicts
from fraudlake.keyed import ordering
from fraudlake.statistics.tiles import KEY, NEUTRAL, Line, Merged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.settings import Settings
    from fraudlake.settings.features import DeclaredFeature

_PLACE = ("timestamp", "source", "position", "label")
_TILES = b"tiles"
"""The metadata key for the number of tiles in the windows of a table of the state."""

State = dict[str, pa.Table]
"""The state of a bucket: tiles by their length in seconds, and distinct values or histograms of tiles by length and
measure. Each table has ``account`` (the 64-bit hash of the key) and ``tile`` (its number since 1970), and is sorted by
them."""


def compute(state: State, rows: pa.Table, plan: Plan, decided: pa.Table | None = None) -> tuple[pa.Table, State]:
    """Compute the features of a bucket's rows; each row sees only the rows of its key before it.

    A row is before another if its time is earlier, or its time is the same and its ``source``, ``position`` is earlier.

    Args:
        state: the state.
        rows: the bucket's new transactions, in any order: ``account`` (the hash of the entity's key), ``time``
            (microseconds), ``source``, ``position``, ``label``, and :attr:`Plan.needed`.
        plan: the features.
        decided: transactions with verdicts, of any keys: ``transaction_id``, the columns of ``rows``, and
            :data:`fraudlake.features.decided.FIELDS`. They may be among the rows, too.

    Returns:
        A column for each feature, in the order of ``rows``, null if nothing is known; and the state for the next call.
    """
    if plan.are_chargebacks:
        rows = _genuine(rows)
        decided = None if decided is None else _genuine(decided)
    order = ordering.row_order(rows.slice(0, 0), rows, by_time=True)
    account, time = (rows[name].to_numpy()[order] for name in ("account", "time"))
    new_rows = Rows(rows, order, plan)
    verdicts = Verdicts(decided, account, time, plan) if decided is not None and len(decided) else None
    clock = ordering.clock(rows) if len(rows) else None
    computed: dict[str, NDArray[Any]] = {}
    after: State = {}
    for size, of_size in plan.by_size.items():
        length = max(feature.tiles for feature in of_size)
        oldest = None if clock is None else clock // (size * 1_000_000) - length
        metadata = {_TILES: str(length)}
        measures = dict.fromkeys(measure for feature in of_size for measure in plan.measures(feature))
        tiled = [measure for measure in measures if not measure.has_own_table]
        if tiled:
            old = state.get(str(size))
            line = Line(account, time, size, old)
            merged = {
                measure: line.merged(_read_measure(old, measure), new_rows.contribution(measure)) for measure in tiled
            }
            for feature in of_size:
                if not plan.measures(feature)[0].has_own_table:
                    computed[feature.name] = Figure(feature, plan, line, merged, new_rows, verdicts).values()
            stored = {measure.name: _stored(measure, merged) for measure in tiled}
            after[str(size)] = line.tiles(stored, oldest).replace_schema_metadata(metadata)
        for measure in measures:
            if not measure.has_own_table:
                continue
            key = f"{size} {measure.name}"
            old = state.get(key)
            line = Line(account, time, size, old)
            listed, counts = (
                line.merged(*both) for both in zip(_read_list(old), new_rows.listed(measure), strict=True)
            )
            for feature in of_size:
                if plan.measures(feature) == (measure,):
                    figure = Figure(feature, plan, line, {}, new_rows, None)
                    is_quantile = measure.statistic == "histogram"
                    compute_list = figure.quantile if is_quantile else figure.distinct
                    computed[feature.name] = compute_list(listed, counts)
            if measure.statistic == "histogram":
                tiles = line.histogram(listed, counts, oldest)
            else:
                tiles = line.values(listed, counts > 0, oldest, MOST_DISTINCT)
            after[key] = tiles.replace_schema_metadata(metadata)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    columns = [
        new_rows.column_values(feature) if feature.aggregate == "value" else _nullable(computed[feature.name][back])
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
        table = state.get(key)
        lacking = [] if table is None else [name for name in tiles.column_names if name not in table.column_names]
        if table is None or _length(table) < _length(tiles):
            result[key] = tiles
        elif lacking:
            joined = table.join(tiles.select([*KEY, *lacking]), list(KEY), join_type="full outer")
            neutral = {name: NEUTRAL[name.split(" ")[0]] for name in joined.column_names if name not in KEY}
            filled = [joined[name].fill_null(pa.scalar(neutral[name], joined[name].type)) for name in neutral]
            whole = pa.table([*(joined[name] for name in KEY), *filled], names=[*KEY, *neutral])
            ordered = whole.sort_by([(name, "ascending") for name in KEY])
            result[key] = ordered.replace_schema_metadata(table.schema.metadata)
    return result


def lacks(state: State, plan: Plan) -> bool:
    """Return whether a state lacks a feature, or has fewer tiles than its window needs."""
    for feature in plan.features:
        for measure in plan.measures(feature):
            has_own_table = measure.has_own_table
            tiles = state.get(f"{feature.size} {measure.name}" if has_own_table else str(feature.size))
            if tiles is None or _length(tiles) < feature.tiles:
                return True
            if not has_own_table and measure.name not in tiles.column_names:
                return True
    return False


def look_back(features: Iterable[DeclaredFeature]) -> timedelta:
    """Return the longest look-back of features from a transaction."""
    tiles = ((feature.tiles + 1) * timedelta(seconds=feature.size) for feature in features)
    return max(tiles, default=timedelta(0))


def _length(tiles: pa.Table) -> int:
    """Return the number of tiles in the windows of a table of the state."""
    return int((tiles.schema.metadata or {}).get(_TILES, 0))


def _read_measure(tiles: pa.Table | None, measure: Measure) -> NDArray[Any]:
    """Return a measure of the state's tiles; a measure that they lack starts empty."""
    if tiles is not None and measure.name in tiles.column_names:
        values: NDArray[Any] = tiles[measure.name].to_numpy()
        return values
    neutral = NEUTRAL[measure.statistic]
    return np.full(
        0 if tiles is None else len(tiles), neutral, np.float64 if measure.statistic in ("min", "max") else np.int64
    )


def _read_list(tiles: pa.Table | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the values or levels of the state's tiles, and how often they count."""
    if tiles is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if "level" in tiles.column_names:
        return tiles["level"].to_numpy(), tiles["count"].to_numpy()
    return tiles["value"].to_numpy(), np.ones(len(tiles), np.int64)


def _stored(measure: Measure, merged: Mapping[Measure, NDArray[Any]]) -> Merged:
    times = merged[measure._replace(statistic="last")] if measure.statistic == "latest" else None
    return Merged(measure.statistic, merged[measure], times)


def _nullable(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def compute_table(silver: pa.Table, settings: Settings, verdicts: pa.Table) -> pa.Table:
    """Compute the declared features of a whole table in this process as :func:`compute_states` does."""
    return compute_states(silver, settings, verdicts)[0]


def compute_states(silver: pa.Table, settings: Settings, verdicts: pa.Table) -> tuple[pa.Table, dict[str, State]]:
    """Compute the declared features of a whole table in this process, except expressions.

    Args:
        silver: all transactions, in any order, with the columns of ``silver_transactions`` that features need.
        settings: declares features, columns and entities.
        verdicts: ``transaction_id, verdict, decided_at`` of all verdicts.

    Returns:
        A column for each feature, in the order of ``silver``; and the state of each entity after the last row.
    """
    states: dict[str, State] = {}
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
                added[field.name] = hashes_of(rows[field.name.removeprefix(HASH_OF)])
        source = rows["source"].combine_chunks().dictionary_encode()
        whole = pa.table({name: rows[name] for name in rows.column_names} | added | {"source": source})
        computed, states[entity] = compute({}, whole, plan, known.among(whole, verdicts) if plan.sees_labels else None)
        back = np.full(len(silver), -1)
        back[at] = np.arange(len(at))
        places = pa.array(back, mask=~has_key)
        columns |= {name: computed[name].take(places) for name in computed.column_names}
    return pa.table(columns), states


def accounts_in(key: str, tiles: pa.Table) -> list[str]:
    """Return the columns with hashes of accounts as values, of the table of the state with this key."""
    if key.split(" ")[1:3] == ["values", "account_id"]:
        return ["value"]
    return [name for name in tiles.column_names if name.split(" ")[:2] == ["latest", f"{HASH_OF}account_id"]]


def columns_read(settings: Settings) -> set[str]:
    """Return the columns of ``silver_transactions`` that the declared features are computed from."""
    names: set[str] = set()
    for entity, plan in plans(settings).items():
        names |= {*settings.entity_columns(entity), *(field.name.removeprefix(HASH_OF) for field in plan.needed)}
    return names | {field.name for field in FeatureExpressions.from_settings(settings).columns}
