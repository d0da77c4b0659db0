"""Terminal: escapes control characters of landed text, which could move the cursor or hide a line."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from fraudlake.process import stop


class Working(Status):
    """A spinner with the current task, which the message after a signal repeats."""

    def __enter__(self) -> Self:
        """Start unless a signal has arrived."""
        stop.check()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the spinner."""
        super().__exit__(kind, error, trace)
        if isinstance(error, stop.StoppedError):
            error.doing = error.doing or str(self.status)
        elif isinstance(error, Exception):  # the failure may come from Java, which gets the signal, too
            stop.check(str(self.status))


class Terminal(Console):
    """A console that escapes control characters in texts, but not those of its own colours."""

    def status(self, status: RenderableType, **options: Any) -> Working:
        """Show a spinner while a block runs."""
        return Working(status, console=self, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Parse markup in a printable text, so that a table measures the escapes, too."""
        return super().render_str(printable(text), **options)

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Render with all texts made :func:`printable`."""
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def printable(text: str) -> str:
    """Write control, direction and invisible characters as escapes, such as ``\\x1b``."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def one_line(text: str) -> str:
    """Write a line of a listing :func:`printable`, with breaks and tabs escaped: a name with a break makes no row."""
    return printable(text).translate({ord("\n"): "\\n", ord("\t"): "\\t"})
