"""The command line: ``fraudlake COMMAND`` runs one step of the lake, or all of them in order.

Every module of this folder is imported: a command exists as soon as its module does.
"""

from importlib import import_module
from pkgutil import iter_modules

from fraudlake.cli.app import cli
from fraudlake.cli.main import main

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["cli", "main"]
