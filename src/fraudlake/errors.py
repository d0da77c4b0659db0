"""Errors that a user can cause or must act on: one line each, with the exit code that goes with it."""

from __future__ import annotations


class FraudlakeError(Exception):
    """Something failed. The message says what, where, and what to do; the process exits with 1."""

    exit_code = 1


class UsageError(FraudlakeError):
    """The command or a setting is wrong. The process exits with 2."""

    exit_code = 2
