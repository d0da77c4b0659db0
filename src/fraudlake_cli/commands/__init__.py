"""The commands, a module for each group of them.

Every module of this folder is imported: a command exists as soon as its module does.
"""

from importlib import import_module
from pkgutil import iter_modules

from fraudlake_cli.app import cli

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["cli"]
