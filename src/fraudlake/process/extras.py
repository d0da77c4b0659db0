"""Extras: says which extra of the package to install where one of its packages is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fraudlake.errors import UsageError


@contextmanager
def required(extra: str) -> Iterator[None]:
    """Import packages of an extra in the block.

    Raises:
        UsageError: a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'fraudlake[{extra}]'") from None
