"""Planted bugs: each replaces a text of a module as it is imported, and has the kills by which the harness finds it.

As a program it is `fraudlake` with one of them: `python tests/chaos/planted.py NAME --lake DIR COMMAND`. Only its own
process has the bug; Spark's Python workers have not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

Moment = tuple[int, str, str]
"""How many files land, the step, and the folder of the lake in which a new file is the moment to kill it."""
NEVER = "no such folder"
INGESTED: Moment = (8, "ingest", "checkpoints/ingest/commits")
"""Some files are in bronze, and every table is made: the first new file in a table's log is none of its making."""


@dataclass(frozen=True)
class Bug:
    """A bug: the module, texts in it and their replacements."""

    name: str
    what: str
    module: str
    replacements: tuple[tuple[str, str], ...]
    moments: tuple[Moment, ...]


_STREAM, _REFINE, _FILES = "fraudlake.streams.stream", "fraudlake.streams.refine", "fraudlake.sources.file_source"
_BETWEEN_COMMITS: tuple[Moment, ...] = (INGESTED, (0, "refine", "tables/silver_transactions/_delta_log"))

BUGS = (
    Bug(
        "checkpoint_deleted",
        "a stream deletes its own checkpoint when it starts",
        _STREAM,
        (
            (
                "    checkpoint.require(stream.fixed, "
                "{table.name: lake.store.identity(table) for table in stream.reads}, has_output)\n",
                "    _ = checkpoint.notes.id  # which makes the folder\n"
                "    for part in ('offsets', 'commits', 'sources', 'state'):\n"
                "        __import__('shutil').rmtree(checkpoint.folder / part, ignore_errors=True)\n",
            ),
        ),
        (INGESTED, (0, "refine", "checkpoints/refine/commits")),
    ),
    Bug(
        "plain_append",
        "a micro-batch is appended without the name of its checkpoint and its number",
        "fraudlake.lake.appender",
        (("transaction = (self.application, batch_id)", "transaction = None"),),
        _BETWEEN_COMMITS,
    ),
    Bug(
        "ledger_first",
        "a file's entry is in the ledger before its rows are in bronze",
        _FILES,
        (
            (
                "                    self._append(lake, folder, accepted)\n",
                "                    self._add_entries(lake, outcomes)\n"
                "                    self._append(lake, folder, accepted)\n",
            ),
        ),
        (INGESTED, (8, "ingest", "tables/bronze_files/_delta_log")),
    ),
    Bug(
        "no_catching_up",
        "rows that a killed process left in bronze get no entry in the ledger",
        _FILES,
        (
            (
                "            if entry is None or entry.status == REJECTED:\n                counts",
                "            if False:\n                counts",
            ),
        ),
        (INGESTED, (8, "ingest", "tables/bronze_transactions/_delta_log")),
    ),
    Bug(
        "random_id",
        "a checkpoint has another id each time",
        "fraudlake.lake.stream_notes",
        (('return str(self._read()["id"])', "return str(uuid.uuid4())"),),
        _BETWEEN_COMMITS,
    ),
    Bug(
        "inputs_of_now",
        "a repeated micro-batch is compared with the tables as they are now, with its own rows in them",
        _REFINE,
        (("inputs = recorded.get(batch_id) or BatchInputs.now(lake)", "inputs = BatchInputs.now(lake)"),),
        _BETWEEN_COMMITS,
    ),
    Bug(
        "merge_appends",
        "a MERGE matches nothing, and so appends",
        "fraudlake.lake.delta_rs_writer",
        (('f"{same(keys)} AND t.date IN ({within})"', '"false"'),),
        (INGESTED, (0, "refine", NEVER), (0, "aggregate", "checkpoints/account_daily/commits")),
    ),
    Bug(
        "rejected_file_takes_others",
        "where a micro-batch has an unreadable file, the rows of the others are lost",
        _FILES,
        (
            (
                "accepted = [entry.file for entry in outcomes if entry.status == ACCEPTED and entry.rows]",
                "accepted = [entry.file for entry in outcomes if all(one.status == ACCEPTED for one in outcomes)]",
            ),
        ),
        (INGESTED,),
    ),
    Bug(
        "offset_first",
        "a micro-batch whose offsets were noted counts as done",
        _STREAM,
        (
            ("repeated = lake.checkpoint(stream.step).pending_batch() if stream.fixed and not stream.persist else None",
             "repeated = lake.checkpoint(stream.step).pending_batch()"),
            ("                batch.count()\n", "                return\n"),
        ),
        (INGESTED, (0, "refine", "tables/silver_transactions")),
    ),
    Bug(
        "unmarked_quarantine",
        "rows go to quarantine without the name of the checkpoint and the number of the micro-batch",
        _REFINE,
        (
            (
                "appender.append(lake, silver.quarantined(rows), tables.SILVER_QUARANTINE, batch_id)",
                "lake.writer(tables.SILVER_QUARANTINE).append("
                "silver.quarantined(rows).select(*lake.table(tables.SILVER_QUARANTINE).column_names))",
            ),
        ),
        (INGESTED, (0, "refine", "tables/silver_quarantine/_delta_log")),
    ),
    Bug(
        "unmarked_messages",
        "messages are appended without the name of the checkpoint and the number of the micro-batch",
        "fraudlake.streams.ingest.kafka",
        (
            (
                "appender.append(lake, batch.select(*columns), table, batch_id, compute=compute)",
                "Appender(__import__('uuid').uuid4().hex).append(\n"
                "            lake, batch.select(*columns), table, batch_id, compute=compute)",
            ),
        ),
        (INGESTED, (8, "ingest --source kafka", "checkpoints/ingest_kafka/commits"),
         (8, "ingest --source kafka", "tables/bronze_transactions/_delta_log")),
    ),
    Bug(
        "noted_first",
        "alerts count as delivered before they are sent",
        "fraudlake.streams.deliver",
        (
            (
                "            rows = _deliver(lake, to, settings, alerts, ",
                "            noted = lake.store.rows(tables.SILVER_DELIVERIES)['alert_id'].to_pylist()\n"
                "            alerts = [alert for alert in alerts if alert['alert_id'] not in noted]\n"
                "            rows = _rows(to, alerts, [Outcome(1)] * len(alerts))\n"
                "            appender.append(lake, lake.session.createDataFrame(rows), tables.SILVER_DELIVERIES, "
                "batch_id)\n"
                "            _deliver(lake, to, settings, alerts, ",
            ),
            (
                '{batch_id:010}")\n            appender.append(lake, lake.session.createDataFrame(rows), '
                "tables.SILVER_DELIVERIES, batch_id)\n",
                '{batch_id:010}")\n',
            ),
        ),
        (INGESTED, (0, "refine", NEVER), (0, "detect", NEVER),
         (0, "deliver --to file", "tables/silver_deliveries/_delta_log")),
    ),
)  # fmt: skip


def planted(source: str, bug: Bug) -> str:
    """Put a bug into the source of its module.

    Raises:
        LookupError: a text that it replaces is not there exactly once.
    """
    for text, replacement in bug.replacements:
        if source.count(text) != 1:
            raise LookupError(f"{bug.name}: {bug.module} has {source.count(text)} times: {text}")
        source = source.replace(text, replacement)
    return source


class _Loader(SourceFileLoader):
    def __init__(self, module: str, path: str, bug: Bug) -> None:
        super().__init__(module, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        return compile(planted(Path(self.path).read_text(), self._bug), self.path, "exec")


@dataclass(frozen=True)
class _Finder(MetaPathFinder):
    bug: Bug

    def find_spec(self, name: str, path: Sequence[str] | None, _: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == self.bug.module else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin, self.bug)
        return spec


def main() -> None:
    name = sys.argv.pop(1)
    sys.meta_path.insert(0, _Finder(next(bug for bug in BUGS if bug.name == name)))
    from fraudlake_cli.main import main as program

    program()


if __name__ == "__main__":
    main()
