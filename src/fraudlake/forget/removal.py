"""Removal: removes accounts from tables, files, the state of streams and Delta's log; a scan proves it.

Every part can be repeated: the next call finishes an interrupted one. Other tables' rows are located through silver and
bronze, so these two come last. Rows of bronze and quarantine are not deleted but emptied; their source positions stay.
So each landed row is still in bronze once, and in silver or quarantine once. Fast alerts are emptied, too.
"""

from __future__ import annotations

import copy
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fraudlake.approvals import gate
from fraudlake.approvals.gate import Effect
from fraudlake.approvals.log import Proposal
from fraudlake.errors import FraudlakeError
from fraudlake.forget import attachments, audit, own_files, stream_state, table_rows
from fraudlake.forget.plan import Plan, count, plan
from fraudlake.forget.scan import scan
from fraudlake.lake import contents
from fraudlake.operations import lag, maintenance
from fraudlake.operations.rebuild_note import RebuildNote
from fraudlake.operations.standstill import standstill
from fraudlake.quarantine import replay

if TYPE_CHECKING:
    from fraudlake.approvals.request import Request
    from fraudlake.lake import Lake

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result(Plan):
    """The removed rows; ``traces`` lists scanned files that still contain one of the accounts."""

    scanned_files: int = 0
    traces: list[str] = field(default_factory=list)


def forget(lake: Lake, accounts: Sequence[str], reason: str | None = None) -> Result:
    """Remove accounts, and scan the remaining files; ``reason`` is for the second person, if the lake needs two.

    Raises:
        UsageError: the lake has no rows of an account.
        WaitingError: a second person must agree; finishing a removal that was cut needs nobody.
        FraudlakeError: a step runs, lags or was cut; nothing was changed.
    """
    log = audit.read(lake)
    if gate.keys(lake.store) > 1 and not all(map(log.is_unfinished, accounts)):
        _require_idle(lake)
        plan(lake, accounts)
        proposal = Proposal(
            "forget",
            f"forget {', '.join(accounts)}",
            dict.fromkeys(accounts, "known"),
            dict.fromkeys(accounts, "forgotten"),
            {"accounts": list(accounts), "folders": _folders(lake)},
            accounts,
        )
        gate.require(lake.store, proposal, None, reason)
    return _forget(lake, accounts)


def _folders(lake: Lake) -> dict[str, str]:
    """Return the folders outside of the lake that a removal changes, by setting, for the person who approves it."""
    named = {name: getattr(lake.settings, name) for name in ("landing", "delivery_folder")}
    folders = {name: folder for name, folder in named.items() if folder}
    # In a workspace they are volumes, or addresses of a cloud's storage.
    return {name: str(Path(folder).absolute()) for name, folder in folders.items()} if lake.folder else folders


def _state(lake: Lake, request: Request) -> dict[str, Any]:
    log = audit.read(lake)
    finished = {account: log.finished_at(account) for account in request.arguments["accounts"]}
    return {
        account: "forgotten" if at is not None and at >= request.event.at else "known"
        for account, at in finished.items()
    }


def _carry_out(lake: Lake, request: Request) -> None:
    """Forget the accounts of a request, unless that was done before.

    Raises:
        FraudlakeError: a scan found a trace of them.
    """
    if _state(lake, request) != request.after:
        asked = copy.copy(lake)
        asked.settings = lake.settings.model_copy(update=request.arguments.get("folders", {}))
        result = _forget(asked, request.arguments["accounts"])
        for sentence in result.stays:
            _LOG.warning("not removed: %s", sentence)
        if result.traces:
            raise FraudlakeError(f"a trace is left in {result.traces[0]}: 'fraudlake forget ACCOUNT --yes' lists all")


EFFECT = Effect(_state, _carry_out)
"""How approved removals take effect, in a lake."""


def _forget(lake: Lake, accounts: Sequence[str]) -> Result:
    stream_state.finish(lake)
    with standstill(lake):
        _require_idle(lake)
        counted = count(lake, accounts)
        record = audit.require_known(lake, counted.rows)
        record.begin(lake, counted.rows)
        attachments.remove(lake, accounts)
        table_rows.remove(lake, accounts, {name for by_table in counted.rows.values() for name in by_table})
        if lake.folder:
            for landed in own_files.landed(lake, accounts):
                if landed.is_own:
                    own_files.blank(lake, landed)
            own_files.delivered(lake, set(accounts), erase=True)
    if lake.folder is None:
        for table in contents.TABLES:
            maintenance.purge(lake, table)
        record.finish(lake, accounts)
        return Result(counted.rows, counted.stays)
    older = stream_state.empty(lake, lake.folder, accounts)
    with standstill(lake):
        _erase_leftovers(lake, lake.folder)
        scanned, places = scan(lake, lake.folder, accounts)
        places += [f"{file}: it was written before, and cannot be decoded" for file in sorted(older)]
        if not places:
            record.finish(lake, accounts)
        return Result(counted.rows, counted.stays, scanned, places)


def _require_idle(lake: Lake) -> None:
    """Refuse if a stream has unread commits, whose rows may be removed."""
    for table in contents.TABLES:
        for step in lag.unread(lake, table):
            raise FraudlakeError(
                f"{step} has not read all of {table.name}: run '{lag.command_of(step)}' to its end first, "
                f"or remove {lake.checkpoint(step).folder} if it is not needed any more"
            )
        if lake.folder and lake.store.detail(table).clustering_columns:
            raise FraudlakeError(f"{table.name} has liquid clustering: its log cannot be rewritten here")
    note = RebuildNote.of(lake)
    if note is not None:
        raise FraudlakeError(f"a replay of days was interrupted: run '{note.command}' first to finish it")
    if replay.unfinished(lake):
        raise FraudlakeError("a replay was interrupted: run 'fraudlake quarantine --replay' first to finish it")


def _erase_leftovers(lake: Lake, folder: Path) -> None:
    """Remove files that are no longer needed and may name accounts, and the older versions of every table."""
    from fraudlake.lake import delta_folder

    for done in (lake.replays, folder / "spool"):
        shutil.rmtree(done, ignore_errors=True)
    for log in (folder / "logs").glob("*"):
        os.truncate(log, 0)  # Spark continues at its end
    for example in (folder / "models").rglob("*input_example*.json"):
        example.unlink()
    for table in contents.TABLES:
        delta_folder.erase_past(folder / "tables" / table.name)
