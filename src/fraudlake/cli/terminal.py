"""Terminal: what landed is shown as text; nothing in it moves the cursor, hides a line or turns letters around."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from fraudlake import stop


class Working(Status):
    """A spinner with what is under way; a signal's line says so."""

    def __enter__(self) -> Self:
        """Begin, unless a signal has come."""
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
        elif isinstance(error, Exception):  # perhaps since Java got the signal, too
            stop.check(str(self.status))


class Terminal(Console):
    """A console that prints no sign of a text raw that a terminal would obey; its own colours stay."""

    def status(self, status: RenderableType, **options: Any) -> Working:
        """Show a spinner while a block runs."""
        return Working(status, console=self, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Read a text that may have marks for colours; a table measures it before it is rendered."""
        return super().render_str(printable(text), **options)

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Render what is printed, its texts made :func:`printable`."""
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def printable(text: str) -> str:
    """Write control characters, marks of direction and signs without a shape as escapes, such as ``\\x1b``."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )
