"""A volume of Unity Catalog: landed files that Auto Loader lists and Spark reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.bronze import transactions
from fraudlake.process.host import is_folder
from fraudlake.sources import auto_loader, landing
from fraudlake.sources.file import File
from fraudlake.sources.folder import Counted, LandingFolder
from fraudlake.sources.numbered_append import NumberedAppend
from fraudlake.text.sql_text import spark_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GONE = "the file is gone"
_LARGEST_FILE = 2**31 - 1
"""Largest file, in bytes, whose content Spark reads as one value."""


class Volume(LandingFolder):
    """A landing folder in a volume. Only Spark reads its files: workers need not see the volume."""

    sweep_seconds = 86_400.0  # Auto Loader is used to avoid listing every file that ever landed.
    sweeps_at_start = False

    @property
    def path(self) -> str:
        """The folder's absolute path: ``/Volumes/…``."""
        return os.path.normpath(self._settings.landing_path)

    def read_stream(self) -> DataFrame:
        """Return the folder as Auto Loader's stream of its files: ``path, modificationTime, length``.

        Raises:
            UsageError: the folder does not exist.
        """
        self.require()
        return auto_loader.read_stream(self._lake.session, self.path, self._settings)

    def files_of(self, batch: DataFrame) -> list[File]:
        """Return the files of a micro-batch of :meth:`read_stream`, as Auto Loader listed them."""
        return list(self._files(batch))

    def current(self, files: list[File]) -> list[File]:
        """Return files as they are now; a file that is gone or empty has no size."""
        present = {file.source: file for file in self._present(files)}
        return [present.get(file.source) or self.missing(file.path) for file in files]

    def _present(self, files: list[File]) -> list[File]:
        """Return the files that exist, as Spark lists them now."""
        from pyspark.errors import AnalysisException

        paths = {landing.literal(file.path) for file in files}
        while paths:
            try:
                return list(self._files(self._lake.session.read.format("binaryFile").load(sorted(paths))))
            except AnalysisException as error:  # its message names a path that does not exist
                missing = {path for path in paths if path in str(error)}
                if not missing:
                    raise
                paths -= missing
        return []

    def list_files(self) -> Iterator[File]:
        """List the finished files that are not empty, as they are now."""
        if not is_folder(self.path):
            return
        reader = self._lake.session.read.format("binaryFile").option("recursiveFileLookup", "true")
        for file in self._files(reader.load(landing.literal(self.path))):
            if landing.is_finished(file.source):
                yield file

    def _files(self, rows: DataFrame) -> Iterator[File]:
        """Turn rows of Spark's ``binaryFile`` format into files."""
        for row in rows.select("path", F.unix_micros("modificationTime").alias("modified"), "length").collect():
            path = auto_loader.posix_path(self.path, row["path"])
            yield File(path, landing.relative(path, self.path), row["length"], row["modified"])

    def files_listed_by(self, step: str) -> Iterator[str]:
        """Return the paths of all files that Auto Loader has ever listed for a step, read or not."""
        checkpoint = self._lake.checkpoint(step)
        if checkpoint.is_new:
            return
        # cloud_files_state takes only a literal, no parameter.
        state = f"cloud_files_state({spark_literal(str(checkpoint.folder))})"
        listed_files = self._lake.session.sql(f"SELECT path FROM {state}")
        for row in listed_files.collect():
            path = auto_loader.posix_path(self.path, row["path"])
            # It is not documented whether the path has a blank or %20.
            yield path if Path(path).exists() else unquote(path)

    def correct_paths(self, step: str) -> None:
        """Do nothing: Auto Loader lists the files of a new place again, and the ledger knows them by name."""

    def count_rows(self, files: list[File], whole: bool = False, with_digests: bool = False) -> list[Counted]:
        """Count the rows of each file."""
        readable = [file for file in files if _unreadable(file) is None]
        counts = {}
        if readable:
            contents = transactions.in_pieces(self._contents(self._present(readable), "true"))
            counted = transactions.row_counts(contents, self._count(whole), with_digests)
            counts = {source: Counted(*count) for source, *count in counted.collect()}
        return [counts.get(file.source) or Counted(0, _unreadable(file) or _GONE) for file in files]

    def digests(self, files: list[File]) -> dict[str, str]:
        """Return the SHA-256 of the content of files that can be read, by their path relative to the folder."""
        readable = self._present([file for file in files if _unreadable(file) is None])
        if not readable:
            return {}
        digests = self._contents(readable, "true").select("source", F.sha2("content", 256).alias("digest"))
        return {row["source"]: row["digest"] for row in digests.collect()}

    def append_to_bronze(self, files: list[File], append: NumberedAppend) -> None:
        """Append files' rows to ``bronze_transactions``, in one commit: all rows of all files, or none."""
        versions = {file.source: (file.size, file.modified) for file in files}
        contents = transactions.in_pieces(self._contents(files, "false"))
        rows = transactions.from_contents(contents, versions, self._settings.landing_timezone, self._contract)
        self._lake.writer(tables.BRONZE_TRANSACTIONS).append(rows, append.transaction, metadata=append.metadata)

    def _contents(self, files: list[File], ignore_missing: str) -> DataFrame:
        """Read the bytes of files: ``source, modified, content``.

        Spark reads them: it is not documented that its Python workers see volumes as files.
        """
        reader = self._lake.session.read.format("binaryFile").option("ignoreMissingFiles", ignore_missing)
        return reader.load([landing.literal(file.path) for file in files]).select(
            auto_loader.source("path", self.path).alias("source"),
            F.unix_micros("modificationTime").alias("modified"),
            "content",
        )


def _unreadable(file: File) -> str | None:
    """Return why a file cannot be read, by its name and size; None if they show no reason."""
    if file.size is None:
        return _GONE
    if ":" in file.source:  # ".part:0.crc: Relative path in absolute URI", and all files of the read fail (Spark 4.2)
        return "its name has a colon, which Hadoop takes for a scheme: land it under another name"
    if file.size == 0:
        return "the file is empty (0 bytes)"
    if file.size > _LARGEST_FILE:
        return f"the file is larger than {_LARGEST_FILE:,} bytes: land smaller ones"
    return None
