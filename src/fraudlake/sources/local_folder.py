"""A local folder: landed files on this machine's disk, listed by Spark's file source and read by this process."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from fraudlake import tables
from fraudlake.bronze import parquet, transactions
from fraudlake.errors import UsageError
from fraudlake.lake import json_file
from fraudlake.process.host import is_utf8
from fraudlake.sources import landing, links
from fraudlake.sources.file import File
from fraudlake.sources.folder import Counted, LandingFolder
from fraudlake.sources.numbered_append import NumberedAppend
from fraudlake.values import size_in_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


ANY_AGE = "100000000000d"
"""An age for Spark's file source that no file reaches: it becomes the largest number of milliseconds in 64 bits."""


class LocalFolder(LandingFolder):
    """A landing folder on a disk of this machine."""

    sweep_seconds = 60.0
    sweeps_at_start = True

    @property
    def path(self) -> str:
        """The folder's absolute path as Hadoop writes it: without ``..``, and with symbolic links."""
        return os.path.normpath(Path(self._settings.landing_path).absolute())

    def read_stream(self) -> DataFrame:
        """Return the folder as a stream of its files: ``path, modificationTime, length``.

        Raises:
            UsageError: there is no such folder, or it has several links to a folder above them.
        """
        self.require()
        cycles = links.cycles(self.path)
        if len(cycles) > 1:  # two of them give a folder 2**40 names before Linux stops following links
            raise UsageError(f"{cycles[0]} and {cycles[1]} are links to a folder above them: remove them")
        most_bytes = self._settings.max_bytes_per_trigger
        most_files = self._settings.max_files_per_trigger
        at_most = size_in_bytes(most_bytes) if most_bytes else None
        reader = (
            self._lake.session.readStream.format("binaryFile")
            .schema("path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY")
            .option("recursiveFileLookup", "true")
            # Spark accepts only one of the two limits.
            .option("maxBytesPerTrigger" if at_most else "maxFilesPerTrigger", at_most or most_files)
            # A file that vanishes after it was listed does not stop the stream; the ledger records it.
            .option("ignoreMissingFiles", "true")
            # By default Spark silently skips a file that is a week older than the newest one.
            .option("maxFileAge", ANY_AGE)
        )
        return reader.load(landing.literal(self.path)).select("path", "modificationTime", "length")

    def files_of(self, batch: DataFrame) -> list[File]:
        """Return the files that a micro-batch of :meth:`read_stream` names, as they are now."""
        paths = [landing.local_path(row["path"]) for row in batch.select("path").collect()]
        return self.current([self.missing(path) for path in links.outside_cycles(paths, self.path)])

    def current(self, files: list[File]) -> list[File]:
        """Return files as they are now; one that is gone has no size."""
        return [landing.current_file(file.path, self.path) or self.missing(file.path) for file in files]

    def list_files(self) -> Iterator[File]:
        """List the current finished files, and others with such names: empty folders, pipes, devices."""
        return landing.files(self.path)

    def other_names(self, files: list[File], old_names: Container[str]) -> dict[str, str]:
        """Return the files that are only another name, a link, of a file, and the name under which that is read."""
        names = (file for file in self.list_files() if is_utf8(file.path))
        return links.other_names(files, names, self.path, old_names)

    def files_listed_by(self, step: str) -> Iterator[str]:
        """Return the paths of all files that a step's stream has ever listed, read or not."""
        return links.outside_cycles(self._listed_by(step), self.path)

    def _listed_by(self, step: str) -> Iterator[str]:
        """Return the paths of files in the checkpoint of Spark's file source.

        Each log has a line with the version, then a JSON object per line; every tenth micro-batch has one file with all
        earlier ones (seen in Spark 4.2).
        """
        logs = self._logs(step)
        whole = max((int(path.stem) for path in logs if path.suffix), default=-1)
        for path in logs:
            if int(path.stem) > whole or (path.suffix and int(path.stem) == whole):
                for line in path.read_text().splitlines()[1:]:
                    yield landing.local_path(unquote(json.loads(line)["path"]))

    def _logs(self, step: str) -> list[Path]:
        folder = self._lake.checkpoint(step).folder / "sources" / "0"
        return [path for path in folder.glob("[0-9]*") if path.name.removesuffix(".compact").isdigit()]

    def correct_paths(self, step: str) -> None:
        """Correct the paths that a step's stream has listed, if the lake was moved or copied since.

        Otherwise the stream lists all files again, and repeats a micro-batch that was cut in the former place.
        """
        former = "DISTINCT substr(path, 1, length(path) - length(_source_file) - 1) AS folder"
        folders = self._lake.store.query(f"SELECT {former} FROM {tables.BRONZE_FILES.name}", tables.BRONZE_FILES)[
            "folder"
        ].to_pylist()
        before = [folder for folder in folders if self.place_of(f"{folder}/x", "x") != f"{folder}/x"]
        for log in self._logs(step) if before else ():
            text = settled = log.read_text()
            for folder in before:
                settled = settled.replace(f'"{landing.uri(folder)}/', f'"{landing.uri(self.path)}/')
            if settled != text:
                # Hadoop's checksum is that of the previous text; without the file Hadoop checks nothing.
                log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
                json_file.write_text(log, settled)

    def count_rows(self, files: list[File], whole: bool = False, with_digests: bool = False) -> list[Counted]:
        """Count the rows of each file."""
        count = self._count(whole)

        def counted(file: File) -> Counted:
            rows, error = count(file.path)
            return Counted(rows, error, parquet.digest(file.path) if with_digests and rows else None)

        with ThreadPoolExecutor() as pool:
            return list(pool.map(counted, files))

    def digests(self, files: list[File]) -> dict[str, str]:
        """Return the SHA-256 of the content of files that can be read, by their path relative to the folder."""
        files = [file for file in files if file.size is not None]  # others must not be opened
        with ThreadPoolExecutor() as pool:
            digests = zip(files, pool.map(lambda file: parquet.digest(file.path), files), strict=True)
            return {file.source: digest for file, digest in digests if digest is not None}

    def append_to_bronze(self, files: list[File], append: NumberedAppend) -> None:
        """Append files' rows to ``bronze_transactions``, in one commit: all rows of all files, or none."""
        batches = (rows for file in files for rows in self._rows(file))
        rows = pa.RecordBatchReader.from_batches(self._contract.table.schema, batches)
        self._lake.writer(tables.BRONZE_TRANSACTIONS).write(rows, "append", append.transaction, append.metadata)

    def _rows(self, file: File) -> Iterator[pa.RecordBatch]:
        yield from transactions.read_file(file.path, file.source, self._settings.landing_timezone, self._contract)
        if landing.current_file(file.path, self.path) != file:
            raise RuntimeError(f"{file.path} changed while it was read")
