"""Feature state: counts the tiles that the stream of predictions stores for declared features."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fraudlake.entity import ACCOUNT, number
from fraudlake.features import feature_buckets
from fraudlake.keyed import state_table

if TYPE_CHECKING:
    from fraudlake.lake import Lake


def by_entity(lake: Lake) -> dict[str, dict[str, int]]:
    """Return the number of ``keys`` and ``tiles``, and their ``bytes`` in memory, for each entity that has tiles.

    The state is read without a lock, as of the newest micro-batch.
    """
    names = {number(name): name for name in (ACCOUNT, *lake.settings.entities)}
    keys: dict[str, set[int]] = defaultdict(set)
    counts: dict[str, dict[str, int]] = {}
    stored = state_table.read(lake, "score", feature_buckets.TILES, feature_buckets.TILES_ROWS)
    for entity, tiles in feature_buckets.tiles_in(stored):
        name = names.get(entity, f"entity {entity}")
        keys[name].update(tiles["account"].unique().to_pylist())
        of_one = counts.setdefault(name, {"keys": 0, "tiles": 0, "bytes": 0})
        of_one["keys"] = len(keys[name])
        of_one["tiles"] += len(tiles)
        of_one["bytes"] += tiles.nbytes
    return counts
