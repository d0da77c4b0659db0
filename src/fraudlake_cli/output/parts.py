"""Parts: a progress bar of a known number of parts, such as ``3 of 10``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from fraudlake.process.stop import StoppedError
from fraudlake_cli.output.progress import console

if TYPE_CHECKING:
    from fraudlake.model import search


class Parts(ProgressColumn):
    """Number of finished parts of a task, once the total is known."""

    def render(self, task: Task) -> Text:
        """Write the number."""
        return Text("" if task.total is None else f"{task.completed:,.0f} of {task.total:,.0f}")


@contextmanager
def progress_bar(command: str, first: str) -> Iterator[search.Progress]:
    """Show a bar in a terminal while a command runs, and yield the function that advances it.

    Args:
        command: the name of the command.
        first: a description of its first step.
    """
    columns = TextColumn(f"{command}: {{task.description}}"), BarColumn(), Parts(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(first, total=None)
        try:
            yield lambda done, all_, text: bar.update(task, completed=done, total=all_, description=text)
        except StoppedError as stopped:
            stopped.doing = f"{command}: {bar.tasks[task].description}"
            raise
