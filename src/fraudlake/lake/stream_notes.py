"""Stream notes: what a stream notes next to Spark's files in its checkpoint, as ``fraudlake.json``."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fraudlake.errors import FraudlakeError
from fraudlake.lake import json_file


@dataclass(frozen=True)
class StreamNotes:
    """The notes of one stream.

    They are the checkpoint's id, the settings that the state depends on, the ids of the tables that the stream reads,
    the further tables that it writes, and notes by micro-batch on rules, declared features and verdicts.
    """

    step: str
    folder: Path
    """The checkpoint's folder."""

    @property
    def id(self) -> str:
        """The checkpoint's id, made on first use; a new checkpoint has a new one."""
        if not self._file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            json_file.create(self._file, {"id": str(uuid.uuid4())})
        return str(self._read()["id"])

    @property
    def fixed(self) -> dict[str, object]:
        """The settings that the stream began with and that cannot change; empty before it has begun."""
        return dict(self._read().get("fixed", {}))

    @property
    def reads(self) -> dict[str, str]:
        """The id of each table that the stream reads, by the table's name; empty before it has begun."""
        return dict(self._read().get("reads", {}))

    @property
    def also_writes(self) -> list[str]:
        """The names of the tables that the stream writes in addition to its own, from its first micro-batch on."""
        return list(self._read().get("also_writes", []))

    def note_also_writes(self, tables: list[str]) -> None:
        """Note the tables that :attr:`also_writes` returns."""
        self._write(also_writes=tables)

    def require(self, fixed: Mapping[str, object], reads: Mapping[str, str]) -> None:
        """Check settings and the ids of tables against those that the stream began with, if it has begun.

        Raises:
            FraudlakeError: a setting or a table has changed.
        """
        self.require_fixed(fixed)
        for table, identity in reads.items():
            if self.reads.get(table, identity) != identity:
                raise FraudlakeError(
                    f"{self.step}: {table} is not the table that this stream has read so far: put that one back, "
                    f"or start over ({self.start_over})"
                )

    def require_fixed(self, fixed: Mapping[str, object]) -> None:
        """Check settings against those that the stream began with.

        Raises:
            FraudlakeError: a setting has changed.
        """
        for name, value in fixed.items():
            before = self.fixed.get(name, value)
            if before != value:
                raise FraudlakeError(
                    f"{self.step}: its state was begun with {name} = {before} and cannot change to {value}: "
                    f"set {name} = {before}, or start over ({self.start_over})"
                )

    def note_start(self, fixed: Mapping[str, object], reads: Mapping[str, str]) -> None:
        """Note the settings and the tables that :attr:`fixed` and :attr:`reads` return, unless they are noted."""
        self._write(fixed={**fixed, **self.fixed}, reads={**reads, **self.reads})

    @property
    def start_over(self) -> str:
        """How a person restarts the stream from its beginning."""
        return f"remove {self.folder} and the tables that '{self.step}' writes"

    def rules_of(self, batch: int) -> int | None:
        """Return the number of the latest change of rules that a micro-batch evaluates; None if it was not noted."""
        change: int | None = self._noted_by("rules", batch)
        return change

    def keys_of(self, batch: int) -> dict[str, list[str]]:
        """Return the rules' entities in a micro-batch, as :meth:`note_rules` was given them; empty without a note."""
        return dict(self._noted_by("keys", batch) or {})

    def note_rules(
        self, batch: int, change: int, read: Mapping[str, int | None], keys: Mapping[str, Sequence[str]]
    ) -> None:
        """Note, before a micro-batch is processed, the latest change of rules that it and later ones evaluate.

        Args:
            batch: the micro-batch.
            change: the number of the change.
            read: how far the stream had read by then; :meth:`read_before` returns it.
            keys: for each rule that does not group by account, its entity and the entity's key columns.
        """
        self._note(batch, rules=change, read=dict(read), keys=dict(keys))

    def batches_of(self, first_change: int, end_change: float, next_batch: int) -> tuple[int, int | None] | None:
        """Return the first micro-batch that evaluated a range of rule changes, and the first one that no longer did.

        The second is None if the range is still evaluated; the result is None if no micro-batch before ``next_batch``
        has evaluated it.
        """
        noted = sorted((int(batch), change) for batch, change in {"0": 1, **self._noted("rules")}.items())
        begun = [batch for batch, change in noted if first_change <= change < end_change and batch < next_batch]
        if not begun:
            return None
        return begun[0], next((batch for batch, change in noted if batch > begun[0] and change >= end_change), None)

    def read_before(self, batch: int) -> Mapping[str, int | None]:
        """Return how far the stream had read before a micro-batch with a note on its rules; empty without a note."""
        return dict(self._noted("read").get(str(batch), {}))

    def features_of(self, batch: int) -> str | None:
        """Return the declared features, as JSON, that a micro-batch computes; None if they were not noted."""
        features: str | None = self._noted_by("features", batch)
        return features

    @property
    def all_features(self) -> list[str]:
        """The declared features, as JSON, of each note."""
        return list(self._noted("features").values())

    def note_features(self, batch: int, features: str) -> None:
        """Note, before a micro-batch is processed, the declared features that it and later ones compute, as JSON."""
        self._note(batch, features=features)

    def verdicts_of(self, batch: int) -> int | None:
        """Return the version of ``silver_verdicts`` that a micro-batch sees; None if it was not noted."""
        version: int | None = self._noted_by("verdicts", batch)
        return version

    def note_verdicts(self, batch: int, version: int) -> None:
        """Note, before a micro-batch is processed, the version of ``silver_verdicts`` that it and later ones see."""
        self._note(batch, verdicts=version)

    def _note(self, batch: int, **values: Any) -> None:
        self._write(**{name: {**self._noted(name), str(batch): value} for name, value in values.items()})

    def _noted_by(self, name: str, batch: int) -> Any:
        """Return the latest note of a kind for a micro-batch or an earlier one; None if there is no note."""
        noted = {int(first): value for first, value in self._noted(name).items() if int(first) <= batch}
        return noted[max(noted)] if noted else None

    def _noted(self, name: str) -> dict[str, Any]:
        return dict(self._read().get(name, {}))

    @property
    def _file(self) -> Path:
        return self.folder / "fraudlake.json"

    def _read(self) -> dict[str, Any]:
        """Return the notes; empty if there are none yet."""
        try:
            notes: dict[str, Any] = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            raise FraudlakeError(
                f"{self.step}: {self._file} is damaged: restore {self.folder} from a copy, "
                f"or start over ({self.start_over})"
            ) from None
        return notes

    def _write(self, **notes: Any) -> None:
        """Write the notes if they are new."""
        before = {"id": self.id, **self._read()}
        if before != {**before, **notes}:
            json_file.write(self._file, {**before, **notes})
