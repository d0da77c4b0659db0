"""Destination of alerts: its name, its settings and its sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from fraudlake.errors import UsageError
from fraudlake.settings import SECRETS

if TYPE_CHECKING:
    from fraudlake.delivery.sink import Sink
    from fraudlake.lake import Lake

T = TypeVar("T")


@dataclass(frozen=True)
class Destination:
    """A destination, as a module of :mod:`fraudlake.delivery.destinations` declares it.

    Every command loads that module, so it imports slow or optional packages only in ``sink``.
    """

    name: str
    """Its name for ``deliver --to``."""
    sink: Callable[[Any, Lake], Sink]
    """Returns its sink, which writes in the session of the lake; nothing is connected yet.

    It gets all settings, and raises a UsageError if one is missing or wrong, or if a package is not installed.
    """
    settings: type[BaseModel] = BaseModel
    """Its settings, a group of :mod:`fraudlake.settings.delivery`. Those of the type ``SecretStr`` are never shown and
    are no flags; a Databricks secret can hold them."""
    shared: tuple[str, ...] = ()
    """Names of further settings that it reads, which are flags of ``deliver``."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of its settings that are secret."""
        return tuple(name for name in self.settings.model_fields if name in SECRETS)

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the settings that are flags of ``deliver``."""
        return (*(name for name in self.settings.model_fields if name not in self.secrets), *self.shared)


def required(value: T | None, name: str) -> T:
    """Return the value of a setting that a destination requires.

    Raises:
        UsageError: it is not set.
    """
    if value is None:
        raise UsageError(f"{name} is not set: this destination needs it (FRAUDLAKE_{name.upper()})")
    return value
