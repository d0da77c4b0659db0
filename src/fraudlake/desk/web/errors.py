"""Errors that become pages: a line that says what is wrong, and a status of HTTP."""

from __future__ import annotations

from fraudlake.errors import FraudlakeError


class PageError(FraudlakeError):
    """A page cannot be shown, or a form not be carried out; nothing was changed."""

    status = 409


class RefusedError(PageError):
    """The person may not do this."""

    status = 403


class MissingError(PageError):
    """There is nothing of that name."""

    status = 404


class TooLargeError(PageError):
    """A form has more text than the desk takes."""

    status = 413


class TooManyError(PageError):
    """There are more requests than people can make."""

    status = 429
