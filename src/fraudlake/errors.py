"""Errors that a user can cause or must act on: a message of one line, and the exit code of the process."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Any

_TIMEDELTA = re.compile(r"datetime\.timedelta\((.*?)\)")
"""A limit in pydantic's messages."""
_CAUSE = re.compile(r"(Error|Exception)(: |$)")


class FraudlakeError(Exception):
    """Something failed. The message says what, where, and what to do; the process exits with 1."""

    exit_code = 1


class MissingLakeError(FraudlakeError):
    """There is no lake, or it lacks a table; a command that writes creates it."""


class UsageError(FraudlakeError):
    """The command or a setting is wrong. The process exits with 2."""

    exit_code = 2


def first_line(error: Exception | str, limit: int = 300) -> str:
    """Return the first line of a message that is not blank; if there is none, the name of the error's class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), "" if isinstance(error, str) else type(error).__name__)[:limit]


def file_reason(error: Exception) -> str:
    """Return why a file cannot be read, without its name, which the message begins with."""
    reason = error.strerror if isinstance(error, OSError) else None
    return reason.lower() if reason else first_line(error)


def reason_of(refusal: Mapping[str, Any]) -> str:
    """Return the reason for which pydantic refuses a value, in lower case to follow a colon.

    Args:
        refusal: an entry of ``ValidationError.errors()``.
    """
    reason = str(refusal["msg"]).removeprefix("Value error, ")
    reason = _TIMEDELTA.sub(_as_duration, reason)
    return f"{reason[0].lower()}{reason[1:]}"


def _as_duration(match: re.Match[str]) -> str:
    parts = (part.split("=") for part in match[1].split(", "))
    return " ".join(f"{number} {unit.removesuffix('s') if number == '1' else unit}" for unit, number in parts)


def is_of_full_disk(message: str) -> bool:
    """Return whether an error is that of a full disk, which delta-rs reports as a file that it cannot parse."""
    return os.strerror(errno.ENOSPC) in message


def cause_of(message: str) -> str:
    """Return the line of a message that names the innermost cause, without class names and stack frames."""
    if is_of_full_disk(message):
        return "a disk is full: free space for the lake and for temporary files, and run again"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("at ", "File ", "...", "===", "JVM stacktrace"))]
    causes = [line for line in messages if _CAUSE.search(line) and not line.endswith("(most recent call last):")]
    # Spark's plan of the query follows its own first line.
    line = causes[-1] if causes else messages[0].rpartition("terminated with exception: ")[2] if messages else ""
    return line.removeprefix("Caused by: ").removeprefix("fraudlake.errors.FraudlakeError: ")[:500] or "no reason given"
