"""Warm start: gives rules that are new to a stream the state that they would have if the stream had always had them.

The state is computed from the rows of silver that the stream has read so far. In the first micro-batch with the new
rules, it is passed as a supplement to the bucket's rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake.arrays import to_bytes
from fraudlake.detection import detector_stream
from fraudlake.detection.entity_rules import NOTHING, OPEN_FLAGS
from fraudlake.detection.evaluator import Evaluator
from fraudlake.keyed import buckets
from fraudlake.rules.columns import query_columns
from fraudlake.silver import transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.rules.rule_set import RuleVersion
    from fraudlake.settings import Settings

_NAMES = ("open_flags", "warm_rules", "recent")
"""The supplements of a bucket: open flags of ``small_then_large`` rules, the state of the other rules, and the rows
after the watermark, some of which wait in the bucket's state, while others were evaluated."""


def states(
    silver: DataFrame,
    settings: Settings,
    evaluator: Evaluator,
    added: Sequence[RuleVersion],
    watermark: int | None,
) -> DataFrame:
    """Compute the state of new rules, in the tasks of the micro-batch that needs it.

    Args:
        silver: the rows of ``silver_transactions`` that the stream has read, without those that came too late.
        settings: the declared columns and entities, and the number of buckets.
        evaluator: the evaluator of all rules of the stream.
        added: the new rules.
        watermark: all rows before it were evaluated or are too late, microseconds; None in the order of arrival.

    Returns:
        The state as :data:`~fraudlake.keyed.buckets.SUPPLEMENTS` of the buckets that have any rows.

    Raises:
        PySparkException: files of silver are deleted; they are read once here to detect that.
    """
    begin = _look_back(settings, added, _newest(silver) if watermark is None else watermark - 1)
    if begin is not None:
        silver = transactions.since(silver, begin)
    # Read the files here, so that missing ones fail now and not in the tasks of the micro-batch.
    _newest(silver)
    new = Evaluator.of(settings, added)
    schema = evaluator.rows

    def evaluate(key: tuple[int], frame: pd.DataFrame) -> pd.DataFrame:
        rows = buckets.unpack(frame["payload"], schema)
        newest = pc.max(rows["time"]).as_py() + 1
        is_before = pc.less(rows["time"], newest if watermark is None else watermark)
        now = newest - detector_stream.GRACE if watermark is None else watermark
        _, state = new.evaluate(key[0], NOTHING, rows.filter(is_before), now)
        tables = (state[OPEN_FLAGS], state["rules"], rows.filter(pc.invert(is_before)))
        payloads = [to_bytes(table.unify_dictionaries().combine_chunks(), is_compressed=True) for table in tables]
        return pd.DataFrame({"bucket": key[0], "name": _NAMES, "supplement": payloads})

    selected = silver.select(*evaluator.columns(may_be_late=True))
    packed = buckets.pack(selected, schema, settings.buckets, keys=new.keys)
    return packed.groupBy("bucket").applyInPandas(evaluate, buckets.SUPPLEMENTS)


def change(settings: Settings, added: Sequence[RuleVersion], old_entities: Collection[int]) -> buckets.Change:
    """Return a change that adds the state of new rules, from :func:`states`, to the state of a bucket.

    ``old_entities`` are the numbers of the entities that had rules before: other buckets have no waiting rows.
    """
    new = Evaluator.of(settings, added)
    bound = detector_stream.bound_milliseconds(settings) * 1000

    def warmed(bucket: int, state: buckets.State, supplements: buckets.Supplements) -> buckets.State:
        if _NAMES[0] not in supplements:
            return state
        open_flags, rules, recent = (pa.ipc.open_stream(supplements[name][0]).read_all() for name in _NAMES)
        begun = {OPEN_FLAGS: open_flags, "rules": rules}
        if buckets.WAITING in state:
            is_known = buckets.entity_of(bucket, settings.buckets) in old_entities
            waiting, others = _divided(state[buckets.WAITING], recent) if is_known else _begun(recent, bound)
            _, begun = new.evaluate(bucket, begun, others, _ready_before(waiting, others, bound))
            state = {**state, buckets.WAITING: waiting}
        # An account has at most one flag, its last transaction, for all rules.
        flags = begun[OPEN_FLAGS]
        accounts = state[OPEN_FLAGS]["account"]
        flags = flags.filter(pc.invert(pc.is_in(flags["account"], accounts)))
        is_again = pc.is_in(state["rules"]["definition"], begun["rules"]["definition"])
        others = state["rules"].filter(pc.invert(is_again))
        return {
            **state,
            OPEN_FLAGS: pa.concat_tables([state[OPEN_FLAGS], flags], promote_options="default"),
            "rules": pa.concat_tables([others, begun["rules"]]),
        }

    return warmed


def _divided(waiting: pa.Table, recent: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the waiting rows, including the columns that new rules need, and the recent rows that do not wait."""

    def places(rows: pa.Table) -> list[tuple[str, int]]:
        return [*zip(rows["source"].cast(pa.string()).to_pylist(), rows["position"].to_pylist(), strict=True)]

    wait = set(places(waiting))
    recent_places = places(recent)
    is_waiting = pa.array([place in wait for place in recent_places], pa.bool_())
    again = set(recent_places)
    missing = pa.array([place not in again for place in places(waiting)], pa.bool_())
    whole = pa.concat_tables([waiting.filter(missing), recent.filter(is_waiting)], promote_options="default")
    return whole, recent.filter(pc.invert(is_waiting))


def _begun(recent: pa.Table, bound: int) -> tuple[pa.Table, pa.Table]:
    """Divide recent rows into those that would be waiting if the bucket had always had rules, and the others."""
    waits = pc.greater_equal(recent["time"], (pc.max(recent["time"]).as_py() or 0) // 1000 * 1000 - bound)
    return recent.filter(waits), recent.filter(pc.invert(waits))


def _ready_before(waiting: pa.Table, evaluated: pa.Table, bound: int) -> int:
    """Return the time (microseconds) before which rows were evaluated: see :func:`detector.split_by_watermark`."""
    newest = max(pc.max(rows["time"]).as_py() or 0 for rows in (waiting, evaluated))
    passed = newest // 1000 * 1000 - bound
    first = pc.min(waiting["time"]).as_py()
    # The bound may have changed meanwhile.
    return passed if first is None else min(first, passed)


def _newest(silver: DataFrame) -> int:
    return int(silver.select(F.unix_micros(F.max("timestamp"))).collect()[0][0] or 0)


def _look_back(settings: Settings, added: Sequence[RuleVersion], time: int) -> int | None:
    """Return the earliest event time that rules look back to from ``time``, in microseconds; None: unbounded."""
    columns = query_columns(settings.silver_columns)
    spans = [version.rule.compile(columns, settings.entities).look_back for version in added]
    if None in spans:
        return None
    longest = max(span for span in spans if span is not None)
    return time - longest // timedelta(microseconds=1) - detector_stream.GRACE
