"""Progress: prints a line on standard error for each step and stream; standard output is for results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

from fraudlake.process import logs
from fraudlake.process.stop import StoppedError
from fraudlake.text.counts import counted
from fraudlake_cli.output.terminal import Terminal

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.streams.stream import Done, Stream

console = Terminal(file=cast(IO[str], logs.StandardError()), highlight=False)
output = Terminal(highlight=False)


def run_streams(lake: Lake, streams: list[Stream], trigger: str) -> list[Done]:
    """Run streams, and print a line for each: a stream that reads the output of another starts after it has ended.

    With the trigger ``continuous`` all run concurrently until stopped.
    """
    from fraudlake.streams import stream

    done = []
    with planned(*(one.step for one in streams)) as is_done:
        for group in [streams] if trigger == "continuous" else stream.independent(streams):
            begun = time.monotonic()
            names = ", ".join(one.step for one in group)
            with console.status("all streams (stop with Ctrl-C)" if trigger == "continuous" else names) as status:
                finished = stream.run(lake, group, trigger, Report(names, status).update)
            for item in finished:
                print_done(item.step, counted(item.rows, unit(item.step)), begun)
                is_done()
            done += finished
    return done


@contextmanager
def planned(*parts: str) -> Iterator[Callable[[], None]]:
    """Yield a function that marks the next part as done; the message after a signal lists the parts done and left."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1

    try:
        yield count
    except StoppedError as stopped:
        stopped.progress = f"done: {', '.join(parts[:done]) or 'nothing'}; left: {', '.join(parts[done:]) or 'nothing'}"
        raise


@contextmanager
def timed(step: str) -> Iterator[Report]:
    """Show a step while it runs and, when it is done, its result and duration."""
    begun = time.monotonic()
    with console.status(step) as status:
        report = Report(step, status)
        yield report
    print_done(step, ", ".join(report), begun)


class Report(list[str]):
    """The description of a step's result, and the spinner that shows its progress until then."""

    def __init__(self, step: str, status: Any) -> None:
        """Report on a step, whose spinner is ``status``."""
        self._step = step
        self._status = status
        self._begun = time.monotonic()

    def update(self, step: str, rows: int, batches: int) -> None:
        """Show the progress of a stream."""
        one = "" if step == self._step else f"{step} "
        self._status.update(
            f"{self._step}: {one}{counted(rows, unit(step))}, {counted(batches, 'micro-batch')}{self._rate(rows)}"
        )

    def parts(self, unit: str) -> Callable[[int, int], None]:
        """Return a function that shows the number of units done, and their total."""
        return lambda done, total: self._status.update(f"{self._step} {done}/{counted(total, unit)}")

    def _rate(self, rows: int) -> str:
        seconds = time.monotonic() - self._begun
        return f", {rows / seconds:,.0f} a second" if 1 <= seconds <= rows else ""


def print_done(step: str, report: str, begun: float) -> None:
    """Print the line of a finished step; ``begun`` is its start on the monotonic clock."""
    console.print(f"[green]✓[/] {step:<20} {report:<40} {time.monotonic() - begun:5.1f} s")


def unit(step: str) -> str:
    """Return the unit in which a step counts."""
    return "file" if step == "ingest" else "alert" if step.startswith("deliver") else "row"
