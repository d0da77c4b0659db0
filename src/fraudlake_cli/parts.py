"""Parts: a column of a progress bar, such as ``3 of 10``."""

from __future__ import annotations

from rich.progress import ProgressColumn, Task
from rich.text import Text


class Parts(ProgressColumn):
    """Number of finished parts of a task, once the total is known."""

    def render(self, task: Task) -> Text:
        """Write the number."""
        return Text("" if task.total is None else f"{task.completed:,.0f} of {task.total:,.0f}")
