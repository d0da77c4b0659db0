"""Scan: searches every file of a lake, and the state of its streams, for accounts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze import parquet
from fraudlake.forget import stream_state, traces
from fraudlake.sources.landing_folder import landing_folder

if TYPE_CHECKING:
    from fraudlake.lake import Lake


def scan(lake: Lake, folder: Path, accounts: Sequence[str]) -> tuple[int, list[str]]:
    """Search the lake's files, ``simulate``'s landed files and delivered files; return their number and traces."""
    search = traces.Search(accounts)
    places = []
    number = 0
    landing = Path(landing_folder(lake).path)
    delivered = lake.settings.delivery_folder
    for file in traces.files([folder, landing, *([Path(delivered)] if delivered else [])]):
        if file.is_relative_to(landing) and not parquet.is_own(str(file)):
            continue
        number += 1
        places += [f"{file}: {part}" for part in search.in_file(file)]
    hashes = pa.array(stream_state.hashes(lake, accounts), pa.int64())
    for step, name, rows in stream_state.tables_of(lake):
        is_hashed = "account" in rows.column_names and pc.any(pc.is_in(rows["account"], hashes)).as_py()
        if is_hashed or any(map(search.is_in, rows.columns)):
            places.append(f"state of {step}: {name}")
    return number, places
