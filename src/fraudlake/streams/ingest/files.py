"""Files: reads each landed file once, and records the outcome in the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.sources import landing
from fraudlake.sources.file_source import FileSource
from fraudlake.sources.folder import require_folder
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.streams.ingest.source import Source
from fraudlake.streams.stream import Stream

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.settings import Settings


def _streams(lake: Lake, retry_rejected: bool) -> list[Stream]:
    folder = landing_folder(lake)
    folder.require()
    if not any(True for _ in landing.files(folder.path)) and not lake.store.rows(tables.BRONZE_FILES):
        raise FraudlakeError(f"nothing has landed in {folder.path}: no finished file is there yet")
    source = FileSource(retry_rejected)
    return [
        Stream(
            "ingest",
            folder.read_stream,
            source.ingest_batch,
            persist=False,
            before=lambda: source.prepare(lake),
            after=lambda: source.finish(lake),
            count_rows=lambda first: source.new_files,
        )
    ]


def _require(settings: Settings) -> None:
    if not settings.is_in_workspace:
        require_folder(str(Path(settings.landing_path).absolute()))


SOURCE = Source(_streams, require=_require)
