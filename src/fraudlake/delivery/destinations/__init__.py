"""Destinations: each module of this folder declares one, as ``DESTINATION``."""

from importlib import import_module
from pkgutil import iter_modules

from fraudlake.delivery.destination import Destination

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
DESTINATIONS: dict[str, Destination] = {module.DESTINATION.name: module.DESTINATION for module in _MODULES}
"""The destinations by name."""
SECRETS = tuple(name for destination in DESTINATIONS.values() for name in destination.secrets)
"""Names of their secret settings, which one Databricks secret can hold."""
SECRETS_LISTED = f"{', '.join(SECRETS[:-1])} or {SECRETS[-1]}"
"""The same, as part of a sentence."""
