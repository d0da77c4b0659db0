"""Logs: writes records to standard error as text, or as lines of JSON with run, stream and micro-batch."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from fraudlake.text import json_text

RUN = uuid.uuid4().hex[:12]
"""The id of this process in its records, by which the runs of a command differ."""
_FIELDS = "fraudlake_fields"
_PROGRAM = logging.getLogger("fraudlake")
_inside: ContextVar[dict[str, object]] = ContextVar("inside", default={})  # noqa: B039 - it is replaced, not changed


class _JsonLines(logging.Handler):
    """Writes one JSON object a line to the current standard error."""

    replaced: tuple[logging.Handler, ...] = ()

    def emit(self, record: logging.LogRecord) -> None:
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "run": RUN,
            **_inside.get(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            fields["error"] = logging.Formatter().formatException(record.exc_info)
        sys.stderr.write(json_text.dumps(fields) + "\n")
        sys.stderr.flush()


_json_lines = _JsonLines()


def use(is_json: bool) -> None:
    """Switch to lines of JSON, which include the program's progress, or back to text."""
    root = logging.getLogger()
    if is_json == are_json():
        return
    if is_json:
        replaced = tuple(handler for handler in root.handlers if type(handler) is logging.StreamHandler)
        _json_lines.replaced = replaced
        _json_lines.filters = [one for handler in replaced for one in handler.filters]
        root.handlers = [*(one for one in root.handlers if one not in replaced), _json_lines]
        _PROGRAM.setLevel(logging.INFO)
    else:
        root.handlers = [*(one for one in root.handlers if one is not _json_lines), *_json_lines.replaced]
        _PROGRAM.setLevel(logging.WARNING)


def are_json() -> bool:
    """Return whether records are lines of JSON."""
    return _json_lines in logging.getLogger().handlers


@contextmanager
def inside(**fields: object) -> Iterator[None]:
    """Add fields, such as stream and micro-batch, to all records of the block."""
    token = _inside.set({**_inside.get(), **fields})
    try:
        yield
    finally:
        _inside.reset(token)


def event(message: str, level: int = logging.INFO, **fields: object) -> None:
    """Log an event with its figures, if records are JSON; as text, the command prints its own lines."""
    if are_json():
        _PROGRAM.log(level, message, extra={_FIELDS: fields})


class StandardError:
    """Standard error for a console; while records are JSON, each line of text becomes a record."""

    def __getattr__(self, name: str) -> object:
        """Delegate everything else to the current standard error."""
        return getattr(sys.stderr, name)

    def isatty(self) -> bool:
        """Return whether it is an interactive terminal."""
        return not are_json() and sys.stderr.isatty()

    def write(self, text: str) -> int:
        """Write text, or a record for each of its lines."""
        if not are_json():
            return sys.stderr.write(text)
        for line in filter(None, map(str.strip, text.splitlines())):
            event(line)
        return len(text)
