"""The landing folder: the interface that lists, streams and reads landed files, on a laptop or in a workspace."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from fraudlake.bronze import contract, parquet
from fraudlake.errors import UsageError
from fraudlake.process.host import is_folder, is_utf8
from fraudlake.sources import landing
from fraudlake.sources.file import File
from fraudlake.sources.numbered_append import NumberedAppend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake


class Counted(NamedTuple):
    """The number of a file's rows, or the reason why it cannot be read."""

    rows: int
    """0 if it cannot be read."""
    error: str | None
    """The reason why it cannot be read."""
    digest: str | None = None
    """The SHA-256 of its bytes, if it was requested and the file has rows."""


class LandingFolder(ABC):
    """The folder in which Flink's files land, as the lake's session sees it.

    Args:
        lake: the lake; inside a micro-batch, the lake in the micro-batch's session.
    """

    sweep_seconds: ClassVar[float]
    """Least time between two sweeps, which are full listings of the folder."""
    sweeps_at_start: ClassVar[bool]
    """Whether a new process begins with a sweep, even if the last one was recent."""

    def __init__(self, lake: Lake) -> None:
        """Name the folder; it need not exist yet."""
        self._lake = lake
        self._settings = lake.settings
        self._contract = contract.from_settings(lake.settings)

    @property
    @abstractmethod
    def path(self) -> str:
        """The folder's absolute path."""

    def require(self) -> None:
        """Check that the folder is there.

        Raises:
            UsageError: it is not.
        """
        require_folder(self.path)

    @abstractmethod
    def read_stream(self) -> DataFrame:
        """Return the folder as a stream of its files: ``path, modificationTime, length``.

        Raises:
            UsageError: there is no such folder.
        """

    @abstractmethod
    def files_of(self, batch: DataFrame) -> list[File]:
        """Return the files that a micro-batch of :meth:`read_stream` names."""

    @abstractmethod
    def current(self, files: list[File]) -> list[File]:
        """Return files as they are now; one that is gone has no size."""

    @abstractmethod
    def list_files(self) -> Iterator[File]:
        """List the finished files as they are now; none if there is no such folder."""

    def other_names(self, files: list[File], old_names: Container[str]) -> dict[str, str]:
        """Return the files that are only another name, a link, of a file, and the name under which that is read.

        Args:
            files: the files.
            old_names: the names that were read before.
        """
        return {}

    @abstractmethod
    def files_listed_by(self, step: str) -> Iterator[str]:
        """Return the paths of all files that a step's stream has ever listed, read or not."""

    @abstractmethod
    def correct_paths(self, step: str) -> None:
        """Correct the paths that a step's stream has listed, if the lake was moved or copied since.

        Otherwise the stream lists all files again, and repeats a micro-batch that was cut in the former place.
        """

    @abstractmethod
    def count_rows(self, files: list[File], whole: bool = False, with_digests: bool = False) -> list[Counted]:
        """Count the rows of each file.

        Args:
            files: the files.
            whole: read each file completely, as for bronze; by default only its footer is read.
            with_digests: also compute the hashes of files with rows.
        """

    def _count(self, whole: bool) -> parquet.Count:
        if not whole:
            return parquet.glance
        return partial(parquet.inspect, timezone=self._settings.landing_timezone, contract=self._contract)

    @abstractmethod
    def digests(self, files: list[File]) -> dict[str, str]:
        """Return the SHA-256 of the content of files that can be read, by their path relative to the folder."""

    @abstractmethod
    def append_to_bronze(self, files: list[File], append: NumberedAppend) -> None:
        """Append files' rows to ``bronze_transactions``, in one commit: all rows of all files, or none.

        It fails if a file has changed since it was listed. It adds nothing if the append's number is already used.
        """

    def place_of(self, path: str, source: str) -> str:
        """Return the current path of a file of the ledger, if any: a lake's own landing folder moves with the lake.

        Args:
            path: the full path that the file had.
            source: its path relative to the landing folder.
        """
        is_own = self._settings.landing is None and path.endswith(f"/landing/{source}")
        return f"{self.path}/{source}" if is_own else path

    def holds(self, file: File) -> bool:
        """Return whether a file is in this folder, and not in a former place or another landing folder."""
        return file.path == f"{self.path}/{file.source}"

    def missing(self, path: str) -> File:
        """Return a file of the folder that is gone."""
        return landing.missing_file(path, self.path)


def require_folder(path: str) -> None:
    """Check that a landing folder exists.

    Raises:
        UsageError: it is not, it may not be read, or its name is not UTF-8.
    """
    if not is_utf8(path):
        raise UsageError(f"landing folder {path}: its name is not UTF-8: rename it")
    if not is_folder(path):
        raise UsageError(f"landing folder {path} does not exist: make it, or name Flink's output with --landing")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"landing folder {path} may not be read: run as a user who may, or change its permissions")
