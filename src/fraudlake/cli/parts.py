"""Parts: the parts of a task that are done become a column of its bar."""

from __future__ import annotations

from rich.progress import ProgressColumn, Task
from rich.text import Text


class Parts(ProgressColumn):
    """How many parts of a task are done, once it is known how many there are."""

    def render(self, task: Task) -> Text:
        """Write the number."""
        return Text("" if task.total is None else f"{task.completed:,.0f} of {task.total:,.0f}")
