"""Errors that a user can cause or must act on: a message of one line, and the exit code of the process."""

from __future__ import annotations


class FraudlakeError(Exception):
    """Something failed. The message says what, where, and what to do; the process exits with 1."""

    exit_code = 1


class MissingLakeError(FraudlakeError):
    """There is no lake, or it lacks a table: a command that writes makes it."""


class UsageError(FraudlakeError):
    """The command or a setting is wrong. The process exits with 2."""

    exit_code = 2


def first_line(error: Exception | str, limit: int = 300) -> str:
    """Return the first line of a message that is not blank; the name of the error's class where there is none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), "" if isinstance(error, str) else type(error).__name__)[:limit]
