"""Errors that become pages: a message of one line, and an HTTP status."""

from __future__ import annotations

from fraudlake.errors import FraudlakeError


class PageError(FraudlakeError):
    """A page cannot be shown, or a form cannot be carried out; nothing was changed."""

    status = 409


class RefusedError(PageError):
    """The person may not do this."""

    status = 403


class MissingError(PageError):
    """Nothing has that name."""

    status = 404


class TooLargeError(PageError):
    """A form is larger than the desk accepts."""

    status = 413


class TooManyError(PageError):
    """A person sends more requests than people can make."""

    status = 429
