"""Settings: flags, environment, ``fraudlake.toml`` and defaults become one typed, validated object.

A module a group, composed in :mod:`fraudlake.settings.settings`, read by :mod:`fraudlake.settings.loading`.
"""

from fraudlake.settings.loading import load
from fraudlake.settings.settings import DEFINITION, DEFINITION_TYPES, ENV_PREFIX, SECRETS, Settings

__all__ = ["DEFINITION", "DEFINITION_TYPES", "ENV_PREFIX", "SECRETS", "Settings", "load"]
