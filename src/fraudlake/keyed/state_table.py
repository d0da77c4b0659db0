"""State table: reads a table of a stream's state between micro-batches from its checkpoint, while the stream runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa

from fraudlake.keyed import buckets

if TYPE_CHECKING:
    from fraudlake.lake import Lake


def read(lake: Lake, step: str, name: str, schema: pa.Schema) -> pa.Table:
    """Read one table of the state of all buckets of a stream; empty if the state does not have it."""
    return buckets.unpack(_values(lake, step, name)["payload"].to_pylist(), schema)


def read_by_entity(lake: Lake, step: str, name: str, schema: pa.Schema) -> dict[int, pa.Table]:
    """Read one table of the state of a stream, by the number of the entity of each bucket."""
    payloads = defaultdict(list)
    for row in _values(lake, step, name).to_pylist():
        payloads[buckets.entity_of(row["bucket"], lake.settings.buckets)].append(row["payload"])
    return {number: buckets.unpack(of_one, schema) for number, of_one in payloads.items()}


def _values(lake: Lake, step: str, name: str) -> pa.Table:
    """Read the payloads of one table of a stream's state, with their buckets."""
    checkpoint = lake.checkpoint(step)
    if name not in checkpoint.state_variables:
        return pa.table({"bucket": pa.array([], pa.int32()), "payload": pa.array([], pa.binary())})
    checkpoint.correct_paths()
    # The reader asks the coordinator of state stores, which starts with the first access to streams (Spark 4.2).
    _ = lake.session.streams.active
    with _plain_path(checkpoint.folder) as folder:
        reader = lake.session.read.format("statestore").option("stateVarName", name)
        return reader.load(str(folder)).select("key.bucket", "value.payload").toArrow()


@contextmanager
def _plain_path(folder: Path) -> Iterator[Path]:
    """Yield a path to the folder that needs no URI escapes: the reader does not decode them (seen in Spark 4.2)."""
    if quote(str(folder)) == str(folder):
        yield folder
        return
    with TemporaryDirectory() as place:
        link = Path(place, folder.name)
        link.symlink_to(folder)
        yield link
