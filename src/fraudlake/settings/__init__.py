"""Settings: one typed, validated object from flags, the environment, ``fraudlake.toml`` and defaults.

Each group of settings has a module; :mod:`fraudlake.settings.settings` composes the groups, and
:mod:`fraudlake.settings.loading` reads the values.
"""

from fraudlake.settings.loading import load
from fraudlake.settings.settings import DEFINITION, DEFINITION_TYPES, ENV_PREFIX, SECRETS, Settings

__all__ = ["DEFINITION", "DEFINITION_TYPES", "ENV_PREFIX", "SECRETS", "Settings", "load"]
